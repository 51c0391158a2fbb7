"""The section `recurrent`: its claims, verdicts, plots and text."""

import math
from typing import Any

from . import _plots, recurrent
from ._claims import BA, CONDITIONS, FAILS, HOLDS, Claim, extent
from ._page import listed, picture, ranged, table
from ._rates import at_rates, larger_rate, lower
from ._sections import Runs, Section, Text, ahead, choices, results, spread

CLAIMS = (
    Claim(
        "stable",
        "Layer norm makes a recurrent network invariant to a re-scaling of all its weights. It also makes the dynamics "
        "from hidden state to hidden state much more stable: without it, gradients vanish or explode over the time "
        "steps.",
        f"{BA}, abstract and section 3.1",
    ),
    Claim("faster", "Recurrent networks learn in fewer steps with layer norm.", f"{BA}, abstract and section 6"),
    Claim(
        "rates",
        "Layer norm keeps training stable at larger learning rates.",
        f"a common reading of {BA}, section 5.2.2: growing weights lower the rate of their directions",
    ),
    Claim(
        "longer",
        "Layer norm handles sequences that are longer than all those of training: unlike batch norm, it needs no "
        "statistics for each time step.",
        f"{BA}, section 3.1",
    ),
    Claim(
        "company",
        "The result of a sequence does not depend on the other sequences of its batch, nor on padding.",
        f"{BA}, sections 3 and 3.1; whether this holds to the bit is our own question",
    ),
)
TASKS = {"rows": "digits by row", "marked": "the marked symbol", "most": "the most frequent symbol"}
CELLS = {"lstm": "LSTM", "gru": "GRU"}
NORMS = {"none": "no norm", "layer": "layer norm"}
CLOSE = 0.05  # an output is stable if it moves by at most this share; accuracy is kept if it falls by at most this
TRAINS = 0.5  # a rate trains if its last losses are at most this share of the loss of guessing in every seed
PRODUCT = "product, other numbers of rows"
ALIKE = (  # the changes that keep the shapes of the matrix products
    "norm, other numbers of rows",
    "packed, other sequences of the same lengths",
    "padded, other padding",
    "padded, other sequences",
)


def training(runs: Runs, task: str, cell: str, norm: str) -> dict[str, Any]:
    """The results of one network at all its rates."""
    wanted = {"part": "train", "task": task, "cell": cell, "norm": norm}
    of = {rate: results(runs, rate=rate, **wanted) for rate in choices(runs, "rate")}
    guess = math.log(recurrent.DIGITS if task == "rows" else recurrent.SYMBOLS)
    found = at_rates(of, "last loss", TRAINS * guess)
    names = [name for name in ("accuracy", "longer") if name in found["seeds"][0]]
    return {**found, **{name: [one[name] for one in found["seeds"]] for name in names}}


def summary(runs: Runs) -> dict[str, Any]:
    tasks = choices(runs, "task")
    dynamics = {
        (cell, norm, scale): results(runs, part="dynamics", cell=cell, norm=norm, scale=scale)
        for cell in CELLS
        for norm in NORMS
        for scale in recurrent.SCALES
    }
    company = {cell: results(runs, part="company", cell=cell) for cell in CELLS}
    return {
        "steps": runs[0]["settings"]["steps"],
        "training": {
            f"{CELLS[cell]} on {TASKS[task]}": {norm: training(runs, task, cell, norm) for norm in NORMS}
            for task in tasks
            for cell in CELLS
        },
        "moved": {place: [one["moved"] for one in seeds] for place, seeds in dynamics.items()},
        "gradients": {
            place: [[value / one["gradient"][-1] for value in one["gradient"]] for one in seeds]
            for place, seeds in dynamics.items()
        },
        "bits": {kind: [max(one[kind] for one in company[cell]) for cell in CELLS] for kind in company["lstm"][0]},
    }


def made(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The networks trained on sequences of different lengths."""
    return {name: of for name, of in found["training"].items() if "longer" in of["layer"]}


def keeps_accuracy(found: dict[str, Any], norm: str) -> list[str]:
    """The networks whose accuracy, in the median, falls by at most CLOSE on longer sequences."""

    def drop(of: dict[str, Any]) -> float:
        pairs = zip(of[norm]["accuracy"], of[norm]["longer"], strict=True)
        return spread([known - longer for known, longer in pairs]).median

    return [name for name, of in made(found).items() if drop(of) <= CLOSE]


def stays_at(found: dict[str, Any], norm: str) -> list[str]:
    """The factors of the weights for which the output of both cells is stable in every seed."""
    factors = [scale for scale in recurrent.SCALES if scale != 1]
    return [f"{one:g}" for one in factors if all(max(found["moved"][cell, norm, one]) <= CLOSE for cell in CELLS)]


def steadier(found: dict[str, Any]) -> list[str]:
    """Cells whose gradient keeps its size better with layer norm in every seed, with PyTorch's own weights."""

    def decades(cell: str, norm: str) -> list[float]:
        return [abs(math.log10(seed[0])) for seed in found["gradients"][cell, norm, 1.0]]

    return [label for cell, label in CELLS.items() if ahead(decades(cell, "none"), decades(cell, "layer"))]


def judge(found: dict[str, Any]) -> dict[str, str]:
    places = len(found["training"])
    kept, behind = keeps_accuracy(found, "layer"), lower(made(found), "longer", "layer", "none")
    stable = len(stays_at(found, "layer")) + len(steadier(found))
    bits = {kind: any(both) for kind, both in found["bits"].items()}
    return {
        "stable": extent(stable, len(recurrent.SCALES) - 1 + len(CELLS)),
        "faster": extent(len(lower(found["training"], "mean loss", "layer", "none")), places),
        "rates": extent(len(larger_rate(found["training"], "layer", "none")), places),
        "longer": CONDITIONS if kept and behind else extent(len(kept), len(made(found))),
        "company": FAILS
        if any(bits[kind] for kind in ALIKE)
        else (CONDITIONS if any(yes for kind, yes in bits.items() if kind != PRODUCT) else HOLDS),
    }


def figures(pyplot: Any, _: Runs, found: dict[str, Any]) -> dict[str, Any]:
    return {"loss": losses(pyplot, found), "gradient": gradients(pyplot, found)}


def losses(pyplot: Any, found: dict[str, Any]) -> Any:
    networks = found["training"]
    columns = len(networks) // len(CELLS)
    figure, axes = pyplot.subplots(len(CELLS), columns, figsize=(9, 5), sharex=True, squeeze=False)
    for place, (title, of) in zip(axes.T.flat, networks.items(), strict=True):
        for index, (norm, label) in enumerate(NORMS.items()):
            _plots.losses(place, found["steps"], [one["loss"] for one in of[norm]["seeds"]], label, index)
        place.set(yscale="log", xlabel="step", ylabel="training loss")
        place.set_title(title, fontsize=8)
        place.label_outer()
    _plots.legend(figure)
    return figure


def gradients(pyplot: Any, found: dict[str, Any]) -> Any:
    figure, axes = pyplot.subplots(1, len(CELLS) * len(NORMS), figsize=(10, 3.4), sharey=True)
    columns = [(cell, norm) for cell in CELLS for norm in NORMS]
    for place, (cell, norm) in zip(axes, columns, strict=True):
        for index, scale in enumerate(recurrent.SCALES):
            seeds = found["gradients"][cell, norm, scale]
            _plots.band(place, recurrent.STEPS_SHOWN, seeds, f"weights x {scale:g}", index)
        place.set(title=f"{CELLS[cell]}, {NORMS[norm]}", xlabel="time step", yscale="log")
    axes[0].set_ylabel("gradient of the state, last step's = 1")
    _plots.legend(figure)
    return figure


def training_rows(found: dict[str, Any]) -> list[list[object]]:
    return [
        [
            name,
            NORMS[norm],
            listed(one["trains at"]),
            one["fastest"],
            ranged(spread(one["mean loss"])),
            ranged(spread(one["accuracy"]), ".1%"),
            ranged(spread(one["longer"]), ".1%") if "longer" in one else "",
        ]
        for name, of in found["training"].items()
        for norm, one in of.items()
    ]


HEADS = ("network", "norm", "rates that train", "fastest rate", "mean loss", "accuracy", "on longer sequences")


def moved_table(found: dict[str, Any]) -> str:
    factors = [scale for scale in recurrent.SCALES if scale != 1]
    rows = [
        [CELLS[cell], NORMS[norm], *(ranged(spread(found["moved"][cell, norm, one]), ".2g") for one in factors)]
        for cell in CELLS
        for norm in NORMS
    ]
    return table(["cell", "norm", *(f"weights x {factor:g}" for factor in factors)], rows)


def write(found: dict[str, Any], verdicts: dict[str, str]) -> Text:
    shortest, longest = recurrent.LENGTHS
    beyond = recurrent.LONGER
    body = [
        f"One recurrent layer of {recurrent.WIDTH} units, an LSTM or a GRU, answers from its last state. Without a "
        "norm, it is torch.nn's; with layer norm, it is evenorm.torch.LayerNormLSTM or LayerNormGRU. For each seed, "
        f"both begin with the same weights. Adam makes {found['steps']} steps, without clipping. The network reads "
        f"scikit-learn's digits row by row, or packed sequences of {shortest} to {longest} of {recurrent.SYMBOLS} "
        "symbols, and names the marked symbol or the most frequent one. A rate **trains** if the mean of the last "
        f"tenth of the losses is at most {TRAINS:.0%} of the loss of guessing in every seed. The fastest rate has the "
        f"smallest mean loss over all steps. Longer sequences have {beyond[0]} to {beyond[1]} symbols.",
        table(HEADS, training_rows(found)),
        picture("recurrent", "loss", "Training loss by step, each at its fastest rate"),
        f"At initialisation, all weights are multiplied by a factor. The inputs are {beyond[1]} steps of normal "
        "numbers. The plot shows the gradient over the time steps. The table shows how far the last output moves, "
        "relative to its size:",
        picture("recurrent", "gradient", "Gradient of the state over time steps, by factor of the weights"),
        moved_table(found),
        "Bits of one sequence's last state that change with its batch, with layer norm, after some training; the "
        "largest number over all seeds. Another length or number of sequences changes the shape of the matrix "
        "products:",
        table(["change", *CELLS.values()], [[kind, *both] for kind, both in found["bits"].items()]),
    ]
    return Text(body, because(found, verdicts))


def because(found: dict[str, Any], verdicts: dict[str, str]) -> dict[str, str]:
    networks = found["training"]
    moved = {norm: max(max(seeds) for (_, of, _), seeds in found["moved"].items() if of == norm) for norm in NORMS}
    company = {
        HOLDS: "No bit changes with the batch.",
        CONDITIONS: "No bit changes while the matrix products keep their shapes. Another shape changes how PyTorch rounds "
        "the product before the norm. The norm of an unchanged row keeps its bits.",
        FAILS: "Bits change even where the matrix products keep their shapes: see the table.",
    }
    return {
        "stable": f"With layer norm, the output moves by at most {CLOSE:.0%} in both cells if the weights are "
        f"multiplied by: {listed(stays_at(found, 'layer'))}; without a norm, by: {listed(stays_at(found, 'none'))}. It "
        f"moves by at most {moved['layer']:.1%} with layer norm, because eps matters for small sums, and by up to "
        f"{moved['none']:.0%} without a norm. With PyTorch's own weights, the gradient keeps its size better with "
        f"layer norm in every seed of: {listed(steadier(found))}. Neither cell normalises the state that it passes on.",
        "faster": "By the mean loss over all steps, each at its fastest rate, layer norm is ahead in every seed of: "
        f"{listed(lower(networks, 'mean loss', 'layer', 'none'))}; behind in: {listed(lower(networks, 'mean loss', 'none', 'layer'))}. The time of "
        "a step is not counted.",
        "rates": "The largest rate that trains is larger with layer norm in: "
        f"{listed(larger_rate(networks, 'layer', 'none'))}; smaller in: {listed(larger_rate(networks, 'none', 'layer'))}.",
        "longer": f"Accuracy falls by at most {CLOSE:.0%} on longer sequences, in the median, with layer norm in: "
        f"{listed(keeps_accuracy(found, 'layer'))}; without in: {listed(keeps_accuracy(found, 'none'))}. Layer norm "
        f"is more accurate on them in every seed of: {listed(lower(made(found), 'longer', 'none', 'layer'))}; no norm in: "
        f"{listed(lower(made(found), 'longer', 'layer', 'none'))}.",
        "company": company[verdicts["company"]],
    }


SECTION = Section("recurrent", "Recurrent", CLAIMS, recurrent.runs, recurrent.run, summary, judge, figures, write)
