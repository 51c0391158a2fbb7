"""The state that a forward can change besides its module's own tensors: collected, compared and restored.

It covers what can be reached from the module's attributes, its classes, and the closures, defaults, attributes and
globals of their functions, including globals of other modules that they name. It does not cover files, standard output
and what extension types hide.
"""

import argparse
import collections
import contextlib
import functools
import queue
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

MOST_RECORDS = 2000  # the walk stops after this many
MOST_ELEMENTS = 2**18  # tensors up to this total are compared by value, the others by version
STRANGERS = frozenset({"torch", "numpy", *sys.stdlib_module_names})  # packages whose objects are not walked
# Types of these packages that are walked, because they hold what others put in.
HOLDERS = (types.SimpleNamespace, argparse.Namespace, collections.UserList, collections.UserDict, queue.Queue)


@dataclass
class Record:
    """Something mutable: its label, how to read and write it, its saved value, and its value with filled caches."""

    label: str  # if it is empty or ends in a point, the changed key is appended
    read: Callable[[], Any]
    write: Callable[[Any], object]
    saved: Any
    known: Any

    def changed(self) -> str | None:
        now = self.read()
        if _same(self.known, now):
            return None
        if isinstance(now, dict) and (not self.label or self.label.endswith(".")):
            keys = [*self.known, *now]
            return self.label + str(next(key for key in keys if not _same_entry(key, self.known, now)))
        return self.label


class Memory:
    """The state that could be reached from a module when this was created."""

    def __init__(self) -> None:
        self._records: list[Record] = []
        self._pending: collections.deque[tuple[str, Any]] = collections.deque()
        self._seen: dict[int, Any] = {}  # keeps objects alive, so that their ids stay unique
        self._elements = 0

    @classmethod
    def of_shared(cls, module: nn.Module) -> "Memory":
        """The state that a probe shares with the module that it was made from."""
        memory = cls()
        own = vars(nn.Module()).keys()
        for name, value in vars(module).items():
            if name not in own:
                memory._walk(name, value)
            elif isinstance(value, dict | set):
                memory._walk_container(name, value, deep=False)
        for base in type(module).__mro__:
            memory._walk(base.__name__, base)
        return memory._complete()

    @classmethod
    def of_tensor(cls, label: str, tensor: torch.Tensor) -> "Memory":
        memory = cls()
        memory._walk(label, tensor)
        return memory._complete()

    @classmethod
    def of_probe(cls, probe: nn.Module) -> "Memory":
        """The state that a probe has to itself: its attributes and its tensors."""
        memory = cls()
        for own in (vars(probe), probe._parameters, probe._buffers):
            memory._walk_container("", own, deep=False)
        for name, tensor in (*probe._parameters.items(), *probe._buffers.items()):
            memory._walk(name, tensor)
        return memory._complete()

    def changed(self) -> str | None:
        """Returns the name of something that has changed, or None."""
        return next((name for name in (record.changed() for record in self._records) if name is not None), None)

    def restore(self) -> None:
        for record in self._records:
            if not _same(record.saved, record.read()):
                record.write(record.saved)

    def accept_additions(self) -> None:
        """Takes it that dicts have gained entries, as caches do. Other changes, and those of the entries, still count."""
        for record in list(self._records):
            now = record.read()
            if isinstance(now, dict) and record.label.strip(".") == record.label != "":
                added = [value for key, value in now.items() if key not in record.known]
                if all(_same_entry(key, record.known, now) for key in record.known):
                    record.known = now
                    self._walk_all(record.label, added)
        self._complete()

    def _record(self, label: str, read: Callable[[], Any], write: Callable[[Any], object]) -> None:
        saved = read()
        self._records.append(Record(label, read, write, saved, saved))

    def _record_value(self, label: str, read: Callable[[], Any], write: Callable[[Any], object]) -> None:
        """Records a place that holds any value. The value is compared by identity, and walked."""
        self._record(label, lambda: [read()], lambda saved: write(saved[0]))
        self._walk(label, read())

    def _walk(self, label: str, value: Any) -> None:
        if id(value) not in self._seen:
            self._seen[id(value)] = value
            self._pending.append((label, value))

    def _complete(self) -> "Memory":
        while self._pending and len(self._records) < MOST_RECORDS:
            self._visit(*self._pending.popleft())
        return self

    def _visit(self, label: str, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            self._walk_tensor(label, value)
        elif isinstance(value, torch.Generator):
            self._record(label, value.get_state, value.set_state)
        elif isinstance(value, list | dict | set | collections.deque | bytearray):
            self._walk_container(label, value)
        elif isinstance(value, tuple | frozenset):
            self._walk_all(label, value)
        elif isinstance(value, staticmethod | classmethod | types.MethodType):
            self._walk(label, value.__func__)
            self._walk(label, getattr(value, "__self__", None))
        elif isinstance(value, property):
            self._walk_all(label, (value.fget, value.fset))
        elif isinstance(value, functools.partial):
            self._walk_all(label, (value.func, value.args, value.keywords))
        elif isinstance(value, types.FunctionType):
            self._walk_function(value)
        elif isinstance(value, type):
            self._walk_class(value)
        elif not isinstance(value, types.ModuleType) and (isinstance(value, HOLDERS) or not _is_strange(type(value))):
            self._walk_object(label, value)

    def _walk_all(self, label: str, values: Any) -> None:
        for value in values:
            self._walk(label, value)

    def _walk_container(self, label: str, value: Any, deep: bool = True) -> None:
        kind: Any = next(kind for kind in (dict, set, bytearray, list) if isinstance(value, kind) or kind is list)

        def write(saved: Any) -> None:
            value.clear()
            (value.extend if kind in (list, bytearray) else value.update)(saved)

        # A subclass of dict may make what its own methods return.
        self._record(label, lambda: dict(dict.items(value)) if kind is dict else kind(value), write)
        if deep and kind is not bytearray:
            self._walk_all(label, list(dict.values(value) if kind is dict else value))

    def _walk_object(self, label: str, value: Any) -> None:
        if hasattr(value, "__dict__"):
            self._walk_container(label, vars(value))
        for slot in _slots(type(value)):
            read = functools.partial(_slot, value, slot)
            self._record(label, read, functools.partial(_set_slot, value, slot))
            self._walk_all(label, read())

    def _walk_tensor(self, label: str, value: torch.Tensor) -> None:
        tensor = value.detach()
        if tensor.layout != torch.strided or tensor.is_meta or tensor.is_quantized or type(tensor) is not torch.Tensor:
            return

        if self._elements + tensor.numel() <= MOST_ELEMENTS:
            self._elements += tensor.numel()
            self._record(label, tensor.clone, tensor.copy_)
        elif not tensor.is_inference():
            kept = tensor.clone()
            self._record(label, lambda: value._version, lambda _: tensor.copy_(kept))

    def _walk_function(self, function: types.FunctionType) -> None:
        if _is_strange(function):
            return
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        for name, cell in cells:
            place = (cell, "cell_contents")
            if name != "__class__":
                with contextlib.suppress(ValueError):  # the cell may be empty
                    self._record_value(name, functools.partial(getattr, *place), functools.partial(setattr, *place))
        names = dict.fromkeys(_names(function.__code__))
        self._walk_names(function.__globals__, names)
        self._walk_all(function.__name__, (function.__defaults__, function.__kwdefaults__))
        self._walk_container(f"{function.__name__}.", vars(function))

    def _walk_names(self, space: dict[str, Any], names: Iterable[str]) -> None:
        """Records the globals with these names, and the globals of modules that they name."""
        spaces = {id(space): space}
        pending = [space]
        while pending:
            space = pending.pop()
            for name in names:
                value = space.get(name)
                if not isinstance(value, types.ModuleType):
                    if name in space:
                        self._record_value(
                            name, functools.partial(space.get, name), functools.partial(space.__setitem__, name)
                        )
                elif id(vars(value)) not in spaces and value.__name__.split(".")[0] not in STRANGERS:
                    spaces[id(vars(value))] = vars(value)
                    pending.append(vars(value))

    def _walk_class(self, cls: type) -> None:
        if _is_strange(cls):
            return

        def write(saved: dict[str, Any]) -> None:
            for name in set(vars(cls)) - set(saved):
                delattr(cls, name)
            for name, value in saved.items():
                if vars(cls).get(name) is not value:
                    setattr(cls, name, value)

        self._record(f"{cls.__name__}.", lambda: dict(vars(cls)), write)
        for name, value in list(vars(cls).items()):
            self._walk(f"{cls.__name__}.{name}", value)


def _is_strange(value: Any) -> bool:
    return (getattr(value, "__module__", None) or "builtins").split(".")[0] in STRANGERS


def _slots(cls: type) -> Iterator[types.MemberDescriptorType]:
    """Yields the descriptors of a class's __slots__."""
    for base in cls.__mro__:
        if not _is_strange(base):
            yield from (value for value in vars(base).values() if isinstance(value, types.MemberDescriptorType))


def _slot(holder: object, slot: types.MemberDescriptorType) -> list[Any]:
    """Returns the content of a slot in a list, which is empty if the slot is."""
    try:
        return [slot.__get__(holder)]
    except AttributeError:
        return []


def _set_slot(holder: object, slot: types.MemberDescriptorType, saved: list[Any]) -> None:
    if saved:
        slot.__set__(holder, saved[0])
    elif _slot(holder, slot):
        slot.__delete__(holder)


def _names(code: types.CodeType) -> Iterator[str]:
    """Yields the names of globals and attributes in a function and in the functions inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _same(old: Any, new: Any) -> bool:
    if isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor):
        alike = old.shape == new.shape and old.dtype == new.dtype
        return alike and bool(torch.equal(*(t.contiguous().reshape(-1).view(torch.uint8) for t in (old, new))))
    if isinstance(old, dict) and isinstance(new, dict):
        return list(old) == list(new) and all(_same_entry(key, old, new) for key in old)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(_same_value(*pair) for pair in zip(old, new, strict=True))
    if isinstance(old, set) and isinstance(new, set):
        return {id(one) for one in old} == {id(one) for one in new}
    return bool(old == new)


def _same_entry(key: Any, old: dict[Any, Any], new: dict[Any, Any]) -> bool:
    return key in old and key in new and _same_value(old[key], new[key])


def _same_value(old: Any, new: Any) -> bool:
    atoms = int | float | str | bytes | torch.Size | torch.dtype | torch.device | types.MethodType
    return old is new or (type(old) is type(new) and isinstance(old, atoms) and old == new)
