"""What the converters report, and its tables."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Replaced(NamedTuple):
    """A norm that was replaced: its name in the model, what it was, and what it is."""

    name: str
    old: str
    new: str


class Left(NamedTuple):
    """What is or looks like a norm and was not replaced: its name in the model, what it is, and the reason."""

    name: str
    old: str
    reason: str


def report(function: str, replaced: Sequence[Replaced], left: Sequence[Left]) -> list[str]:
    """The lines of a conversion."""
    lines = [f"{function}: {len(replaced)} replaced, {len(left)} left"]
    lines += table("replaced", [(one.name, f"{one.old} -> {one.new}") for one in replaced])
    return lines + table("left", [(one.name, f"{one.old}: {one.reason}") for one in left])


def table(heading: str, entries: list[tuple[str, str]]) -> list[str]:
    rows = grouped(entries)
    width = max((len(name) for name, _ in rows), default=0)
    return [f"  {heading:<8}  {name:<{width}}  {text}" for name, text in rows]


def grouped(lines: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Merges lines with the same text whose names differ only in numbers, and writes * for these numbers."""
    groups: dict[tuple[str, str], list[list[str]]] = {}
    for name, text in lines:
        parts = re.split(r"([./_])", name)
        pattern = "".join("*" if part.isdecimal() else part for part in parts)
        groups.setdefault((pattern, text), []).append(parts)
    shown = []
    for (_, text), names in groups.items():
        common = "".join(same[0] if len(set(same)) == 1 else "*" for same in zip(*names, strict=True))
        shown.append((f"{common or '(the model)'}{f' ({len(names)})' if len(names) > 1 else ''}", text))
    return shown
