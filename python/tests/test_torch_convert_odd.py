"""evenorm.torch.convert on norms that are odd in what is around their formula: the signs and sizes of their parameters,
PyTorch's modes, where they keep state, how their class is made. Told, and never a conversion that stops half way."""

# ruff: noqa: E402  (what needs PyTorch is imported when it is known to be there)
import argparse
import collections
import dataclasses
import queue
import types

import pytest

torch = pytest.importorskip("torch")

import torch_look_alikes as look_alikes

import evenorm.torch as et

Norm = look_alikes.NarrowRMSNorm
ELSEWHERE = types.ModuleType("elsewhere")
ELSEWHERE.calls = 0


# --- state


class Keeping(Norm):
    def __init__(self, stats, count):
        super().__init__()
        self.stats, self.count = stats, count

    def forward(self, x):
        self.count(self.stats)
        return super().forward(x)


@dataclasses.dataclass(slots=True)
class Slotted:
    calls: int = 0


def add_one(stats):
    stats.calls += 1


def helper():
    helper.calls += 1


helper.calls = 0


class CountingAtFunction(Norm):
    def forward(self, x):
        helper()
        return super().forward(x)


class CountingElsewhere(Norm):
    def forward(self, x):
        ELSEWHERE.calls += 1
        return super().forward(x)


@pytest.mark.parametrize("stats", [types.SimpleNamespace(calls=0), argparse.Namespace(calls=0), Slotted()])
def test_state_in_holders(stats):
    report = et.convert(Keeping(stats, add_one))
    assert report.left[0].reason == "its forward changes its state (stats)", report
    assert stats.calls == 0


@pytest.mark.parametrize(
    ("stats", "count"), [(collections.UserList(), lambda s: s.append(1)), (queue.Queue(), lambda s: s.put(1))]
)
def test_state_in_containers_of_the_standard_library(stats, count):
    report = et.convert(Keeping(stats, count))
    assert report.left[0].reason == "its forward changes its state (stats)", report
    assert len(stats) == 0 if isinstance(stats, collections.UserList) else stats.empty()


def test_state_at_functions_and_in_other_modules():
    assert et.convert(CountingAtFunction()).left[0].reason == "its forward changes its state (helper.calls)"
    assert et.convert(CountingElsewhere()).left[0].reason == "its forward changes its state (calls)"
    assert helper.calls == 0 and ELSEWHERE.calls == 0
