"""What a section of the study consists of, the list of sections, and the functions that all sections share.

Sections import PyTorch, so they are imported only when needed.
"""

import importlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ._claims import Claim

Json = Any  # what a JSON file holds
Settings = Mapping[str, Json]
Runs = list[dict[str, Json]]  # each {"settings", "seed", "result"}

# In the order of the report. Each name stands for the modules NAME and NAME_page in this folder.
NAMES = ("depth", "encdec", "recurrent", "batch", "shift", "bits")

SMOOTH = 10  # the number of losses whose mean has to reach a target


@dataclass(frozen=True)
class Run:
    """One choice of settings and one seed: the unit of work that a resumed study repeats or reuses."""

    settings: Settings
    seed: int


@dataclass(frozen=True)
class Text:
    """A section's paragraphs, tables and plots in the report, and the reason for the verdict on each claim."""

    body: Sequence[str]
    because: Mapping[str, str]


@dataclass(frozen=True)
class Section:
    """One section of the study.

    Attributes:
        name, title: the section's name on the command line and its title in the report.
        claims: the claims to judge.
        runs: returns all runs in the order of the JSON; for a smoke run (True), fewer and shorter ones.
        run: performs one run. The result is plain JSON, and the same on every repetition on one machine.
        summary: computes the figures of the report from all runs.
        judge: computes each claim's verdict, HOLDS, CONDITIONS or FAILS, from the summary.
        figures: draws matplotlib's figures from pyplot, the runs and the summary; returns them by name.
        write: writes the text from the summary and the verdicts.
    """

    name: str
    title: str
    claims: Sequence[Claim]
    runs: Callable[[bool], list[Run]]
    run: Callable[[Settings, int], Json]
    summary: Callable[[Runs], dict[str, Any]]
    judge: Callable[[dict[str, Any]], dict[str, str]]
    figures: Callable[[Any, Runs, dict[str, Any]], dict[str, Any]]
    write: Callable[[dict[str, Any], dict[str, str]], Text]


def load(name: str) -> Section:
    section: Section = importlib.import_module(f"{__package__}.{name}_page").SECTION
    return section


def grid(**choices: Sequence[Json]) -> list[dict[str, Json]]:
    """Every combination of the choices. The last choice changes fastest."""
    found: list[dict[str, Json]] = [{}]
    for name, values in choices.items():
        found = [{**one, name: value} for one in found for value in values]
    return found


def seeded(settings: Sequence[Settings], smoke: bool) -> list[Run]:
    return [Run(one, seed) for one in settings for seed in range(2 if smoke else 5)]


def results(runs: Runs, **settings: Json) -> list[Json]:
    """The results of the runs that have these settings, seed by seed."""
    return [run["result"] for run in runs if settings.items() <= run["settings"].items()]


def choices(runs: Runs, name: str) -> list[Json]:
    """The values of a setting in the order of the runs."""
    return list(dict.fromkeys(run["settings"][name] for run in runs if name in run["settings"]))


def ahead(a: Sequence[float], b: Sequence[float]) -> bool:
    """True if a is above b in every seed."""
    return all(one > other for one, other in zip(a, b, strict=True))


def number(value: float, digits: int = 6) -> float | None:
    """The value rounded to `digits` significant digits; None if it is not finite."""
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def rounded(values: Iterable[float]) -> list[float | None]:
    """The values rounded to five digits, which suffice for curves and tables."""
    return [number(value, 5) for value in values]


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def curve(losses: Sequence[float], width: int) -> list[float | None]:
    """The mean of each group of `width` losses."""
    return rounded(mean(losses[at : at + width]) for at in range(0, len(losses), width))


def reached(losses: Sequence[float], target: float) -> int | None:
    """The first step at which the mean of the last SMOOTH losses is at most the target; None if there is none."""
    steps = range(SMOOTH, len(losses) + 1)
    return next((step for step in steps if mean(losses[step - SMOOTH : step]) <= target), None)


@dataclass(frozen=True)
class Spread:
    """Median, smallest and largest value over the seeds."""

    median: float
    least: float
    most: float


def spread(values: Sequence[float]) -> Spread:
    ordered = sorted(values)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    return Spread(median, ordered[0], ordered[-1])


def spread_if(values: Sequence[float | None]) -> Spread | None:
    """The spread of the values; None if a seed has no number."""
    found = [value for value in values if value is not None]
    return spread(found) if found and len(found) == len(values) else None
