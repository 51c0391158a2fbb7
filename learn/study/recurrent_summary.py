"""What all runs of the section `recurrent` say together, and the verdicts."""

import math
from collections.abc import Callable
from typing import Any

from . import recurrent
from ._sections import CONDITIONS, FAILS, HOLDS, ahead, spread, spread_if

TASKS = {
    "rows": "digits by row",
    "pixels": "digits by pixel",
    "marked": "the marked symbol",
    "most": "the most frequent symbol",
}
CELLS = {"lstm": "LSTM", "gru": "GRU"}
NORMS = {"none": "no norm", "scaled": "no norm, larger weights", "layer": "layer norm"}
CLOSE = 0.05  # an output that moves by less, relatively, stays; accuracy that falls by less is kept
TRAINS = 0.5  # of the loss of guessing: a rate trains whose last losses are below it in every seed
PRODUCT = "product, other numbers of rows"
ALIKE = (  # products of one shape
    "norm, other numbers of rows",
    "packed, other sequences of the same lengths",
    "padded, other padding",
    "padded, other sequences",
)
Runs = list[dict[str, Any]]


def guess(task: str) -> float:
    """The loss of one who knows nothing."""
    return math.log(recurrent.DIGITS if task in recurrent.COLUMNS else recurrent.SYMBOLS)


def at_rates(task: str, runs: Runs) -> dict[str, Any]:
    """Of one task, cell and norm: its best rate and what that gives, and the rates that train."""
    of: dict[float, Runs] = {}
    for run in runs:
        of.setdefault(run["settings"]["rate"], []).append(run["result"])
    limit = TRAINS * guess(task)
    trains = [
        rate
        for rate, found in of.items()
        if all(one["last loss"] is not None and one["last loss"] <= limit for one in found)
    ]
    whole = {rate: spread([one["mean loss"] for one in found]) for rate, found in of.items() if finite(found)}
    best = min(whole, key=lambda rate: whole[rate]["median"])
    chosen = of[best]
    result = {
        "rates": [
            {"rate": rate, "last loss": spread_if([one["last loss"] for one in found])} for rate, found in of.items()
        ],
        "trains at": trains,
        "largest": max(trains, default=None),
        "best": best,
        "mean losses": [one["mean loss"] for one in chosen],
        "mean loss": whole[best],
        "accuracy": spread([one["accuracy"] for one in chosen]),
    }
    if "longer" in chosen[0]:
        growth = [one["growth"] for one in chosen]
        result |= {
            "longers": [one["longer"] for one in chosen],
            "longer": spread([one["longer"] for one in chosen]),
            "drop": spread([one["accuracy"] - one["longer"] for one in chosen]),
            "growth": spread(growth),
            "away from one": [abs(math.log(one)) for one in growth],
        }
    return result


def finite(found: Runs) -> bool:
    return all(one["mean loss"] is not None for one in found)


def dynamics_of(runs: Runs) -> dict[str, Any]:
    """By cell, norm and scale: how far the output moves, and the first step's gradient over the last's."""
    found: dict[str, Any] = {}
    for cell in CELLS:
        for norm in ("none", "layer"):
            for scale in recurrent.SCALES:
                wanted = {"part": "dynamics", "cell": cell, "norm": norm, "scale": scale}
                of = [run["result"] for run in runs if run["settings"] == wanted]
                over = [one["gradient"][0] / one["gradient"][-1] for one in of]
                found.setdefault(cell, {}).setdefault(norm, {})[str(scale)] = {
                    "scale": scale,
                    "moved": spread([one["moved"] for one in of]),
                    "first over last": spread(over),
                    "decades": [abs(math.log10(one)) for one in over],
                }
    return found


def company_of(runs: Runs) -> dict[str, Any]:
    of = [run for run in runs if run["settings"]["part"] == "company"]
    return {
        cell: {
            norm: {
                kind: max(
                    run["result"][kind]
                    for run in of
                    if (run["settings"]["cell"], run["settings"]["norm"]) == (cell, norm)
                )
                for kind in of[0]["result"]
            }
            for norm in ("none", "layer")
        }
        for cell in CELLS
    }


def compared(train: dict[str, Any], wins: Callable[[dict[str, Any]], bool], tasks: list[str]) -> list[str]:
    """Where it is so, in words."""
    return [f"{CELLS[cell]} on {TASKS[task]}" for task in tasks for cell in CELLS if wins(train[task][cell])]


def lower(key: str, first: str, second: str) -> Callable[[dict[str, Any]], bool]:
    """Whether the first norm's value is below the second's in every seed."""
    return lambda of: ahead(of[second][key], of[first][key])


def larger_rate(first: str, second: str) -> Callable[[dict[str, Any]], bool]:
    return lambda of: (of[first]["largest"] or 0) > (of[second]["largest"] or 0)


def comparisons(train: dict[str, Any], tasks: list[str]) -> dict[str, list[str]]:
    several = [task for task in tasks if task != "pixels"]  # whose rates are a few
    made = [task for task in tasks if task not in recurrent.COLUMNS]
    found = {"all": compared(train, lambda _: True, tasks), "made": compared(train, lambda _: True, made)}
    for first, second in (("layer", "none"), ("none", "layer"), ("layer", "scaled"), ("scaled", "layer")):
        found[f"{first} faster than {second}"] = compared(train, lower("mean losses", first, second), tasks)
        found[f"{first} trains at larger rates than {second}"] = compared(train, larger_rate(first, second), several)
        found[f"{first} more accurate on longer than {second}"] = compared(train, lower("longers", second, first), made)
    return found | {
        "all with several rates": compared(train, lambda _: True, several),
        "trains at the largest rate": compared(
            train, lambda of: of["layer"]["largest"] == of["layer"]["rates"][-1]["rate"], several
        ),
        "state nearer to itself": compared(train, lower("away from one", "layer", "none"), made),
        "state nearer to itself without": compared(train, lower("away from one", "none", "layer"), made),
        "layer keeps its accuracy": compared(train, lambda of: of["layer"]["drop"]["median"] <= CLOSE, made),
        "none keeps its accuracy": compared(train, lambda of: of["none"]["drop"]["median"] <= CLOSE, made),
    }


def summary(runs: Runs) -> dict[str, Any]:
    training = [run for run in runs if run["settings"]["part"] == "train"]
    tasks = list(dict.fromkeys(run["settings"]["task"] for run in training))

    def of(task: str, cell: str, norm: str) -> Runs:
        wanted = task, cell, norm
        return [
            run
            for run in training
            if (run["settings"]["task"], run["settings"]["cell"], run["settings"]["norm"]) == wanted
        ]

    train = {
        task: {cell: {norm: at_rates(task, of(task, cell, norm)) for norm in NORMS} for cell in CELLS} for task in tasks
    }
    movement = dynamics_of(runs)
    return {
        "steps": training[0]["settings"]["steps"],
        "tasks": tasks,
        "width": recurrent.WIDTH,
        "symbols": recurrent.SYMBOLS,
        "sizes": recurrent.SIZE,
        "lengths": list(recurrent.LENGTHS),
        "longer": list(recurrent.LONGER),
        "larger": recurrent.LARGER,
        "close": CLOSE,
        "trains": TRAINS,
        "train": train,
        "compared": comparisons(train, tasks),
        "dynamics": movement,
        **gradients_compared(movement),
        "company": company_of(runs),
    }


def gradients_compared(movement: dict[str, Any]) -> dict[str, Any]:
    default, larger = str(1.0), str(recurrent.LARGER)
    return {
        "most moved": {
            norm: max(movement[cell][norm][scale]["moved"]["max"] for cell in CELLS for scale in movement[cell][norm])
            for norm in ("none", "layer")
        },
        **{
            f"{norm} stays at": [
                scale
                for scale in recurrent.SCALES
                if scale != 1 and all(movement[cell][norm][str(scale)]["moved"]["max"] <= CLOSE for cell in CELLS)
            ]
            for norm in ("none", "layer")
        },
        "gradient nearer to itself": [
            name
            for cell, name in CELLS.items()
            if ahead(movement[cell]["none"][default]["decades"], movement[cell]["layer"][default]["decades"])
        ],
        "gradient of larger weights nearer than layer's": [
            name
            for cell, name in CELLS.items()
            if ahead(movement[cell]["layer"][default]["decades"], movement[cell]["none"][larger]["decades"])
        ],
    }


def judge(found: dict[str, Any]) -> dict[str, str]:
    lists, bits = found["compared"], [found["company"][cell]["layer"] for cell in CELLS]
    invariant = len(found["layer stays at"]) == len(recurrent.SCALES) - 1
    stable = [
        len(found["gradient nearer to itself"]) == len(CELLS),
        lists["state nearer to itself"] == lists["made"],
    ]
    faster = lists["layer faster than none"], lists["layer faster than scaled"]
    rates = lists["layer trains at larger rates than none"]
    kept, behind = lists["layer keeps its accuracy"], lists["none more accurate on longer than layer"]
    every = [kind for kind in bits[0] if kind != PRODUCT]
    return {
        "stable": HOLDS
        if invariant and all(stable)
        else CONDITIONS
        if found["layer stays at"] and any(stable)
        else FAILS,
        "faster": HOLDS if faster == (lists["all"], lists["all"]) else CONDITIONS if faster[0] else FAILS,
        "rates": HOLDS if rates == lists["all with several rates"] else CONDITIONS if rates else FAILS,
        "longer": FAILS if not kept else HOLDS if kept == lists["made"] and not behind else CONDITIONS,
        "company": HOLDS
        if all(one[kind] == 0 for one in bits for kind in every)
        else CONDITIONS
        if all(one[kind] == 0 for one in bits for kind in ALIKE)
        else FAILS,
    }
