"""evenorm.torch.convert leaves modules that keep state or have no values unchanged, and reports the reason."""

import argparse
import collections
import dataclasses
import queue
import random
import types

import pytest
import torch
import torch_look_alikes as look_alikes
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch_look_alikes import NarrowRMSNorm, ScaleShift, made

import evenorm.torch as et

C = look_alikes.C
SEEN = []
COUNT = 0
CACHE = {}
ELSEWHERE = types.ModuleType("elsewhere")
ELSEWHERE.calls = 0


def changing(change, **attributes):
    """A norm whose forward calls change(self, x) first."""

    def forward(self, x):
        change(self, x)
        return NarrowRMSNorm.forward(self, x)

    return made(forward, **attributes)


@dataclasses.dataclass
class Recorder:
    calls: int = 0

    def record(self):
        self.calls += 1


@dataclasses.dataclass(slots=True)
class Slotted:
    calls: int = 0


class OfTheClass(NarrowRMSNorm):
    calls = 0
    seen = []  # noqa: RUF012


def count(m, x):
    global COUNT
    COUNT += 1


def helper():
    helper.calls += 1


helper.calls = 0


def add_one(holder):
    holder.calls += 1


# State by name: the function that changes it, what makes the attribute that holds it (if any), and how it is read.
STATEFUL = {
    "x": (lambda m, x: x.data.mul_(2), None, None),
    "calls": (lambda m, x: setattr(m, "calls", m.calls + 1), int, lambda m: m.calls),
    "last": (lambda m, x: setattr(m, "last", x), None, lambda m: hasattr(m, "last") and m.last),
    "shapes": (lambda m, x: m.shapes.append(x.shape), lambda: ["first"], lambda m: m.shapes),
    "stats": (lambda m, x: m.stats["calls"][x.dim()].append(1), lambda: {"calls": collections.defaultdict(list)}, None),
    "recorder": (lambda m, x: m.recorder.record(), Recorder, lambda m: m.recorder),
    "slotted": (lambda m, x: add_one(m.slotted), Slotted, lambda m: m.slotted),
    "namespace": (lambda m, x: add_one(m.namespace), lambda: types.SimpleNamespace(calls=0), lambda m: m.namespace),
    "arguments": (lambda m, x: add_one(m.arguments), lambda: argparse.Namespace(calls=0), lambda m: m.arguments),
    "items": (lambda m, x: m.items.append(1), collections.UserList, lambda m: m.items),
    "queue": (lambda m, x: m.queue.put(1), queue.Queue, lambda m: m.queue.qsize()),
    "average": (lambda m, x: m.average.add_(1), lambda: torch.zeros(3), lambda m: m.average),  # not registered
    "map": (lambda m, x: m.map.add_(1), lambda: torch.zeros(2**19), lambda m: m.map),
    "weight": (lambda m, x: m.weight.data.clamp_(max=0.25), None, lambda m: m.weight),
    "OfTheClass.calls": (lambda m, x: setattr(OfTheClass, "calls", 1), None, lambda m: OfTheClass.calls),
    "OfTheClass.seen": (lambda m, x: OfTheClass.seen.append(1), None, lambda m: OfTheClass.seen),
    "SEEN": (lambda m, x: SEEN.append(x.shape), None, lambda m: SEEN),
    "COUNT": (count, None, lambda m: COUNT),
    "helper.calls": (lambda m, x: helper(), None, lambda m: helper.calls),
    "ELSEWHERE.calls": (lambda m, x: setattr(ELSEWHERE, "calls", ELSEWHERE.calls + 1), None, lambda m: ELSEWHERE.calls),
}


@pytest.mark.parametrize("name", STATEFUL)
def test_modules_that_change_state_are_left_and_restored(name):
    change, make, read = STATEFUL[name]
    module = changing(change, **({} if make is None else {name: make()}))
    read = read or (lambda m: getattr(m, name, None))
    cls, attributes, before = type(module), dict(vars(module)), str(read(module))
    report = et.convert(module)
    named = name.removeprefix("ELSEWHERE.")
    assert [one.reason for one in report.left] == [f"its forward changes its state ({named})"], report
    assert type(module) is cls and str(read(module)) == before
    assert all(vars(module)[key] is value for key, value in attributes.items())


def test_state_in_a_closure():
    calls, count = [], 0

    def change(m, x):
        nonlocal count
        count += 1
        calls.append(1)

    report = et.convert(changing(change))
    assert report.left[0].reason in [f"its forward changes its state ({name})" for name in ("calls", "count")]
    assert not calls and count == 0


def test_attributes_of_any_depth():
    deep = []
    for _ in range(5000):
        deep = [deep]
    module = changing(lambda m, x: m.shapes.append(x.shape), shapes=deep)
    assert et.convert(module).left[0].reason == "its forward changes its state (shapes)"
    assert len(module.shapes) == 1


def test_state_that_does_not_change_is_allowed():
    def use(m, x):
        assert m.shapes and m.options["a"] and m.offset.numel() and random.random() >= 0
        assert CACHE.setdefault(x.dim(), [x.dim()])  # a cache that fills is no state

    before = random.getstate()
    assert et.convert(changing(use, shapes=[1], options={"a": [2]}, offset=torch.zeros(3))).replaced
    assert random.getstate() == before


# --- modules without values


def test_meta_device_is_tried_on_the_cpu():
    with torch.device("meta"):
        model = nn.Sequential(nn.LayerNorm(C), ScaleShift())
    assert len(et.convert(model).replaced) == 2
    assert model(torch.empty(3, C, device="meta")).shape == (3, C)
    look_alikes.randomised(model.to_empty(device="cpu"))
    assert model(torch.randn(3, C)).shape == (3, C)


def test_under_fake_tensor_mode():
    real = ScaleShift()
    with FakeTensorMode():
        model = nn.Sequential(nn.LayerNorm(C), ScaleShift(), look_alikes.LayerScale())
        report = et.convert(model)
        assert [one.name for one in report.replaced] == ["0", "1"], report
        assert report.left[0].reason.startswith("on random input it differs by ")
        assert model(torch.randn(3, C)).shape == (3, C)
        assert et.convert(real).replaced
    assert real(torch.randn(3, C)).shape == (3, C)


def with_tensor():
    """A module with a tensor that is neither parameter nor buffer, so that a trial cannot give it values."""
    return made(lambda m, x: look_alikes.rms_xhat(x, m.minimum) * m.weight, minimum=torch.tensor(1e-6))


def test_attributes_without_values_are_reported():
    with torch.device("meta"):
        meta = with_tensor()
    with FakeTensorMode():
        fake = with_tensor()
        inside = et.convert(with_tensor())
    why = "its attribute minimum is a tensor without values (on the meta device, or fake): convert it once it has them"
    for report in (et.convert(meta), et.convert(fake), inside):
        assert [one.reason for one in report.left] == [why]
    assert et.convert(with_tensor()).replaced
