"""The section `depth`: its claims, verdicts, plots and text."""

import math
from collections.abc import Sequence
from typing import Any

from . import _plots, depth, gpt
from ._claims import CONDITIONS, FAILS, HOLDS, XIONG, Claim, extent
from ._page import listed, picture, ranged, sentences, table
from ._sections import Runs, Section, Spread, Text, ahead, choices, results, spread, spread_if

LABELS = {
    "none": "no norm",
    "still": "no norm, branches begin at zero",
    "post": "post-norm",
    "post, warm-up": "post-norm with warm-up",
    "pre": "pre-norm",
    "rms": "pre-norm, RMS norm",
}
CLAIMS = (
    Claim(
        "warm-up",
        "Post-norm needs a warm-up of the learning rate to train deep stacks; pre-norm trains them without a warm-up.",
        f"{XIONG}, abstract",
    ),
    Claim(
        "gradients",
        "At initialisation, post-norm's gradients near the output are large at any depth; pre-norm's fall "
        "as one over the root of the depth.",
        f"{XIONG}, section 3",
    ),
    Claim(
        "none",
        "Without a norm, deep stacks do not train: gradients explode or vanish.",
        "a common belief, which Zhang, Dauphin and Ma refute: Fixup Initialization, arXiv:1901.09321 (2019), abstract",
    ),
    Claim(
        "rms",
        "RMS norm trains as well as layer norm.",
        "Zhang and Sennrich, Root Mean Square Layer Normalization, arXiv:1910.07467 (2019), abstract",
    ),
)
# WAY: a run trains if its loss has covered this share of the way from the text's unigram entropy to its bigram entropy.
# CLOSE: losses within this distance, in nats, are equally good. FLAT and ROOT: the slopes of logarithms that count as
# no slope, and as that of one over the root.
WAY, CLOSE, FLAT, ROOT = 0.1, 0.05, (-0.25, 0.25), (-0.75, -0.25)


def cell(losses: Sequence[float | None], criterion: float) -> dict[str, Any]:
    """The last losses of one kind at one depth and rate, and what follows from them."""
    return {
        "losses": losses,
        "loss": spread_if(losses),
        "ended early": sum(loss is None for loss in losses),
        "trains": all(loss is not None and loss < criterion for loss in losses),
    }


def best_rate(cells: dict[float, dict[str, Any]]) -> float | None:
    """The rate with the smallest median loss among those at which no seed ended early."""
    whole = [rate for rate, one in cells.items() if one["loss"]]
    return min(whole, key=lambda rate: cells[rate]["loss"].median, default=None)


def slope(depths: Sequence[int], values: Sequence[float]) -> float:
    """The slope of the least-squares line through the logarithms."""
    x, y = [math.log(one) for one in depths], [math.log(one) for one in values]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum((a - mean_x) ** 2 for a in x)


def beginning(runs: Runs, kind: str, depths: list[int]) -> dict[str, Any]:
    """A kind's gradients in the last layer and residual streams after it at initialisation, by depth."""
    of = {at: results(runs, part="start", norm=kind, depth=at) for at in depths}
    last = {at: [one["gradient"][-1] for one in of[at]] for at in depths}
    seeds = list(zip(*last.values(), strict=True))
    return {
        "last": {at: spread_if(values) for at, values in last.items()},
        "slope": spread([slope(depths, one) for one in seeds]) if not any(None in one for one in seeds) else None,
        "stream": {at: spread_if([one["stream"][-1] for one in of[at]]) for at in depths},
    }


def summary(runs: Runs) -> dict[str, Any]:
    text, depths, rates = results(runs, part="text")[0], choices(runs, "depth"), choices(runs, "rate")
    criterion = text["unigram"] + WAY * (text["bigram"] - text["unigram"])

    def losses(kind: str, at: int, rate: float) -> list[float | None]:
        return [one["loss"] for one in results(runs, part="train", norm=kind, depth=at, rate=rate)]

    cells = {
        kind: {at: {rate: cell(losses(kind, at, rate), criterion) for rate in rates} for at in depths}
        for kind in LABELS
    }
    train = {
        kind: {at: [rate for rate, one in of.items() if one["trains"]] for at, of in cells[kind].items()}
        for kind in LABELS
    }
    return {
        "text": text,
        "criterion": criterion,
        "steps": choices(runs, "steps")[0],
        "depths": depths,
        "rates": rates,
        "deepest": depths[-1],
        "cells": cells,
        "train": train,
        "top": {kind: {at: max(found, default=None) for at, found in of.items()} for kind, of in train.items()},
        "trains at": {kind: [at for at, found in of.items() if found] for kind, of in train.items()},
        "best": {kind: {at: best_rate(of) for at, of in cells[kind].items()} for kind in LABELS},
        "start": {kind: beginning(runs, kind, depths) for kind in ("none", "post", "pre")},
    }


def apart(found: dict[str, Any], kind: str, at: int) -> list[float] | None:
    """The kind's loss minus pre-norm's, seed by seed, each at its own best rate; None if either has no such rate."""
    rates = [found["best"][one][at] for one in (kind, "pre")]
    if None in rates:
        return None
    ours, theirs = (found["cells"][one][at][rate]["losses"] for one, rate in zip((kind, "pre"), rates, strict=True))
    return [a - b for a, b in zip(ours, theirs, strict=True)]


def as_good(found: dict[str, Any], kind: str) -> list[int]:
    """Depths at which both the kind and pre-norm train and the median difference is at most CLOSE."""
    both = [at for at in found["trains at"][kind] if at in found["trains at"]["pre"]]
    return [at for at in both if abs(spread(apart(found, kind, at) or [math.inf]).median) <= CLOSE]


def gradient_checks(found: dict[str, Any]) -> dict[str, bool]:
    """The parts of the claim on gradients. Each part has to be true in every seed."""
    post, pre, deepest = found["start"]["post"], found["start"]["pre"], found["deepest"]
    return {
        "pre-norm's falls with the depth": pre["slope"].most < 0,
        "it falls as one over the root": ROOT[0] <= pre["slope"].least and pre["slope"].most <= ROOT[1],
        "post-norm's does not change with the depth": FLAT[0] <= post["slope"].least and post["slope"].most <= FLAT[1],
        "post-norm's is the larger one in the deepest stack": post["last"][deepest].least > pre["last"][deepest].most,
    }


def judge(found: dict[str, Any]) -> dict[str, str]:
    top = {kind: of[found["deepest"]] for kind, of in found["top"].items()}
    checks = gradient_checks(found)
    lower = top["post"] is None or (top["pre"] is not None and top["post"] < top["pre"])
    rescued = top["post"] is None and top["post, warm-up"] is not None
    better = lower and found["trains at"]["pre"] == found["depths"]
    if top["pre"] is None or (top["none"] is not None and top["none"] >= top["pre"]):
        none = FAILS
    else:
        none = HOLDS if top["none"] is None and top["still"] is None else CONDITIONS
    return {
        "warm-up": FAILS if not better else HOLDS if rescued else CONDITIONS,
        "gradients": extent(sum(checks.values()), len(checks)),
        "none": none,
        "rms": extent(len(as_good(found, "rms")), len(found["depths"])),
    }


def figures(pyplot: Any, runs: Runs, found: dict[str, Any]) -> dict[str, Any]:
    return {"rates": maps(pyplot, found), "gradients": gradients(pyplot, runs, found)}


def maps(pyplot: Any, found: dict[str, Any]) -> Any:
    """The loss after the last step over depth and rate, a panel for each kind. Bold cells: all seeds train."""
    depths, rates = found["depths"], found["rates"]
    low, high = found["text"]["bigram"], found["text"]["unigram"]
    figure, axes = pyplot.subplots(2, 3, figsize=(9, 4.6), sharex=True, sharey=True)
    shades = pyplot.get_cmap("viridis_r").with_extremes(bad="#dddddd")
    for place, (kind, label) in zip(axes.flat, LABELS.items(), strict=True):
        cells = [[found["cells"][kind][at][rate] for rate in rates] for at in depths]
        values = [[one["loss"].median if one["loss"] else math.nan for one in line] for line in cells]
        drawn = place.pcolormesh(values, cmap=shades, vmin=low, vmax=high + 0.2)
        for row, line in enumerate(cells):
            for column, one in enumerate(line):
                write_cell(place, column + 0.5, row + 0.5, one, (low + high) / 2)
        place.grid(False)
        place.set_title(label, fontsize=9)
        place.set_xticks([at + 0.5 for at in range(len(rates))], [f"{rate:g}" for rate in rates])
        place.set_yticks([at + 0.5 for at in range(len(depths))], [str(at) for at in depths])
    figure.supxlabel("learning rate", fontsize=9)
    figure.supylabel("layers", fontsize=9)
    figure.colorbar(drawn, ax=axes, label="held-out loss, nats", extend="max", shrink=0.8)
    return figure


def write_cell(place: Any, x: float, y: float, one: dict[str, Any], dark: float) -> None:
    """Writes the median loss, or the number of seeds that ended early."""
    if one["loss"] is None:
        text, colour = f"{one['ended early']}/{len(one['losses'])}", "black"
    else:
        median = one["loss"].median
        text, colour = f"{median:.{2 if median < 100 else 0}f}", "white" if median > dark else "black"
    weight = "bold" if one["trains"] else "normal"
    place.text(x, y, text, ha="center", va="center", fontsize=7.5, fontweight=weight, color=colour)


def gradients(pyplot: Any, runs: Runs, found: dict[str, Any]) -> Any:
    """The gradients at initialisation by layer, in the deepest stack."""
    deepest = found["deepest"]
    figure, place = pyplot.subplots(figsize=(6, 3.4))
    for index, kind in enumerate(found["start"]):
        seeds = [one["gradient"] for one in results(runs, part="start", norm=kind, depth=deepest)]
        if not any(None in one for one in seeds):
            _plots.band(place, range(1, deepest + 1), seeds, LABELS[kind], index)
    place.set(xlabel=f"layer of {deepest}", ylabel="norm of the gradient", yscale="log")
    place.legend()
    return figure


def best_loss(found: dict[str, Any], kind: str, at: int) -> str:
    rate = found["best"][kind][at]
    if rate is None:
        return "ended early at every rate"
    return f"{ranged(found['cells'][kind][at][rate]['loss'], '.3f')} at {rate}"


def write(found: dict[str, Any], verdicts: dict[str, str]) -> Text:
    text, depths = found["text"], found["depths"]
    body = [
        f"A character-level GPT reads the text of Python's manual ({text['characters']:,} characters). Its width is "
        f"{gpt.WIDTH}, with {gpt.HEADS} heads, a context of {gpt.CONTEXT} characters and Glorot's initialisation. "
        f"Adam makes {found['steps']} steps of {depth.SIZE} windows at a constant rate, without clipping. Warm-up "
        f"raises the rate linearly over the first {depth.WARM:.0%} of the steps. In the networks whose branches begin "
        "at zero, the last matrix of each branch is zero at first. Pre-norm has one more norm before the logits.",
        f"Guessing by the frequency of characters gives a loss of {text['unigram']:.3f} nats; guessing by pairs of "
        f"characters gives {text['bigram']:.3f}. A run **trains** if its held-out loss falls below "
        f"{found['criterion']:.3f}; a rate trains if all seeds do. A run ends early if its loss is not a number, or is "
        f"more than {depth.HOPELESS:.0f} times that of guessing after {depth.SHARE:.0%} of the steps. So few steps "
        "show which networks start to learn, not which are best in the end.",
        picture("depth", "rates", "Median held-out loss. Bold: all seeds train. Grey: seeds that ended early"),
        "The held-out loss after the last step, at the rate with the best median:",
        table(
            ["", *(f"{at} layers" for at in depths)],
            [[label, *(best_loss(found, kind, at) for at in depths)] for kind, label in LABELS.items()],
        ),
        picture("depth", "gradients", "Gradient of the last matrix of each layer at initialisation, deepest stack"),
    ]
    return Text(body, because(found, verdicts))


def by_depth(values: dict[int, Spread | None], spec: str) -> str:
    return "; ".join(f"{at} layers: {ranged(one, spec)}" for at, one in values.items())


def because(found: dict[str, Any], verdicts: dict[str, str]) -> dict[str, str]:
    trains, deepest, post, pre = found["trains at"], found["deepest"], found["start"]["post"], found["start"]["pre"]
    checks, stream = gradient_checks(found), found["start"]["none"]["stream"][deepest]
    better = [at for at in found["depths"] if (seeds := apart(found, "still", at)) and ahead([0.0] * len(seeds), seeds)]
    rms = {at: spread(one) if (one := apart(found, "rms", at)) else None for at in found["depths"]}
    return {
        "warm-up": sentences(
            f"Pre-norm trains without warm-up at these depths: {listed(trains['pre'])}. Post-norm trains without warm-up "
            f"at: {listed(trains['post'])}; with warm-up at: {listed(trains['post, warm-up'])}.",
            ""
            if deepest in trains["post, warm-up"]
            else f"In {found['steps']} steps, warm-up does not make post-norm train at {deepest} layers.",
        ),
        "gradients": f"Norm of the gradient of the last layer's last matrix, post-norm: {by_depth(post['last'], '.2g')}. "
        f"Pre-norm: {by_depth(pre['last'], '.2g')}. In logarithms over the depth, post-norm's slope is "
        f"{ranged(post['slope'], '.2f')} and pre-norm's is {ranged(pre['slope'], '.2f')}. A slope of {FLAT[0]} to "
        f"{FLAT[1]} counts as none; {ROOT[0]} to {ROOT[1]} counts as one over the root. True in every seed: "
        f"{'; '.join(name for name, yes in checks.items() if yes) or 'none'}. Not true: "
        f"{'; '.join(name for name, yes in checks.items() if not yes) or 'none'}.",
        "none": sentences(
            f"Without a norm, these depths train: {listed(trains['none'])}. If branches begin at zero, these depths train "
            f"without a norm: {listed(trains['still'])}. In that case, every seed ends better than with pre-norm at these "
            f"depths, each at its best rate: {listed(better)}.",
            f"With the usual initialisation, the residual stream after {deepest} layers begins with a root mean square of "
            f"{ranged(stream)} without a norm and {ranged(pre['stream'][deepest])} with pre-norm.",
            "The condition is the usual initialisation."
            if verdicts["none"] == CONDITIONS and deepest in trains["still"]
            else "",
        ),
        "rms": f"RMS norm's loss minus layer norm's, seed by seed, each at its best rate: {by_depth(rms, '+.3f')}. A "
        f"median of at most {CLOSE} in either direction counts as equally good. This is true at these depths: "
        f"{listed(as_good(found, 'rms'))}.",
    }


SECTION = Section("depth", "Depth and learning rate", CLAIMS, depth.runs, depth.run, summary, judge, figures, write)
