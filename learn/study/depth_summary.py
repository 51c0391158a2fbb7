"""The section `depth`: the numbers that its runs give together, and what they say of the claims."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from . import depth, gpt
from ._sections import CONDITIONS, FAILS, HOLDS, ahead, spread, spread_if

# A run trains if its loss is so far on the way from the text's unigram entropy to its bigram entropy. A loss that is so
# near to pre-norm's, in nats, is as good. Slopes of the logarithms that count as none, and as that of one over the root.
WAY, CLOSE, FLAT, ROOT = 0.1, 0.05, (-0.25, 0.25), (-0.75, -0.25)
Of = Mapping[tuple[str, int, float], list[dict[str, Any]]]


def numbers(values: Sequence[float | None]) -> list[float]:
    """The values, if all are there; otherwise none."""
    found = [value for value in values if value is not None]
    return found if len(found) == len(values) else []


def slope(depths: Sequence[int], values: Sequence[float]) -> float:
    """Of the line through the logarithms, by least squares."""
    x, y = [math.log(one) for one in depths], [math.log(one) for one in values]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    across = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return across / sum((a - mean_x) ** 2 for a in x)


def beginnings(runs: list[dict[str, Any]], depths: list[int]) -> dict[str, Any]:
    """For each kind, at initialisation: gradients of the first and last layer, and the stream after the last, by depth."""
    found: dict[str, Any] = {}
    for kind in dict.fromkeys(run["settings"]["norm"] for run in runs):
        of = {
            at: [run["result"] for run in runs if (run["settings"]["norm"], run["settings"]["depth"]) == (kind, at)]
            for at in depths
        }
        last = {at: [one["gradient"][-1] for one in of[at]] for at in depths}
        first = {at: [one["gradient"][0] for one in of[at]] for at in depths}
        seeds = [list(one) for one in zip(*last.values(), strict=True)]
        found[kind] = {
            "last": {str(at): spread_if(last[at]) for at in depths},
            "first": {str(at): spread_if(first[at]) for at in depths},
            "last over first": {
                str(at): spread([a / b for a, b in zip(last[at], first[at], strict=True)])
                if numbers(last[at]) and numbers(first[at])
                else None
                for at in depths
            },
            "slope": spread([slope(depths, one) for one in seeds]) if all(map(numbers, seeds)) else None,
            "stream": {str(at): spread_if([one["stream"][-1] for one in of[at]]) for at in depths},
        }
    return found


def cells(of: Of, kind: str, at: int, rates: list[float], criterion: float) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for rate in rates:
        results = of[kind, at, rate]
        losses = [one["loss"][-1] for one in results]
        found[str(rate)] = {
            "loss": spread_if(losses),
            "ended early": sum(loss is None for loss in losses),
            "train": sum(loss is not None and loss < criterion for loss in losses),
        }
    return found


def best_of(table: dict[str, Any], rates: list[float]) -> dict[str, Any] | None:
    """The rate with the smallest median loss among those at which no seed ended early."""
    whole = [rate for rate in rates if table[str(rate)]["loss"]]
    if not whole:
        return None
    rate = min(whole, key=lambda one: table[str(one)]["loss"]["median"])
    return {"rate": rate, "loss": table[str(rate)]["loss"]}


def against_pre(of: Of, best: dict[str, Any], train: dict[str, Any], depths: list[int]) -> dict[str, Any]:
    """Each kind's loss less pre-norm's with the same seed, each at its own best rate. As good is what trains, too."""
    found: dict[str, Any] = {}
    for kind in best:
        apart, better, worse = dict[str, Any](), list[int](), list[int]()
        for at in depths:
            ours, theirs = best[kind][str(at)], best["pre"][str(at)]
            if not (ours and theirs):
                apart[str(at)] = None
                continue
            a = [one["loss"][-1] for one in of[kind, at, ours["rate"]]]
            b = [one["loss"][-1] for one in of["pre", at, theirs["rate"]]]
            apart[str(at)] = spread([one - other for one, other in zip(a, b, strict=True)])
            better += [at] if ahead(b, a) else []
            worse += [at] if ahead(a, b) else []
        medians = {at: apart[str(at)]["median"] for at in depths if train[kind][str(at)] and train["pre"][str(at)]}
        found[kind] = {
            "apart": apart,
            "better at": better,
            "worse at": worse,
            "as well at": [at for at in depths if at in medians and medians[at] <= CLOSE],
            "close at": [at for at in depths if at in medians and abs(medians[at]) <= CLOSE],
        }
    return found


def activations(of: Of, table: dict[str, Any], start: Any, depths: list[int], rates: list[float]) -> dict[str, Any]:
    """Pre-norm's and peri-norm's streams, in each setting in which both train in every seed."""
    seeds = len(of["pre", depths[0], rates[0]])
    both = [
        (at, rate)
        for at in depths
        for rate in rates
        if all(table[kind][str(at)][str(rate)]["train"] == seeds for kind in ("pre", "both"))
    ]

    def values(kind: str, where: tuple[int, float], name: str) -> list[float]:
        return [one[name][-1] if name == "stream" else one[name] for one in of[kind, *where]]

    def smaller(a: str, b: str, name: str) -> int:
        return sum(ahead(values(b, one, name), values(a, one, name)) for one in both)

    def ratios(chosen: list[tuple[int, float]]) -> Any:
        pairs = [zip(values("both", one, "stream"), values("pre", one, "stream"), strict=True) for one in chosen]
        return spread([a / b for pair in pairs for a, b in pair]) if chosen else None

    return {
        "settings": len(both),
        "smaller": smaller("both", "pre", "stream"),
        "larger": smaller("pre", "both", "stream"),
        "largest smaller": smaller("both", "pre", "largest"),
        "largest larger": smaller("pre", "both", "largest"),
        "ratio at": {str(rate): ratios([one for one in both if one[1] == rate]) for rate in rates},
        "smaller at the beginning at": [
            at for at in depths if start["both"]["stream"][str(at)]["max"] < start["pre"]["stream"][str(at)]["min"]
        ],
        "larger at the beginning at": [
            at for at in depths if start["both"]["stream"][str(at)]["min"] > start["pre"]["stream"][str(at)]["max"]
        ],
    }  # fmt: skip


def settings_of_all() -> dict[str, Any]:
    """What the text says of how it was trained."""
    return {
        "batch": depth.SIZE,
        "held out": depth.HELD,
        "hopeless": depth.HOPELESS,
        "share": depth.SHARE,
        "width": gpt.WIDTH,
        "heads": gpt.HEADS,
        "context": gpt.CONTEXT,
        "block": gpt.BLOCK,
        "held-out share": 1 / gpt.EVERY,
        "alpha": gpt.ALPHA,
        "way": WAY,
        "close": CLOSE,
        "flat": list(FLAT),
        "root": list(ROOT),
    }


def grouped(runs: list[dict[str, Any]]) -> dict[tuple[str, int, float], list[dict[str, Any]]]:
    of: dict[tuple[str, int, float], list[dict[str, Any]]] = {}
    for run in runs:
        settings = run["settings"]
        of.setdefault((settings["norm"], settings["depth"], settings["rate"]), []).append(run["result"])
    return of


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    begun = [run for run in runs if run["settings"]["part"] == "start"]
    of = grouped([run for run in runs if run["settings"]["part"] == "train"])
    kinds, depths, rates = (list(dict.fromkeys(values)) for values in zip(*of, strict=True))
    text, steps = runs[0]["result"], runs[-1]["settings"]["steps"]
    criterion = text["unigram"] + WAY * (text["bigram"] - text["unigram"])
    table = {kind: {str(at): cells(of, kind, at, rates, criterion) for at in depths} for kind in kinds}
    seeds = len(of[kinds[0], depths[0], rates[0]])
    train = {
        kind: {at: [rate for rate in rates if one[str(rate)]["train"] == seeds] for at, one in table[kind].items()}
        for kind in kinds
    }
    best = {kind: {at: best_of(one, rates) for at, one in table[kind].items()} for kind in kinds}
    start, shown = beginnings(begun, depths), best["pre"][str(depths[-1])]
    return {
        **settings_of_all(),
        "shown rate": shown and shown["rate"],
        "text": text,
        "criterion": criterion,
        "steps": steps,
        "depths": depths,
        "rates": rates,
        "seeds": seeds,
        "deepest": depths[-1],
        "table": table,
        "train": train,
        "best": best,
        "top": {kind: {at: max(found, default=None) for at, found in one.items()} for kind, one in train.items()},
        "trains at": {kind: [at for at in depths if train[kind][str(at)]] for kind in kinds},
        "against pre": against_pre(of, best, train, depths),
        "warm-up": warm_up(train, depths, rates, round(depth.WARM * steps)),
        "start": start,
        "activations": activations(of, table, start, depths, rates),
    }


def warm_up(train: dict[str, Any], depths: list[int], rates: list[float], steps: int) -> dict[str, Any]:
    """How many settings post-norm trains in with it alone, and without it alone."""
    cold, warm = ({(at, rate) for at, one in train[kind].items() for rate in one} for kind in ("post", "post, warm-up"))
    return {"steps": steps, "gains": len(warm - cold), "loses": len(cold - warm), "of": len(depths) * len(rates)}


def judge(found: dict[str, Any]) -> dict[str, str]:
    deepest, depths = str(found["deepest"]), found["depths"]
    top = {kind: one[deepest] for kind, one in found["top"].items()}
    everywhere = found["trains at"]["pre"] == depths
    needs = top["post"] is None and top["post, warm-up"] is not None
    lower = top["post"] is None or (top["pre"] is not None and top["post"] < top["pre"])

    def extent(at: list[int]) -> str:
        return HOLDS if at == depths else CONDITIONS if at else FAILS

    compared = found["against pre"]
    return {
        "warm-up": FAILS if not (everywhere and lower) else HOLDS if needs else CONDITIONS,
        "gradients": judge_gradients(found),
        "none": judge_none(top),
        "rms": extent(compared["rms"]["close at"]),
        "tanh": extent(compared["tanh"]["as well at"]),
        "peri": judge_peri(found),
    }


def judge_none(top: dict[str, Any]) -> str:
    """By the largest rates that train the deepest stack: of all kinds, pre-norm's has to."""
    if top["pre"] is None or (top["none"] is not None and top["none"] >= top["pre"]):
        return FAILS
    return HOLDS if top["none"] is None and top["still"] is None else CONDITIONS


def judge_peri(found: dict[str, Any]) -> str:
    """Smaller in training, as good at its best rate, and at as large a rate, everywhere or somewhere."""
    active, top = found["activations"], found["top"]
    well = found["against pre"]["both"]["as well at"]
    stable = [at for at, rate in top["pre"].items() if rate is not None and (top["both"][at] or 0) >= rate]
    if not (active["smaller"] and well and stable):
        return FAILS
    everywhere = len(well) == len(stable) == len(found["depths"])
    return HOLDS if everywhere and active["smaller"] == active["settings"] else CONDITIONS


def gradient_checks(found: dict[str, Any]) -> dict[str, bool]:
    """What the claim says of the gradients, part by part, each in every seed."""
    post, pre, deepest = found["start"]["post"], found["start"]["pre"], str(found["deepest"])
    return {
        "pre-norm's falls with the depth": pre["slope"]["max"] < 0,
        "it falls as one over the root": ROOT[0] <= pre["slope"]["min"] and pre["slope"]["max"] <= ROOT[1],
        "post-norm's does not change with the depth": FLAT[0] <= post["slope"]["min"]
        and post["slope"]["max"] <= FLAT[1],
        "post-norm's is the larger one in the deepest stack": post["last"][deepest]["min"]
        > pre["last"][deepest]["max"],
        "post-norm's is larger in the last layer than in the first, at every depth": all(
            one["min"] > 1 for one in post["last over first"].values()
        ),
    }


def judge_gradients(found: dict[str, Any]) -> str:
    falls, _, _, larger, _ = checks = list(gradient_checks(found).values())
    return HOLDS if all(checks) else CONDITIONS if falls and larger else FAILS
