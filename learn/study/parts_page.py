"""The section `parts`: what its runs say together, its plots, its text."""

import math
from collections.abc import Mapping
from typing import Any

from . import _plots, batch, parts
from ._page import Page, range_of
from ._sections import CONDITIONS, FAILS, HOLDS, Claim, Section, ahead, spread

XU = "Xu, Sun, Zhang, Zhao and Lin, Understanding and Improving Layer Normalization, arXiv:1911.07013 (2019), abstract"
CLAIMS = (
    Claim("simple", "Without gamma and beta (“LayerNorm-simple”) layer norm does as well or better.", XU),
    Claim("fitting", "Gamma and beta raise the risk of over-fitting.", XU),
    Claim(
        "backward",
        "What the mean and the variance do to the gradient matters more than what they do to the forward pass: detached from the "
        "gradient (“DetachNorm”), they lose more than leaving out the norm loses beyond that.",
        XU,
    ),
    Claim(
        "both",
        "Both terms of the gradient do their part: that of the mean, which centres it, and that of the variance, which scales it.",
        XU,
    ),
)
LABELS = {
    "none": "no norm",
    "whole": "layer norm",
    "simple": "no gamma and beta",
    "mean detached": "also mean detached",
    "variance detached": "also variance detached",
    "both detached": "also both detached",
}
TASKS = {"mlp": "MLP", "transformer": "Transformer"}
BEST = "each at its best"
LOWEST = "lowest held-out loss"
FIGURES = {
    "training loss": ".2g",
    LOWEST: ".3g",
    "held-out loss": ".3g",
    "gap": ".3g",
    "accuracy": ".1%",
    "weights grow by": ".3g",
}
HEADS = {
    "training loss": "training loss at the end",
    LOWEST: LOWEST,
    "held-out loss": "held-out loss at the end",
    "gap": "gap at the end",
    "accuracy": "held-out accuracy at the end",
    "weights grow by": "weights grow by",
}


def measured(result: Any) -> dict[str, float]:
    """A run's figures; where it diverged, its losses are infinite."""
    held = [math.inf if one is None else one for one in result["held-out loss"]]
    training = [math.inf if one is None else one for one in result["loss"]]
    finite = math.isfinite(held[-1] + training[-1]) and result["weights grow by"] is not None
    return {
        "training loss": training[-1] if finite else math.inf,
        LOWEST: min(held),
        "held-out loss": held[-1] if finite else math.inf,
        "gap": held[-1] - training[-1] if finite else math.nan,
        "accuracy": result["accuracy"][-1],
        "weights grow by": result["weights grow by"] if finite else math.nan,
    }


def entry(seeds: list[dict[str, float]]) -> dict[str, Any]:
    """Spreads over the seeds; null where one of them diverged."""
    return {
        name: spread(values) if all(map(math.isfinite, values)) else None
        for name in FIGURES
        for values in [[one[name] for one in seeds]]
    }


class Task:
    """The runs of one network on so many samples."""

    def __init__(self, network: str, samples: int, runs: list[dict[str, Any]]) -> None:
        self.network, self.samples = network, samples
        self.of: dict[tuple[str, float], list[dict[str, float]]] = {}
        for run in runs:
            self.of.setdefault((run["settings"]["variant"], run["settings"]["rate"]), []).append(
                measured(run["result"])
            )
        self.rates = list(dict.fromkeys(rate for _, rate in self.of))
        self.best = {variant: min(self.rates, key=lambda rate: self.median(variant, rate)) for variant in LABELS}  # noqa: B023
        self.compared: list[float | str] = [*self.rates, BEST]

    def median(self, variant: str, rate: float) -> float:
        ordered = sorted(self.values(LOWEST, variant, rate))
        return ordered[len(ordered) // 2]

    def values(self, name: str, variant: str, rate: float | str) -> list[float]:
        return [one[name] for one in self.of[variant, self.best[variant] if isinstance(rate, str) else rate]]

    def above(self, name: str, variant: str, other: str) -> list[float | str]:
        """The rates at which the variant's figure is above the other's in every seed; also with the best rates."""
        return [at for at in self.compared if ahead(self.values(name, variant, at), self.values(name, other, at))]

    def backward_more(self) -> list[float | str]:
        """Where, in every seed, detaching both costs loss, and more than no norm costs beyond that."""
        found = []
        for at in self.compared:
            three = [self.values(LOWEST, variant, at) for variant in ("simple", "both detached", "none")]
            if all(both > simple and both - simple > none - both for simple, both, none in zip(*three, strict=True)):
                found.append(at)
        return found

    def comparisons(self) -> dict[str, list[float | str]]:
        return {
            "whole worse than simple": self.above(LOWEST, "whole", "simple"),
            "simple worse than whole": self.above(LOWEST, "simple", "whole"),
            "whole over-fits more": self.above("gap", "whole", "simple"),
            "simple over-fits more": self.above("gap", "simple", "whole"),
            "norm helps": self.above(LOWEST, "none", "simple"),
            "detached worse": self.above(LOWEST, "both detached", "simple"),
            "detached worse than none": self.above(LOWEST, "both detached", "none"),
            "detached better than none": self.above(LOWEST, "none", "both detached"),
            "backward more": self.backward_more(),
            "mean matters": self.above(LOWEST, "mean detached", "simple"),
            "variance matters": self.above(LOWEST, "variance detached", "simple"),
        }

    def summary(self) -> dict[str, Any]:
        found = self.comparisons()
        return {
            "network": self.network,
            "title": f"{TASKS[self.network]}, {self.samples:,} samples",
            "samples": self.samples,
            "rates": self.rates,
            "best rate": self.best,
            "best at the edge": [LABELS[one] for one, at in self.best.items() if at in (self.rates[0], self.rates[-1])],
            "at best rate": {variant: entry(self.of[variant, self.best[variant]]) for variant in LABELS},
            "lowest": [
                {"rate": rate, **{variant: entry(self.of[variant, rate])[LOWEST] for variant in LABELS}}
                for rate in self.rates
            ],
            "comparisons": len(self.compared),
            "in": found,
            "not in": {name: [at for at in self.compared if at not in there] for name, there in found.items()},
        }


def growth(tasks: list[dict[str, Any]], variant: str) -> dict[str, float | None]:
    """Of the weights, at the best rate: the least and the most of the tasks' medians."""
    found = [one["at best rate"][variant]["weights grow by"] for one in tasks]
    medians = [one["median"] for one in found if one]
    return {"min": min(medians, default=None), "max": max(medians, default=None)}


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    of: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for run in runs:
        of.setdefault((run["settings"]["network"], run["settings"]["samples"]), []).append(run)
    tasks = [Task(network, samples, found).summary() for (network, samples), found in of.items()]
    apart = [run["result"]["gradient apart"] for run in runs if "gradient apart" in run["result"]]
    return {
        "layers": parts.LAYERS,
        "width": parts.WIDTH,
        "blocks": parts.BLOCKS,
        "tokens": parts.TOKENS,
        "pixels": parts.PIXELS,
        "embedding": parts.EMBEDDING,
        "heads": parts.HEADS,
        "steps": runs[0]["settings"]["steps"],
        "batch size": parts.SIZE,
        "points": len(runs[0]["result"]["loss"]),
        "held-out samples": len(batch.split(0)[1][1]),
        "gradient apart": max(apart),
        "growth": {variant: growth(tasks, variant) for variant in LABELS},
        "tasks": tasks,
        "comparisons": sum(one["comparisons"] for one in tasks),
        "in all": {name: sum(len(one["in"][name]) for one in tasks) for name in tasks[0]["in"]},
    }


def judge(found: dict[str, Any]) -> dict[str, str]:
    def three(hits: int, of: int) -> str:
        return FAILS if not hits else HOLDS if hits == of else CONDITIONS

    of, total = found["in all"], found["comparisons"]
    return {
        "simple": {FAILS: HOLDS, HOLDS: FAILS}.get(three(of["simple worse than whole"], total), CONDITIONS),
        "fitting": three(of["whole over-fits more"], total),
        "backward": three(of["backward more"], total),
        "both": three(of["mean matters"] + of["variance matters"], 2 * total),
    }


def chosen(result: Any, task: Mapping[str, Any], variant: str, rate: float) -> list[Any]:
    wanted = {"network": task["network"], "samples": task["samples"], "variant": variant, "rate": rate}
    return [run["result"] for run in result["runs"] if wanted.items() <= run["settings"].items()]


def losses(pyplot: Any, result: Any) -> Any:
    """Over steps, each variant at its own best rate."""
    tasks = result["summary"]["tasks"]
    figure, axes = pyplot.subplots(2, len(tasks), figsize=(max(7, 2.5 * len(tasks)), 6), squeeze=False, sharex=True)
    for column, task in enumerate(tasks):
        for index, (variant, label) in enumerate(LABELS.items()):
            results = chosen(result, task, variant, task["best rate"][variant])
            for row, name in enumerate(("loss", "held-out loss")):
                curves = [one[name] for one in results if None not in one[name]]
                if curves:
                    steps = [(n + 1) * results[0]["steps of a point"] for n in range(len(curves[0]))]
                    spreads = [spread(values) for values in zip(*curves, strict=True)]
                    _plots.band(axes[row][column], steps, spreads, label, index)
        axes[0][column].set(yscale="log", title=task["title"].replace(", ", "\n"))
        axes[1][column].set(yscale="log", xlabel="step")
    axes[0][0].set_ylabel("training loss")
    axes[1][0].set_ylabel("held-out loss")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncol=3)
    return figure


def rates(pyplot: Any, result: Any) -> Any:
    """The lowest held-out loss at each rate."""
    tasks = result["summary"]["tasks"]
    figure, axes = pyplot.subplots(1, len(tasks), figsize=(max(7, 2.5 * len(tasks)), 3.8), squeeze=False)
    for place, task in zip(axes[0], tasks, strict=True):
        for index, (variant, label) in enumerate(LABELS.items()):
            there = [one for one in task["lowest"] if one[variant]]
            _plots.band(place, [one["rate"] for one in there], [one[variant] for one in there], label, index)
        place.set(xscale="log", yscale="log", xlabel="learning rate", title=task["title"].replace(", ", "\n"))
    axes[0][0].set_ylabel(LOWEST)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncol=3)
    return figure


def figures(pyplot: Any, result: Any) -> dict[str, Any]:
    return {"loss": losses(pyplot, result), "rate": rates(pyplot, result)}


def cell(page: Page, path: str, spec: str) -> str:
    return range_of(path, spec) if page.at(path) else "diverged"


def introduce(page: Page) -> None:
    page.say(
        "Two networks read scikit-learn's digits. The MLP has {summary/layers} hidden layers of {summary/width} units, the norm before the "
        "ReLU. The Transformer (post-norm) has {summary/blocks} layers of width {summary/embedding} with {summary/heads} heads, and sees a "
        "digit as {summary/tokens} tokens, its rows of {summary/pixels} pixels. Adam, {summary/steps} steps with batches of "
        "{summary/batch size}; few samples to train on, or all but the {summary/held-out samples} held out."
    )
    page.say(
        "Each norm is evenorm's, and so is the forward pass of the detached ones: these differ from “no gamma and beta” in the gradient alone, which leaves out "
        "the term of the mean, of the variance, or both. That gradient was compared, in each run, with autograd's of the same formula with "
        "those detached: at most {summary/gradient apart:.1e} apart, in float64."
    )
    page.say(
        "Held-out loss was measured {summary/points} times in a run. Its lowest says how good a network becomes (chosen on the held-out samples themselves, alike for all), the **gap** (held-out loss less "
        "training loss, both at the end) how far it over-fits. “Weights” are the norm of all weights of linear layers, at the end relative to the start: "
        "where a norm follows, a larger weight is the same function, and a step of the same size turns it less."
    )


def tables(page: Page) -> None:
    for index in range(len(page.at("summary/tasks"))):
        where = f"summary/tasks/{index}"
        page.say(f"{{{where}/title}}, each at its best rate (by the median of the lowest held-out loss):")
        page.table(
            ["norm", "rate", *HEADS.values()],
            [
                [
                    label,
                    f"{{{where}/best rate/{variant}}}",
                    *(cell(page, f"{where}/at best rate/{variant}/{name}", spec) for name, spec in FIGURES.items()),
                ]
                for variant, label in LABELS.items()
            ],
        )
    edges = [
        f"{{summary/tasks/{index}/title}} (rates {{summary/tasks/{index}/rates}}): {{summary/tasks/{index}/best at the edge}}"
        for index in range(len(page.at("summary/tasks")))
    ]
    page.say(
        f"The best rate is the smallest or the largest one tried, so that a better one may lie beyond, for {'; '.join(edges)}."
    )
    page.say("The lowest held-out loss at every rate:")
    page.table(
        ["task", "rate", *LABELS.values()],
        [
            [f"{{{where}/title}}", f"{{{where}/lowest/{row}/rate}}", *(cell(page, f"{where}/lowest/{row}/{variant}", ".3g") for variant in LABELS)]
            for index, task in enumerate(page.at("summary/tasks"))
            for row in range(len(task["lowest"]))
            for where in [f"summary/tasks/{index}"]
        ],
    )  # fmt: skip


def write(page: Page) -> Mapping[str, str]:
    introduce(page)
    page.figure("loss", "Training and held-out loss over steps, each at its best rate: medians, smallest to largest")
    tables(page)
    page.figure("rate", "The lowest held-out loss over learning rates: medians of the seeds, smallest to largest")
    return because(page)


def because(page: Page) -> dict[str, str]:
    def counted(name: str) -> str:
        """In how many comparisons."""
        return f"{{summary/in all/{name}}} of {{summary/comparisons}} comparisons"

    def listed(name: str) -> str:
        """In how many, and in which, or in which not where these are fewer."""
        number, of = page.at(f"summary/in all/{name}"), page.at("summary/comparisons")
        which = "in" if 2 * number <= of else "not in"
        where = [
            f"{{summary/tasks/{index}/title}}: {{summary/tasks/{index}/{which}/{name}}}"
            for index, task in enumerate(page.at("summary/tasks"))
            if task[which][name]
        ]
        return counted(name) + (f" ({'all but ' * (which != 'in')}{'; '.join(where)})" if where else "")

    same = (
        "Compared are the seeds one by one, at each rate and with each at its best, in every task; a difference counts where it is in "
        "every seed. "
    )
    return {
        "simple": f"{same}By its lowest held-out loss, the norm with gamma and beta is the better one in {listed('simple worse than whole')}, "
        f"the one without in {listed('whole worse than simple')}; elsewhere the seeds disagree.",
        "fitting": f"The gap is larger with gamma and beta in {listed('whole over-fits more')}, smaller in "
        f"{listed('simple over-fits more')}; elsewhere the seeds disagree.",
        "backward": f"The lowest held-out loss rises by detaching both, and by more than it rises from there to no norm, in {listed('backward more')}. With both "
        f"detached it is higher than with neither in {listed('detached worse')}; higher than without norm in {counted('detached worse than none')}, lower in "
        f"{counted('detached better than none')}. At the best rates, the weights grow by {{summary/growth/both detached/min:.3g}} to "
        "{summary/growth/both detached/max:.3g} with both detached (medians, by task), by {summary/growth/simple/min:.3g} to {summary/growth/simple/max:.3g} with neither. "
        f"The norm with its whole gradient beats no norm in {counted('norm helps')}.",
        "both": f"The lowest held-out loss is higher with the mean detached in {listed('mean matters')}, with the variance detached in "
        f"{listed('variance matters')}.",
    }


SECTION = Section("parts", "What does the work", CLAIMS, parts.runs, parts.run, summary, judge, figures, write)
