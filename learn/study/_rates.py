"""Compares networks trained at several learning rates: which rates train, and which rate is fastest.

A table has a row for each task or depth. A row maps the names of the networks to their results.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ._sections import Json, ahead, spread

Table = Mapping[str, Mapping[str, Mapping[str, Any]]]


def numbers(key: str, seeds: Sequence[Json]) -> list[float]:
    """The seeds' values of a key; infinity for a run that diverged."""
    return [math.inf if one[key] is None else one[key] for one in seeds]


def lowest(key: str, cases: Mapping[Any, Sequence[Json]]) -> Any:
    """The case with the smallest median among those in which no seed diverged."""

    def median(case: Any) -> float:
        values = numbers(key, cases[case])
        return math.inf if math.inf in values else spread(values).median

    return min(cases, key=median)


def at_rates(of: Mapping[float, Sequence[Json]], key: str, limit: float) -> dict[str, Any]:
    """The rates that train, and the results at the fastest rate, which has the smallest mean loss over all steps.

    A rate trains if the loss under the key is at most the limit in every seed.
    """
    fastest = lowest("mean loss", of)
    return {
        "trains at": [rate for rate, seeds in of.items() if max(numbers(key, seeds)) <= limit],
        "fastest": fastest,
        "mean loss": numbers("mean loss", of[fastest]),
        "seeds": of[fastest],
    }


def lower(table: Table, key: str, first: str, second: str) -> list[str]:
    """The rows in which the first network's value is smaller than the second's in every seed."""
    return [name for name, of in table.items() if ahead(of[second][key], of[first][key])]


def larger_rate(table: Table, first: str, second: str) -> list[str]:
    """The rows in which the first network's largest training rate exceeds the second's."""
    return [
        name
        for name, of in table.items()
        if max(of[first]["trains at"], default=0) > max(of[second]["trains at"], default=0)
    ]
