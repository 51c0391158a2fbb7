"""The section `bits`: its claims, verdicts, plots and text."""

from collections.abc import Sequence
from itertools import product
from typing import Any

from . import _plots, bits, gpt
from ._claims import CONDITIONS, FAILS, HOLDS, Claim, extent
from ._page import listed, picture, ranged, table
from ._sections import Runs, Section, Text, ahead, choices, results, spread

FAST_LLM = "Fast-LLM's documentation, option zero_centered of norms: more accurate near 1"
PEFT = "a common practice: PEFT's prepare_model_for_kbit_training converts norms to float32 for stability"
CLAIMS = (
    Claim(
        "weight",
        "With all parameters in bf16, a norm's weight does not train: rounding to nearest cancels small updates.",
        "Zamirai et al., Revisiting BFloat16 Training, arXiv:2010.06192 (2020), abstract, for weights of any kind",
    ),
    Claim("one plus", "With gamma = 1 + weight, a norm's weight trains in bf16, and the loss falls.", FAST_LLM),
    Claim("float32", "Norms with float32 parameters are enough: all other parameters may be bf16.", PEFT),
    Claim(
        "sums",
        "Gradients of gamma and beta are summed over the rows in float32, so bf16 costs them one rounding only.",
        "Micikevicius et al., Mixed Precision Training, arXiv:1710.03740 (2017), section 3.3, for large reductions",
    ),
    Claim("exact", "Exact gradients of gamma and beta lower the loss.", "our own question"),
)
TORCH, EVENORM, ZERO, FLOAT32, ALL, _ = bits.KINDS
ROUNDING = 2**-8  # the largest relative error of one rounding to bf16
CLOSE = 0.01  # losses within this distance, in nats, are equally good


def summary(runs: Runs) -> dict[str, Any]:
    rates, parts = choices(runs, "rate"), choices(runs, "part")
    of = {at: results(runs, part=at[0], norm=at[1], rate=at[2]) for at in product(parts, bits.KINDS, rates)}
    moved = {at: [one["moved"][-1] for one in seeds] for at, seeds in of.items()}
    many = [run["errors"] for run in results(runs, part="many")]
    errors = {name: list(zip(*(one[name] for one in many), strict=True)) for name in many[0]}  # by norm and run
    return {
        "rates": rates,
        "steps": choices(runs, "steps"),
        "rows": [gpt.CONTEXT * windows for windows in choices(runs, "windows")],
        "of": of,
        "loss": {at: [one["loss"][-1] for one in seeds] for at, seeds in of.items()},
        "moved": moved,
        "still": {norm: [rate for rate in rates if not any(moved["few", norm, rate])] for norm in bits.KINDS},
        "errors": errors,
        "largest": {name: max(run[-1] for norm in norms for run in norm) for name, norms in errors.items()},
    }


def minus(a: Sequence[float], b: Sequence[float]) -> list[float]:
    return [one - other for one, other in zip(a, b, strict=True)]


def apart(found: dict[str, Any], norm: str, other: str, part: str = "few") -> dict[float, list[float]]:
    """The norm's last loss minus the other's, seed by seed, for each rate."""
    return {rate: minus(found["loss"][part, norm, rate], found["loss"][part, other, rate]) for rate in found["rates"]}


def lower(found: dict[str, Any], norm: str, *others: str, part: str = "few") -> list[float]:
    """The rates at which the norm's last loss is below the others' in every seed."""
    differences = [apart(found, norm, other, part) for other in others]
    return [rate for rate in found["rates"] if max(max(one[rate]) for one in differences) < 0]


def judge(found: dict[str, Any]) -> dict[str, str]:
    rates, still = len(found["rates"]), found["still"]
    trains = set(lower(found, ZERO, TORCH, EVENORM)) - set(still[ZERO])
    gap = max(spread(one).median for one in apart(found, FLOAT32, ALL).values())
    return {
        "weight": extent(len(still[TORCH] + still[EVENORM]), 2 * rates),
        "one plus": extent(len(trains), rates),
        "float32": HOLDS if gap <= CLOSE else CONDITIONS if lower(found, FLOAT32, TORCH, EVENORM) else FAILS,
        "sums": extent(sum(one <= ROUNDING for one in found["largest"].values()), len(found["largest"])),
        "exact": extent(len(lower(found, FLOAT32, bits.PAIR[0], part="many")), rates),
    }


def figures(pyplot: Any, _: Runs, found: dict[str, Any]) -> dict[str, Any]:
    """Draws the losses minus those of torch.nn and the distances of gamma from 1, and the errors of gradients."""
    training, axes = pyplot.subplots(2, len(found["rates"]), figsize=(9, 5.4), sharex=True, sharey="row", squeeze=False)
    steps = [found["steps"][0] * (check + 1) / bits.CHECKS for check in range(bits.CHECKS)]
    for (above, below), rate in zip(axes.T, found["rates"], strict=True):
        for index, norm in enumerate((TORCH, EVENORM, ZERO, FLOAT32, ALL)):
            seeds, base = found["of"]["few", norm, rate], found["of"]["few", TORCH, rate]
            _plots.band(below, steps, [one["moved"] for one in seeds], norm, index)
            if norm not in (TORCH, ALL):  # the reference, and losses far below the others
                losses = [minus(one["loss"], other["loss"]) for one, other in zip(seeds, base, strict=True)]
                _plots.band(above, steps, losses, norm, index)
        above.set(title=f"learning rate {rate}")
        below.set(xlabel="step")
    axes[0][0].set_ylabel("loss minus torch.nn's in bf16")
    axes[1][0].set_ylabel("mean of |gamma - 1|")
    gradients, place = pyplot.subplots(figsize=(9, 3.6))
    for index, (name, norms) in enumerate(found["errors"].items()):
        _plots.band(place, [found["rows"][1] // share for share in bits.SHARES], sum(norms, ()), name, index)
    place.axhline(ROUNDING, color="grey", linestyle="--", label="one rounding, at most")
    place.set(xscale="log", yscale="log", xlabel="rows", ylabel="relative error, median over columns")
    for figure in (training, gradients):
        _plots.legend(figure)
    return {"training": training, "gradients": gradients}


def write(found: dict[str, Any], verdicts: dict[str, str]) -> Text:
    loss, moved = found["loss"], found["moved"]
    few, many = (f"{found['steps'][part]:,} steps of {found['rows'][part]:,} characters" for part in (0, 1))
    trained = [
        [
            rate,
            norm,
            ranged(spread(loss["few", norm, rate]), ".3f"),
            ranged(spread(apart(found, norm, TORCH)[rate]), "+.4f"),
            ranged(spread(moved["few", norm, rate]), ".2g"),
        ]
        for rate in found["rates"]
        for norm in (TORCH, EVENORM, ZERO, FLOAT32, ALL)
    ]
    measured = [
        [at + 1, *(ranged(spread([run[-1] for run in norm]), ".2%") for norm in norms)]
        for at, norms in enumerate(zip(*found["errors"].values(), strict=True))
    ]
    body = [
        f"The pre-norm GPT of the section `depth`, with {bits.DEPTH} layers, makes {few} with AdamW at a constant rate. In "
        "bf16, parameters, activations and AdamW's moments are bf16; PyTorch's matrix products and the loss are summed in "
        "float32. Norms with float32 parameters read and write bf16. A zero-centred norm multiplies by 1 + weight. For "
        "each seed, all networks have the same first weights and text.",
        picture("bits", "training", "Held-out loss minus that of torch.nn in bf16, and distance of gamma from 1"),
        "After the last step, with the difference from torch.nn in bf16 seed by seed:",
        table(["rate", "norms", "held-out loss", "difference", "mean of abs(gamma - 1)"], trained),
        f"Networks whose norms have float32 parameters, from torch.nn or evenorm, also make {many}. In the step after "
        "them, the gradients of gamma and beta are computed in bf16 on one thread, from each norm's x and dy, and compared "
        "with float64. An error is the median of the relative errors of all columns. In a step of all rows, it is:",
        table(["norm", *found["errors"]], measured),
        picture("bits", "gradients", "Relative error of the gradients over rows, all norms and runs"),
    ]
    return Text(body, because(found))


def because(found: dict[str, Any]) -> dict[str, str]:
    moved, other = found["moved"], bits.PAIR[0]

    def listed_changes(*compared: str) -> str:
        return listed(f"{ranged(spread(one), '+.4f')} at {rate}" for rate, one in apart(found, *compared).items())

    slower = [rate for rate in found["rates"] if ahead(moved["few", FLOAT32, rate], moved["few", ZERO, rate])]
    return {
        "weight": f"Gamma is exactly 1 after training, in every seed, with torch.nn at rates: {listed(found['still'][TORCH])}; "
        f"with evenorm at: {listed(found['still'][EVENORM])}. A step of AdamW is about as large as the rate. It is lost if it "
        "is less than half of bf16's spacing, which is 0.0039 below 1.",
        "one plus": "The loss is lower than with a bf16 weight, torch.nn's or evenorm's, in every seed, at rates: "
        f"{listed(lower(found, ZERO, TORCH, EVENORM))}. Gamma moves less far than with float32 parameters, in every seed, at: "
        f"{listed(slower)}. Half of the spacing is 0.001 from 0.25 on, so a large weight stops, too.",
        "float32": "The loss is lower than with a bf16 weight, torch.nn's or evenorm's, in every seed, at rates: "
        f"{listed(lower(found, FLOAT32, TORCH, EVENORM))}. Minus that of a network in "
        f"float32, it is {listed_changes(FLOAT32, ALL)}.",
        "sums": f"In a step of {found['rows'][1]:,} rows, the largest errors over norms and runs are "
        f"{listed(f'{error:.2%} ({name})' for name, error in found['largest'].items())}. One rounding makes at most "
        f"{ROUNDING:.2%}. PyTorch's CPU kernel adds in bf16, so its error grows with the rows.",
        "exact": f"In steps of {found['rows'][1]:,} rows with float32 parameters, the loss with evenorm's gradients instead of "
        f"PyTorch's is lower in every seed at rates: {listed(lower(found, FLOAT32, other, part='many'))}; higher at: "
        f"{listed(lower(found, other, FLOAT32, part='many'))}. It changes by {listed_changes(FLOAT32, other, 'many')}.",
    }


SECTION = Section("bits", "Training in 16 bits", CLAIMS, bits.runs, bits.run, summary, judge, figures, write)
