"""Runs evenorm.torch.convert on the norm classes of other packages, and counts what it replaces and why it leaves the rest.

usage: bench/norm_classes.py [--list] [--json FILE | --check FILE] [PACKAGE ...]

A norm class is a torch.nn.Module that a package defines and that has "norm" in its name or derives from a norm of
torch.nn. The script makes one module of each class: each required argument, and each attribute of an argument `config`,
gets a value that depends on its name (`value_of`). Classes whose modules cannot be made this way are counted.

A replaced module must do what its copy does that was not converted, for contiguous and permuted x with 1 to 5 axes in
three types: raise an error, or return the same shape, type and strides with the same values and gradient of x, up to
rounding. Differences, and warnings that convert() lets through, are faults: the script prints them and fails.

timm and vit-pytorch import torchvision, each build of which needs one build of PyTorch. If it is not installed, mocks take
the place of its modules. No norm uses them.
"""

import argparse
import collections
import contextlib
import copy
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import inspect
import json
import pathlib
import re
import sys
import time
import unittest.mock
import warnings

import torch
from torch import nn

import evenorm.torch

WITH_TORCHVISION = ("timm", "vit-pytorch")  # the last: transformers would take mocks for an installed torchvision
PACKAGES = ("diffusers", "transformers", "x-transformers", *WITH_TORCHVISION)
DEFINES = re.compile(r"^\s*class\s+(\w*norm\w*|\w+\(.*norm.*\))", re.M | re.I)  # other files are not imported
SKIPPED = re.compile(r"(^|/)(modular_|convert_|test)")  # templates of other files, scripts and tests
BASES = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.modules.batchnorm._NormBase)
SIZE = 64  # two channels for each of the usual 32 groups
ROWS = ((SIZE,), (5, SIZE), (3, 7, SIZE), (2, 5, 6, SIZE), (2, 3, 4, 5, SIZE))
CHANNELS = ((3, SIZE, 7), (2, SIZE, 5, 6), (2, SIZE, 2, SIZE), (2, SIZE, 3, 4, 5))
SIZES = re.compile("size|dim|shape|channels|features")
SLOW = 0.3  # seconds of processor time
KINDS = ("replaced", "left", "inside", "not made", "not imported")  # inside: it has norms of torch.nn
Entry = collections.namedtuple("Entry", "name kind text seconds faults", defaults=(0.0, ()))


# --- classes and modules


class Mocks(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds each module of torchvision, a mock. As the last finder, it finds none if torchvision is installed."""

    def find_spec(self, name, path=None, target=None):
        is_its = name.split(".")[0] == "torchvision"
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if is_its else None

    def create_module(self, spec):
        return unittest.mock.MagicMock()

    def exec_module(self, module):
        pass


def classes_of(package):
    """Yields the names of the package's norm classes with the class, and of modules that raise with the error."""
    root = pathlib.Path(importlib.util.find_spec(package).submodule_search_locations[0])
    for path in sorted(root.rglob("*.py")):
        name = ".".join((package, *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
        if SKIPPED.search(str(path.relative_to(root))) or not DEFINES.search(path.read_text(errors="replace")):
            continue
        try:
            module = importlib.import_module(name)
        except BaseException as error:  # SystemExit too
            yield name, f"{type(error).__name__}: {error}"
            continue
        own = (value for value in vars(module).values() if inspect.isclass(value) and value.__module__ == name)
        for cls in dict.fromkeys(own):
            if issubclass(cls, nn.Module) and ("norm" in cls.__name__.lower() or issubclass(cls, BASES)):
                yield f"{name}.{cls.__name__}", cls


class Config:
    """Stands for any configuration: the name of an attribute gives its value."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return value_of(name)


# By a part of the name.
VALUES = {"config": Config(), "cfg": Config(), "fn": nn.Identity(), "block": nn.Identity(), "module": nn.Identity()}
VALUES |= {"bias": True, "affine": True, "drop": 0.0, "prob": 0.0, "eps": 1e-6, "idx": 0, "id": 0, "group": 4}
VALUES |= {"head": 2, "layer": 2, "act": "silu", "type": "layer_norm", "dtype": torch.float32, "device": "cpu"}


def value_of(name):
    found = [] if SIZES.search(name) else [value for part, value in VALUES.items() if part in name.lower()]
    return found[0] if found else SIZE


def made(cls):
    """A module of the class with random parameters, or the reason why there is none."""
    errors = []
    for optional in (False, True):  # a size may default to None, which the constructor then refuses
        try:
            module = constructed(cls, optional)
        except BaseException as error:
            errors.append(f"{type(error).__name__}: {error}")
            continue
        generator = torch.Generator().manual_seed(1)
        for parameter in module.parameters():
            parameter.data.copy_(torch.randn(parameter.shape, generator=generator) + 1)
        return module.eval()
    return errors[0]


def constructed(cls, optional):
    arguments = inspect.signature(cls).parameters.values()
    if all(one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in arguments):
        return cls(*[SIZE] * optional)
    return cls(
        **{
            one.name: value_of(one.name)
            for one in arguments
            if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
            and (one.default is one.empty or (optional and one.default is None and SIZES.search(one.name)))
        }
    )


# --- what convert() does


def converted(name, module):
    """Converts the module and compares it with a copy."""
    old = copy.deepcopy(module)
    with warnings.catch_warnings(record=True, action="always") as caught:
        start = time.process_time()
        report = evenorm.torch.convert(module)
        seconds = time.process_time() - start
    faults = [f"warning: {one.message}" for one in caught if str(one.message) not in report.warnings]
    own = next((one for one in (*report.replaced, *report.left) if one.name == ""), None)
    if own in report.replaced:
        return Entry(name, "replaced", own.new, seconds, faults + faults_of(old, module))
    if own is not None:
        return Entry(name, "left", own.reason, seconds, faults)
    if not report.replaced and not report.left:
        return Entry(name, "left", "not taken for a norm", seconds, faults)
    return Entry(name, "inside", "some left" if report.left else "all replaced", seconds, faults)


def shortened(text):
    """The outcome without what differs from class to class: up to a number, a bracket or an error message."""
    return re.split(r"[(\d:]", text)[0].rstrip(" -")


def inputs():
    """Random x, contiguous, transposed and channels-last."""
    generator = torch.Generator().manual_seed(2)
    for shape in (*ROWS, *CHANNELS):
        for dtype in (torch.float32, torch.bfloat16, torch.float64):
            x = (3 * torch.randn(shape, generator=generator, dtype=torch.float64) + 0.5).to(dtype)
            yield x
            if len(shape) > 1:
                yield x.mT.contiguous().mT
                yield x.movedim(1, -1).contiguous().movedim(-1, 1)


def result_of(module, x):
    """What the module returns and the gradient of x, or None if it raises an error."""
    x = x.detach().requires_grad_()
    with contextlib.suppress(Exception):
        y = module(x)
        return y, torch.autograd.grad(y.sum() + y[..., 0].sum(), x)[0]
    return None, None


def faults_of(old, new):
    """How the converted module differs from its copy."""
    found, wide = [], [copy.deepcopy(module).double() for module in (old, new)]
    for x in inputs():
        pair = wide if x.dtype is torch.float64 else (old, new)
        (y, dx), (y_new, dx_new) = (result_of(module, x) for module in pair)
        if y is None or y_new is None:
            wrong = [] if y is y_new else ["a new error" if y_new is None else "no error as before"]
        elif about(y) != about(y_new):
            wrong = [f"{about(y)} became {about(y_new)}"]
        else:
            wrong = [name for name, a, b in (("y", y, y_new), ("dx", dx, dx_new)) if not agree(a, b, x.dtype)]
        found += [f"for x {about(x)}: {one}" for one in wrong]
    return found


def about(x):
    return f"{str(x.dtype)[6:]} {tuple(x.shape)} with strides {x.stride()}"


def agree(a, b, dtype):
    a, b = a.detach().double(), b.detach().double()
    bound = 3e-2 if dtype is torch.bfloat16 else 1e-4
    return torch.allclose(a, b, bound, bound * float(a.abs().nan_to_num().amax()), equal_nan=True)


# --- packages


def survey(package):
    """Returns an Entry for each norm class of the package."""
    entries = []
    for name, cls in classes_of(package.replace("-", "_")):
        module = cls if isinstance(cls, str) else made(cls)
        kind = "not imported" if module is cls else "not made"
        entries.append(Entry(name, kind, module) if isinstance(module, str) else converted(name, module))
    return entries


def counts_of(entries):
    """The numbers of classes by kind, and those of norms by the outcome, the largest first."""
    counts = {}
    for kind in KINDS:
        texts = sorted(shortened(one.text) for one in entries if one.kind == kind)
        counts[kind] = len(texts) if kind.startswith("not ") else dict(collections.Counter(texts).most_common())
    return counts


def show(title, entries, listed):
    print(f"\n{title}: {sum(one.kind != 'not imported' for one in entries)} norm classes")
    for kind, counts in counts_of(entries).items():
        print(f"  {kind:<14}{sum(one.kind == kind for one in entries):>4}")
        for text, number in counts.items() if isinstance(counts, dict) else ():
            print(f"    {number:>4}  {text}")
    for one in entries:
        if listed:
            print(f"  {one.kind}: {one.name}: {' '.join(one.text.split())[:300]}")
        if one.seconds > SLOW:
            print(f"  SLOW: {one.name}: {one.seconds:.1f} s")
        for fault in one.faults:
            print(f"  FAULT: {one.name}: {fault}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help=", ".join(PACKAGES))
    parser.add_argument("--list", action="store_true", help="print each class")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the counts to FILE")
    parser.add_argument("--check", type=pathlib.Path, metavar="FILE", help="fail if the counts are not those in FILE")
    arguments = parser.parse_args()

    warnings.simplefilter("ignore")  # of the packages; converted() records those of convert()
    result, failed = {}, False
    for package in sorted(arguments.packages or PACKAGES, key=PACKAGES.index):
        if package in WITH_TORCHVISION:
            sys.meta_path.append(Mocks())
        entries = survey(package)
        version = importlib.metadata.version(package)
        result[package] = {"version": version, **counts_of(entries)}
        show(f"{package} {version}", entries, arguments.list)
        failed |= any(one.faults for one in entries)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    if arguments.check and json.loads(arguments.check.read_text()) != result:
        print(f"\nThe counts are not those in {arguments.check}. If the change is meant, write them with --json.")
        failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
