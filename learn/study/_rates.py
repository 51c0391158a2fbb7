"""Networks trained at several learning rates: which rates train, which one is fastest, and how two networks compare.

A table has a row for each task or depth, by the name that the report gives it, and in each row the networks by name.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ._sections import Json, ahead, spread

Table = Mapping[str, Mapping[str, Mapping[str, Any]]]


def numbers(key: str, seeds: Sequence[Json]) -> list[float]:
    """The seeds' values of a key; a run that diverged is above everything."""
    return [math.inf if one[key] is None else one[key] for one in seeds]


def lowest(key: str, cases: Mapping[Any, Sequence[Json]]) -> Any:
    """The case with the smallest median among those in which no seed diverged."""

    def median(case: Any) -> float:
        values = numbers(key, cases[case])
        return math.inf if math.inf in values else spread(values).median

    return min(cases, key=median)


def at_rates(of: Mapping[float, Sequence[Json]], key: str, limit: float) -> dict[str, Any]:
    """The rates that train, and the results at the fastest rate, the one with the smallest mean loss over all steps.

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
    """The rows in which the first network's value is below the second's in every seed."""
    return [name for name, of in table.items() if ahead(of[second][key], of[first][key])]


def larger_rate(table: Table, first: str, second: str) -> list[str]:
    """The rows in which the first network's largest rate that trains is above the second's."""
    return [
        name
        for name, of in table.items()
        if max(of[first]["trains at"], default=0) > max(of[second]["trains at"], default=0)
    ]
