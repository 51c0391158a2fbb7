"""What evenorm.torch says about itself: every public name has an example, and the examples are right."""

import doctest
import inspect

import pytest
import torch
from torch_cases import EXTENSION

import evenorm.torch


@pytest.mark.parametrize("name", evenorm.torch.__all__)
def test_examples(name):
    item = getattr(evenorm.torch, name)
    examples = doctest.DocTestFinder(recurse=False).find(item, name, globs={**vars(evenorm.torch), "torch": torch})
    assert name == "Conversion" or sum(len(test.examples) for test in examples) >= 1
    if not EXTENSION and "grad_fn" in inspect.getdoc(item):
        pytest.skip("the nodes' names are the extension's")
    results = [doctest.DocTestRunner().run(test) for test in examples]
    assert not any(result.failed for result in results)
