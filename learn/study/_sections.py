"""What a section is, and the list of them. Imports none before it is asked for."""

import importlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = Any  # what a JSON file holds
Settings = Mapping[str, Json]

# In the order of the report. Each has modules NAME and NAME_page beside this file.
NAMES = ("depth", "encdec", "recurrent", "batch", "shift", "parts", "geometry", "precision")

SMOOTH = 10  # a target is reached by the mean of so many losses
HOLDS = "holds"
CONDITIONS = "holds under these conditions"
FAILS = "does not hold here"


@dataclass(frozen=True)
class Claim:
    """What a text says, in our words, and where. The verdict on it is computed: see `Section.judge`."""

    name: str
    text: str
    source: str


@dataclass(frozen=True)
class Run:
    """One settings and seed: what is computed whole, or again."""

    settings: Settings
    seed: int


@dataclass(frozen=True)
class Section:
    """One section of the study.

    Attributes:
        name, title: what it is called on the command line, and in the report.
        claims: what is to be judged.
        runs: all runs, in the order of the JSON; fewer and shorter ones for the smoke run.
        run: one run: numbers, strings, lists and dictionaries of them, the same for the same run on one machine.
        summary: from the list of {"settings", "seed", "result"} to the figures that the report uses.
        judge: from the summary to each claim's verdict: HOLDS, CONDITIONS or FAILS.
        figures: from pyplot and the whole result to matplotlib's figures by name.
        write: writes the text between claims and verdicts, and says why each verdict is what it is.
    """

    name: str
    title: str
    claims: Sequence[Claim]
    runs: Callable[[bool], list[Run]]
    run: Callable[[Settings, int], Json]
    summary: Callable[[list[dict[str, Json]]], dict[str, Json]]
    judge: Callable[[dict[str, Json]], dict[str, str]]
    figures: Callable[[Any, Json], dict[str, Any]]
    write: Callable[[Any], Mapping[str, str]]


def load(name: str) -> Section:
    section: Section = importlib.import_module(f"{__package__}.{name}_page").SECTION
    return section


def grid(**choices: Sequence[Json]) -> list[dict[str, Json]]:
    """Every combination of the choices: the last one changes fastest."""
    found: list[dict[str, Json]] = [{}]
    for name, values in choices.items():
        found = [{**one, name: value} for one in found for value in values]
    return found


def seeded(settings: Sequence[Settings], seeds: Sequence[int]) -> list[Run]:
    return [Run(one, seed) for one in settings for seed in seeds]


def ahead(a: Sequence[float], b: Sequence[float]) -> bool:
    """Whether a is above b in every seed, compared seed by seed."""
    return all(one > other for one, other in zip(a, b, strict=True))


def number(value: float, digits: int = 6) -> float | None:
    """Rounded to so many digits; none if it is not finite."""
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def rounded(values: Iterable[float]) -> list[float | None]:
    """For curves and tables, five digits are enough."""
    return [number(value, 5) for value in values]


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def curve(losses: Sequence[float], width: int) -> list[float | None]:
    """The mean of each `width` losses."""
    return rounded(mean(losses[at : at + width]) for at in range(0, len(losses), width))


def reached(losses: Sequence[float], target: float) -> int | None:
    """The first step at which the mean of the last few losses is at most the target."""
    steps = range(SMOOTH, len(losses) + 1)
    return next((step for step in steps if mean(losses[step - SMOOTH : step]) <= target), None)


def spread(values: Sequence[float]) -> dict[str, Json]:
    """Median, smallest and largest of what the seeds gave."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    return {"median": median, "min": ordered[0], "max": ordered[-1], "seeds": len(ordered)}


def spread_if(values: Sequence[float | None]) -> dict[str, Json] | None:
    """The same; nothing if a seed has no number."""
    found = [value for value in values if value is not None]
    return spread(found) if len(found) == len(values) else None
