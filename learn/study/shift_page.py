"""The section `shift`: what its runs say together, its plots, its text."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import _plots, batch, shift
from ._page import Page, range_of
from ._sections import CONDITIONS, FAILS, HOLDS, SMOOTH, Claim, Json, Section, spread
from .shift_summary import Results, measured

IOFFE = (
    "Ioffe and Szegedy, Batch Normalization: Accelerating Deep Network Training by Reducing Internal Covariate Shift, "
    "arXiv:1502.03167 (2015)"
)
SANTURKAR = (
    "Santurkar, Tsipras, Ilyas and Madry, How Does Batch Normalization Help Optimization?, arXiv:1805.11604 (2018)"
)
CLAIMS = (
    Claim(
        "batch",
        "Batch norm makes the distributions of the layers' inputs drift less while the network learns.",
        f"{IOFFE}, section 2",
    ),
    Claim(
        "layer",
        "Layer norm makes the distributions of the layers' inputs drift less while the network learns.",
        "Ba, Kiros and Hinton, Layer Normalization, arXiv:1607.06450 (2016), section 3",
    ),
    Claim(
        "cause",
        "Less of that drift goes with faster learning: it is how norms speed it up.",
        f"{IOFFE}, abstract; many texts repeat it for layer norm",
    ),
    Claim(
        "noise",
        "A norm's speed does not come from less drift: with noise behind it, so that the inputs drift more than without any "
        "norm, the network still learns faster than without.",
        f"{SANTURKAR}, section 2.1, for batch norm; the same for layer norm is our own question",
    ),
    Claim(
        "gradient",
        "Norms do not reduce the change that the gradient of a layer undergoes when the layers below it take their step, either.",
        f"{SANTURKAR}, section 2.2, for batch norm; the same for layer norm is our own question",
    ),
)
LABELS = {"none": "no norm", "batch": "batch norm", "layer": "layer norm"}
KINDS = {"step": "drift in a step", "start": "drift from the start", "gradient": "change of the gradient"}
NORMED = ("batch", "layer")
STYLES = ("-", ":", "--")  # by size of the noise


def entry(seeds: list[dict[str, float]]) -> dict[str, Json]:
    """Spreads over the seeds that have a number, and in how many there is none."""
    found: dict[str, Json] = {}
    for name in seeds[0]:
        values = [one[name] for one in seeds if math.isfinite(one[name])]
        found[name] = spread(values) if values else None
        found[f"{name}, none in"] = len(seeds) - len(values)
    return found


def comparisons(of: Results) -> dict[str, Any]:
    """Who drifts less, who learns faster: the rates at which it is so in every seed."""
    compared = of.compared()
    plain, noisy = of.noises[0], of.noises[1:]
    faster = {(norm, noise): of.less("loss", norm, noise) for norm in NORMED for noise in of.noises}
    more = {(norm, noise): of.more("step", norm, noise) for norm in NORMED for noise in noisy}
    return {
        "compared": compared,
        "less": {norm: {kind: [at for at in of.less(kind, norm) if at in compared] for kind in KINDS} for norm in NORMED},
        "more": {norm: {kind: [at for at in of.more(kind, norm) if at in compared] for kind in KINDS} for norm in NORMED},
        "faster": {norm: faster[norm, plain] for norm in NORMED},
        "slower": {norm: of.more("loss", norm) for norm in NORMED},
        "noisy": {
            norm: [
                {
                    "noise": noise,
                    "drifts more at": more[norm, noise],
                    "and is faster at": [at for at in more[norm, noise] if at in faster[norm, noise]],
                    "and is slower at": [at for at in more[norm, noise] if at in of.more("loss", norm, noise)],
                }
                for noise in noisy
            ]
            for norm in NORMED
        },
    }  # fmt: skip


def correlated(of: Results, rates: list[float]) -> dict[str, Any]:
    """How drift goes with speed: over all networks by rank, and of those without noise, each norm beside none."""
    found: list[dict[str, Any]] = [
        {"rate": rate, **{kind: spread(values) if (values := of.correlations(kind, rate)) else None for kind in KINDS}}
        for rate in of.rates
    ]
    both = {
        norm: {
            "less and faster": [at for at in rates if at in of.less("step", norm) and at in of.less("loss", norm)],
            "more and slower": [at for at in rates if at in of.more("step", norm) and at in of.more("loss", norm)],
            "less and slower": [at for at in rates if at in of.less("step", norm) and at in of.more("loss", norm)],
            "more and faster": [at for at in rates if at in of.more("step", norm) and at in of.less("loss", norm)],
        }
        for norm in NORMED
    }
    always = [one["rate"] for one in found if one["rate"] in rates and one["step"] and one["step"]["min"] > 0]
    return {"correlation": found, "correlated at": always, "both": both}


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    of, steps = Results(runs), runs[0]["settings"]["steps"]
    table = {
        norm: {f"{noise:g}": {str(rate): entry(of.of[norm, noise, rate]) for rate in of.rates} for noise in of.noises}
        for norm in LABELS
    }
    best = {norm: {f"{noise:g}": of.best(norm, noise) for noise in of.noises} for norm in LABELS}
    return {
        "layers": shift.LAYERS,
        "width": batch.WIDTH,
        "batch size": shift.SIZE,
        "steps": steps,
        "held-out samples": shift.HELD,
        "probed steps": len(shift.probed(steps)),
        "smoothed over": SMOOTH,
        "factor": shift.FACTOR,
        "own": shift.SPREAD,
        "targets": [str(target) for target in shift.TARGETS],
        "noises": of.noises,
        "rates": of.rates,
        "table": table,
        "best rate": best,
        "shown": best["none"]["0"],
        **comparisons(of),
        **correlated(of, of.compared()),
    }


def judge(found: dict[str, Any]) -> dict[str, str]:
    def three(hits: int, of: int) -> str:
        return FAILS if not hits else HOLDS if hits == of else CONDITIONS

    compared, less = len(found["compared"]), found["less"]
    noisy = [one for norm in NORMED for one in found["noisy"][norm]]
    reduced = three(sum(len(less[norm]["gradient"]) for norm in NORMED), len(NORMED) * compared)
    agree = [
        rates
        for norm in NORMED
        for how, rates in found["both"][norm].items()
        if how in ("less and faster", "more and slower")
    ]
    return {
        **{norm: three(len(less[norm]["step"]) + len(less[norm]["start"]), 2 * compared) for norm in NORMED},
        "cause": three(len(found["correlated at"]) + sum(map(len, agree)), (1 + len(NORMED)) * compared),
        "noise": three(
            sum(len(one["and is faster at"]) for one in noisy), sum(len(one["drifts more at"]) for one in noisy)
        ),
        "gradient": {HOLDS: FAILS, FAILS: HOLDS}.get(reduced, CONDITIONS) if compared else CONDITIONS,
    }


def name_of(norm: str, noise: float) -> str:
    return f"{LABELS[norm]}, noise {noise:g}" if noise else LABELS[norm]


def chosen(result: Any, norm: str, noise: float, rate: float) -> list[Json]:
    wanted = (norm, noise, rate)
    return [
        run["result"]
        for run in result["runs"]
        if tuple(run["settings"][name] for name in ("norm", "noise", "rate")) == wanted
    ]


def line(axes: Any, x: Sequence[float], curves: list[list[float | None]], norm: str, noise: int, label: str) -> None:
    """Medians and the band of the seeds, as far as all have a number."""
    length = min(len(one) if None not in one else one.index(None) for one in curves)
    spreads = [spread(values) for values in zip(*(one[:length] for one in curves), strict=True)]
    _plots.band(axes, x[:length], spreads, label, list(LABELS).index(norm))
    axes.lines[-1].set(linestyle=STYLES[noise], marker="" if len(x) > 25 else _plots.MARKERS[noise], markersize=3)


def drifts(pyplot: Any, result: Any) -> Any:
    """Over steps, and over layers, at the rate that is best without norm."""
    found, noises = result["summary"], result["summary"]["noises"]
    figure, axes = pyplot.subplots(2, 2, figsize=(9, 6.6))
    places = {"step": axes[0][0], "start": axes[0][1], "gradient": axes[1][0]}
    layers, last = range(2, found["layers"] + 2), axes[1][1]
    for norm in LABELS:
        for index in (0, len(noises) - 1):
            results, label = chosen(result, norm, noises[index], found["shown"]), name_of(norm, noises[index])
            for kind, place in places.items():
                line(place, results[0]["steps"], [one[f"{kind} by step"] for one in results], norm, index, label)
            line(last, layers, [one["step by layer"] for one in results], norm, index, label)
    for kind, place in places.items():
        place.set(xlabel="step", ylabel=KINDS[kind], xscale="log", yscale="log", title=f"{KINDS[kind]}, mean of layers")
    last.set(
        xlabel="layer",
        ylabel=KINDS["step"],
        yscale="log",
        title=f"{KINDS['step']}, mean of probed steps",
        xticks=layers,
    )
    figure.legend(*last.get_legend_handles_labels(), loc="outside lower center", ncol=3)
    figure.suptitle(f"learning rate {found['shown']:g}")
    return figure


def losses(place: Any, result: Any, rate: float, norm: str, index: int, noise: float) -> None:
    if index in (0, len(result["summary"]["noises"]) - 1):
        results = chosen(result, norm, noise, rate)
        curves = [one["loss"] for one in results]
        steps = [(n + 1) * results[0]["steps of a point"] for n in range(max(map(len, curves)))]
        line(place, steps, curves, norm, index, name_of(norm, noise))
    place.set(xlabel="step", ylim=(4e-4, 8))


def speeds(place: Any, result: Any, rate: float, norm: str, index: int, noise: float) -> None:
    """Each run's drift and mean loss."""
    points = [measured(one) for one in chosen(result, norm, noise, rate)]
    there = [(one["step"], one["loss"]) for one in points if math.isfinite(one["step"] + one["loss"])]
    colour, label = _plots.COLOURS[list(LABELS).index(norm)], name_of(norm, noise)
    inside = "none" if noise else colour
    x, y = zip(*there, strict=True) if there else ((), ())
    place.scatter(x, y, s=22, color=colour, marker=_plots.MARKERS[index], facecolors=inside, label=label)
    place.set(xlabel=KINDS["step"], xscale="log")


def by_rate(pyplot: Any, result: Any, draw: Callable[..., None], height: str) -> Any:
    """A plot for each rate."""
    rates = result["summary"]["rates"]
    figure, axes = pyplot.subplots(1, len(rates), figsize=(max(7, 2.5 * len(rates)), 3.8), sharey=True, squeeze=False)
    for place, rate in zip(axes[0], rates, strict=True):
        for norm in LABELS:
            for index, noise in enumerate(result["summary"]["noises"]):
                draw(place, result, rate, norm, index, noise)
        place.set(yscale="log", title=f"learning rate {rate:g}")
    axes[0][0].set_ylabel(height)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncol=3)
    return figure


def figures(pyplot: Any, result: Any) -> dict[str, Any]:
    return {
        "drift": drifts(pyplot, result),
        "loss": by_rate(pyplot, result, losses, "training loss"),
        "speed": by_rate(pyplot, result, speeds, "mean training loss of all steps"),
    }


def cell(page: Page, path: str, name: str, spec: str = ".3g") -> str:
    """Median and range of the seeds that have one, and how many have none."""
    none = page.at(f"{path}/{name}, none in")
    missing = f"none in {{{path}/{name}, none in}}" if none else ""
    return ", ".join(
        part for part in (range_of(f"{path}/{name}", spec) if page.at(f"{path}/{name}") else "", missing) if part
    )


def variants(page: Page) -> list[tuple[str, str, str]]:
    """Label, norm and noise of each network."""
    noises = page.at("summary/noises")
    return [
        (f"{label}, noise {{summary/noises/{index}}}" if noise else label, norm, f"{noise:g}")
        for norm, label in LABELS.items()
        for index, noise in enumerate(noises)
    ]


def tables(page: Page) -> None:
    rates = [str(rate) for rate in page.at("summary/rates")]
    heads = [f"rate {{summary/rates/{index}}}" for index in range(len(rates))]
    networks = variants(page)
    for text, name in (
        ("Mean training loss of all steps, the area under the curve (“none in”: so many seeds diverged):", "loss"),
        ("Drift in a step, mean over layers and probed steps, likewise:", "step"),
    ):
        page.say(text)
        page.table(
            ["network", *heads],
            [
                [label, *(cell(page, f"summary/table/{norm}/{noise}/{rate}", name) for rate in rates)]
                for label, norm, noise in networks
            ],
        )
    targets = page.at("summary/targets")
    page.say(
        "Each at its own best rate, the one with the lowest median of the mean loss (“none in”: so many seeds never got there):"
    )
    names = [*(f"to {target}" for target in targets), *KINDS]
    page.table(
        ["network", "rate", *(f"steps to loss {{summary/targets/{n}}}" for n in range(len(targets))), *KINDS.values()],
        [
            [
                label,
                f"{{summary/best rate/{norm}/{noise}}}",
                *(cell(page, f"summary/table/{norm}/{noise}/{best}", name, ".3g") for name in names),
            ]
            for label, norm, noise in networks
            for best in [page.at(f"summary/best rate/{norm}/{noise}")]
        ],
    )


def introduce(page: Page) -> None:
    page.say(
        "A network of {summary/layers} hidden layers of {summary/width} units (product, norm, ReLU; He's initialisation) reads "
        "scikit-learn's digits for {summary/steps} steps of plain SGD with batches of {summary/batch size}: the same first "
        "weights, data and order for all networks of a seed. Noise comes between norm and ReLU, after Santurkar et al.: at size s each unit is shifted by up "
        "to s to either side and scaled by a factor from one to one plus {summary/factor} s, both drawn anew for each step; each sample's own "
        "shift and factor lie around these by up to {summary/own} s."
    )
    page.say(
        "The input of a layer is looked at before the ReLU below it, over {summary/held-out samples} held-out samples that stay "
        "the same, in training mode. **Drift** is the Wasserstein distance of order two between a unit's distributions, RMS over the units, "
        "relative to the RMS of their standard deviations: between before and after a step (“in a step”, the next step's noise included), or between the "
        "first weights and now (“from the start”). A drift of one is thus as much as the distribution is wide. The **change of the gradient** is the distance of a weight's gradient before "
        "and after the layers below take their step, relative to the gradient; same batch. All are means over layers and {summary/probed steps} "
        "probed steps, dense at the beginning. A target counts as reached when the mean loss of {summary/smoothed over} steps is at most that."
    )


def write(page: Page) -> Mapping[str, str]:
    introduce(page)
    page.figure(
        "drift", "Drift and change of the gradient over steps and layers: medians of the seeds, smallest to largest"
    )
    tables(page)
    page.figure("loss", "Training loss over steps at each rate: medians of the seeds, smallest to largest")
    page.figure("speed", "Mean training loss over drift in a step, a point for each run")
    page.say(
        "Spearman's rank correlation of the mean loss with each, over all networks of a seed that did not diverge, noisy ones "
        "included (above zero: what drifts less learns faster):"
    )
    page.table(
        ["rate", *KINDS.values()],
        [
            [f"{{{where}/rate}}", *(range_of(f"{where}/{kind}", "+.2f") if one[kind] else "none" for kind in KINDS)]
            for index, one in enumerate(page.at("summary/correlation"))
            for where in [f"summary/correlation/{index}"]
        ],
    )
    return because(page)


def because(page: Page) -> dict[str, str]:
    def drift_of(norm: str) -> str:
        less, more = f"summary/less/{norm}", f"summary/more/{norm}"
        return (
            f"Beside no norm at the same rate, {LABELS[norm]} drifts less in a step in every seed at these rates: "
            f"{{{less}/step}}; more at these: {{{more}/step}}. From the start, less at: {{{less}/start}}; more at: "
            f"{{{more}/start}}. Compared are the rates at which none of the networks diverged: {{summary/compared}}."
        )

    noisy = [
        f"With noise {{{where}/noise}} behind it, {LABELS[norm]} drifts more than no norm at these rates: {{{where}/drifts more at}}; of "
        f"them it is faster in every seed at: {{{where}/and is faster at}}, slower at: {{{where}/and is slower at}}"
        for norm in NORMED
        for index in range(len(page.at(f"summary/noisy/{norm}")))
        for where in [f"summary/noisy/{norm}/{index}"]
    ]
    both = [
        f"{LABELS[norm]} drifts {how.replace(' and', ' and is')} at: {{summary/both/{norm}/{how}}}"
        for norm in NORMED
        for how, rates in page.at(f"summary/both/{norm}").items()
        if rates
    ]
    return {
        **{norm: drift_of(norm) for norm in NORMED},
        "cause": "By mean loss at the same rate, batch norm is faster than no norm in every seed at these rates: "
        "{summary/faster/batch}, slower at: {summary/slower/batch}; layer norm is faster at: {summary/faster/layer}, slower at: "
        "{summary/slower/layer}. Drift in a step beside that, both in every seed and without noise: "
        f"{'; '.join(both) or 'nothing'}. The claim has the cases “less and faster” and “more and slower” "
        "on its side. Over all networks the correlation is above zero in every seed at these rates: {summary/correlated at} (compared are: {summary/compared}). Going together "
        "shows no cause: noise makes drift, and may hinder learning by itself.",
        "noise": ". ".join(noisy)
        + ". By mean loss at the same rate; each is compared with the network without norm and without noise.",
        "gradient": "The gradient changes less than without norm, in every seed, at these rates with batch norm: "
        "{summary/less/batch/gradient}, with layer norm: {summary/less/layer/gradient}; more with batch norm: "
        "{summary/more/batch/gradient}, with layer norm: {summary/more/layer/gradient}. Compared are: {summary/compared}.",
    }


SECTION = Section("shift", "Covariate shift", CLAIMS, shift.runs, shift.run, summary, judge, figures, write)
