"""The section `shift`: its claims, verdicts, plots and text."""

import math
from typing import Any

from . import _plots, batch, shift
from ._claims import BA, CONDITIONS, FAILS, HOLDS, Claim, extent
from ._page import listed, picture, ranged, table
from ._sections import Json, Runs, Section, Text, ahead, choices, mean, results, spread

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
        f"{BA}, section 3",
    ),
    Claim(
        "cause",
        "Less drift goes with faster learning: norms speed up learning because they reduce drift.",
        f"{IOFFE}, abstract; many texts repeat it for layer norm",
    ),
    Claim(
        "noise",
        "A norm's speed does not come from less drift: with noise after it, so that the inputs drift more than "
        "without a norm, the network still learns faster than without a norm.",
        f"{SANTURKAR}, section 2.1, for batch norm; the same for layer norm is our own question",
    ),
    Claim(
        "gradient",
        "Norms do not reduce the change of a layer's gradient when the layers below it take their step.",
        f"{SANTURKAR}, section 2.2, for batch norm; the same for layer norm is our own question",
    ),
)
LABELS = {"none": "no norm", "batch": "batch norm", "layer": "layer norm"}
NORMED = ("batch", "layer")
KINDS = {"step": "drift in a step", "start": "drift from the start", "gradient": "change of the gradient"}
NOISE = shift.NOISES[-1]


def figures_of(found: Json) -> dict[str, float]:
    """A run's mean loss and mean drifts. A run that diverged has an infinite loss, and NaN as drifts."""
    values = {kind: found[f"{kind} by step"] for kind in KINDS}
    finite = found["finite"] and all(None not in one for one in values.values())
    return {
        "loss": found["mean loss"] if found["finite"] else math.inf,
        **{kind: mean(one) if finite else math.nan for kind, one in values.items()},
    }


def summary(runs: Runs) -> dict[str, Any]:
    rates = choices(runs, "rate")
    of = {
        (norm, noise, rate): results(runs, norm=norm, noise=noise, rate=rate)
        for norm in LABELS
        for noise in shift.NOISES
        for rate in rates
    }
    values = {place: [figures_of(one) for one in seeds] for place, seeds in of.items()}

    def finite(rate: float) -> bool:
        return all(math.isfinite(one) for norm in LABELS for seed in values[norm, 0.0, rate] for one in seed.values())

    return {
        "steps": choices(runs, "steps")[0],
        "rates": rates,
        "compared": [rate for rate in rates if finite(rate)],
        "values": values,
        "results": of,
        "shown": min(rates, key=lambda rate: spread([one["loss"] for one in values["none", 0.0, rate]]).median),
    }


def below(found: dict[str, Any], key: str, norm: str, noise: float = 0.0) -> list[float]:
    """Rates at which the norm's figure is below that of the network without norm and noise, in every seed."""
    return [rate for rate in found["compared"] if ahead(*both(found, key, rate, norm, noise))]


def above(found: dict[str, Any], key: str, norm: str, noise: float = 0.0) -> list[float]:
    return [rate for rate in found["compared"] if ahead(*reversed(both(found, key, rate, norm, noise)))]


def both(found: dict[str, Any], key: str, rate: float, norm: str, noise: float) -> tuple[list[float], list[float]]:
    """The seeds' figures of the network without norm and noise, and of the network with `norm` and `noise`."""
    plain, other = found["values"]["none", 0.0, rate], found["values"][norm, noise, rate]
    return [one[key] for one in plain], [one[key] for one in other]


def together(found: dict[str, Any], norm: str) -> dict[str, list[float]]:
    """The rates at which less or more drift in a step goes with faster or slower learning, in every seed."""
    less, more = below(found, "step", norm), above(found, "step", norm)
    faster, slower = below(found, "loss", norm), above(found, "loss", norm)
    return {
        "less and is faster": [rate for rate in less if rate in faster],
        "more and is slower": [rate for rate in more if rate in slower],
        "less and is slower": [rate for rate in less if rate in slower],
        "more and is faster": [rate for rate in more if rate in faster],
    }


def judge(found: dict[str, Any]) -> dict[str, str]:
    compared = len(found["compared"])
    drifts = {norm: len(below(found, "step", norm)) + len(below(found, "start", norm)) for norm in NORMED}
    agree = [
        rate
        for norm in NORMED
        for how, rates in together(found, norm).items()
        if how in ("less and is faster", "more and is slower")
        for rate in rates
    ]
    noisy = [(norm, rate) for norm in NORMED for rate in above(found, "step", norm, NOISE)]
    faster = [(norm, rate) for norm, rate in noisy if rate in below(found, "loss", norm, NOISE)]
    reduced = extent(sum(len(below(found, "gradient", norm)) for norm in NORMED), len(NORMED) * compared)
    return {
        **{norm: extent(drifts[norm], 2 * compared) for norm in NORMED},
        "cause": extent(len(agree), len(NORMED) * compared),
        "noise": extent(len(faster), len(noisy)),
        "gradient": {HOLDS: FAILS, FAILS: HOLDS, CONDITIONS: CONDITIONS}[reduced],
    }


def network(norm: str, noise: float) -> str:
    return f"{LABELS[norm]}, noise {noise:g}" if noise else LABELS[norm]


def figures(pyplot: Any, _: Runs, found: dict[str, Any]) -> dict[str, Any]:
    return {"drift": drifts(pyplot, found), "loss": losses(pyplot, found)}


def draw(place: Any, found: dict[str, Any], rate: float, key: str, steps: list[int]) -> None:
    """Draws a line for each network at a rate, up to the first step at which a seed has no number."""
    for index, norm in enumerate(LABELS):
        for noise in shift.NOISES:
            seeds = [one[key] for one in found["results"][norm, noise, rate]]
            length = min(len(one) if None not in one else one.index(None) for one in seeds)
            style = {"linestyle": "--" if noise else "-", "marker": ""}
            curves = [one[:length] for one in seeds]
            _plots.band(place, steps[:length], curves, network(norm, noise), index, **style)


def drifts(pyplot: Any, found: dict[str, Any]) -> Any:
    """Draws the measures over steps, at the rate that is best without a norm."""
    figure, axes = pyplot.subplots(1, len(KINDS), figsize=(10, 3.8))
    for place, (kind, label) in zip(axes, KINDS.items(), strict=True):
        draw(place, found, found["shown"], f"{kind} by step", shift.probed(found["steps"]))
        place.set(xlabel="step", xscale="log", yscale="log", title=label)
    _plots.legend(figure)
    return figure


def losses(pyplot: Any, found: dict[str, Any]) -> Any:
    rates, width = found["rates"], max(1, found["steps"] // shift.CURVE)
    figure, axes = pyplot.subplots(1, len(rates), figsize=(10, 3.8), sharey=True, squeeze=False)
    for place, rate in zip(axes[0], rates, strict=True):
        draw(place, found, rate, "loss", list(range(width, found["steps"] + 1, width)))
        place.set(xlabel="step", yscale="log", ylim=(4e-4, 8), title=f"learning rate {rate:g}")
    axes[0][0].set_ylabel("training loss")
    _plots.legend(figure)
    return figure


def cell(values: list[float]) -> str:
    """The range over the seeds that have a number, and the number of seeds that diverged."""
    numbers = [one for one in values if math.isfinite(one)]
    missing = f"{len(values) - len(numbers)} diverged"
    return ", ".join(([ranged(spread(numbers))] if numbers else []) + ([missing] if len(numbers) < len(values) else []))


def write(found: dict[str, Any], verdicts: dict[str, str]) -> Text:
    rates, values = found["rates"], found["values"]

    def by_rate(key: str) -> str:
        rows = [
            [network(norm, noise), *(cell([one[key] for one in values[norm, noise, rate]]) for rate in rates)]
            for norm in LABELS
            for noise in shift.NOISES
        ]
        return table(["network", *(f"rate {rate}" for rate in rates)], rows)

    body = [
        f"A network of {shift.LAYERS} hidden layers of {batch.WIDTH} units (product, norm, ReLU; He's initialisation) "
        f"reads scikit-learn's digits for {found['steps']} steps of plain SGD with batches of {shift.SIZE}. For each "
        "seed, all networks have the same first weights and data. Noise comes between norm and ReLU, as in Santurkar "
        f"et al.: at noise s, each unit is shifted by up to s and scaled by a factor from 1 to 1 + {shift.FACTOR} s. "
        "Both are redrawn for each step.",
        f"The inputs of a layer are taken before the ReLU, over {shift.HELD} held-out samples in training mode. "
        "**Drift** is the Wasserstein distance of order two between a unit's distributions, relative to their "
        "standard deviation. It compares the distributions before and after a step (with the next step's noise), or "
        "those at the start and after the step. The **change of the gradient** is how much a weight's gradient changes, relative to its size, "
        f"when the layers below take their step. All are means over layers and {len(shift.probed(found['steps']))} "
        "steps, dense at the beginning.",
        picture("shift", "drift", f"Drift and change of the gradient over steps, learning rate {found['shown']}"),
        "Mean training loss over all steps:",
        by_rate("loss"),
        "Drift in a step, mean over layers and steps:",
        by_rate("step"),
        picture("shift", "loss", "Training loss over steps at each learning rate"),
    ]
    return Text(body, because(found))


def because(found: dict[str, Any]) -> dict[str, str]:
    def sides(key: str, norm: str) -> str:
        return f"less at rates: {listed(below(found, key, norm))}; more at: {listed(above(found, key, norm))}"

    def drift(norm: str) -> str:
        return (
            f"Compared with no norm at the same rate, {LABELS[norm]} drifts in a step, in every seed, "
            f"{sides('step', norm)}. From the start, it drifts {sides('start', norm)}. Only rates at which no network "
            f"diverged are compared: {listed(found['compared'])}."
        )

    def noisy(norm: str) -> str:
        more = above(found, "step", norm, NOISE)
        faster = [rate for rate in more if rate in below(found, "loss", norm, NOISE)]
        return (
            f"With noise {NOISE} after it, {LABELS[norm]} drifts more in a step than no norm without noise at rates: "
            f"{listed(more)}. Of these rates, it learns faster in every seed at: {listed(faster)}."
        )

    found_together = [
        f"{LABELS[norm]} drifts {how} at rates: {listed(rates)}"
        for norm in NORMED
        for how, rates in together(found, norm).items()
        if rates
    ]
    return {
        **{norm: drift(norm) for norm in NORMED},
        "cause": "Drift in a step and mean loss, compared with no norm at the same rate, in every seed: "
        f"{'; '.join(found_together) or 'none'}. The "
        'claim predicts "less and is faster" or "more and is slower". That they occur together does not show a cause.',
        "noise": " ".join(map(noisy, NORMED)),
        "gradient": ". ".join(
            f"With {LABELS[norm]} the gradient changes, in every seed, {sides('gradient', norm)}" for norm in NORMED
        )
        + ".",
    }


SECTION = Section("shift", "Covariate shift", CLAIMS, shift.runs, shift.run, summary, judge, figures, write)
