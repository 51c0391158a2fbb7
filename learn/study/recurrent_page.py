"""The section `recurrent`: its plots, its text."""

from collections.abc import Mapping
from typing import Any

from . import _plots, recurrent
from ._page import Page, range_of
from ._sections import CONDITIONS, FAILS, HOLDS, Claim, Section, spread
from .recurrent_summary import CELLS, NORMS, TASKS, TRAINS, guess, judge, summary

SOURCE = "Ba, Kiros and Hinton, Layer Normalization, arXiv:1607.06450 (2016)"
CLAIMS = (
    Claim(
        "stable",
        "Layer norm makes a recurrent network invariant to a re-scaling of all summed inputs of a layer, and what goes from "
        "hidden state to hidden state much more stable: without it, it grows or shrinks at every time step.",
        f"{SOURCE}, abstract and section 3.1",
    ),
    Claim("faster", "Recurrent networks learn in fewer steps with layer norm.", f"{SOURCE}, abstract and section 6"),
    Claim(
        "rates",
        "Layer norm keeps training stable at larger learning rates.",
        f"{SOURCE}, section 5.2.2, has that growing weights lower the rate of their directions; the claim is what texts make of it",
    ),
    Claim(
        "longer",
        "A sequence may be longer than all those of training: layer norm needs no statistics for each time step, as batch norm "
        "does, and has no trouble with it.",
        f"{SOURCE}, section 3.1",
    ),
    Claim(
        "company",
        "What layer norm computes depends on the current time step of one sequence alone: the result of a sequence depends on "
        "no other one of its batch, and on no padding.",
        f"{SOURCE}, sections 3 and 3.1; that it is so to the bit is our own question",
    ),
)


def figures(pyplot: Any, result: Any) -> dict[str, Any]:
    return {
        "loss": losses(pyplot, result),
        "rates": rates(pyplot, result["summary"]),
        "gradient": gradients(pyplot, result),
    }


def losses(pyplot: Any, result: Any) -> Any:
    found = result["summary"]
    figure, axes = pyplot.subplots(len(CELLS), len(found["tasks"]), figsize=(10, 5), sharex=True, squeeze=False)
    for row, cell in enumerate(CELLS):
        for column, task in enumerate(found["tasks"]):
            place = axes[row][column]
            for index, (norm, label) in enumerate(NORMS.items()):
                best = found["train"][task][cell][norm]["best"]
                wanted = {"part": "train", "task": task, "cell": cell, "norm": norm, "rate": best}
                curves = [run["result"]["loss"] for run in result["runs"] if wanted.items() <= run["settings"].items()]
                _plots.losses(place, found["steps"], curves, label, index)
            place.set(title=f"{CELLS[cell]}, {TASKS[task]}", yscale="log")
            if row:
                place.set_xlabel("step")
        axes[row][0].set_ylabel("training loss")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=len(NORMS))
    return figure


def rates(pyplot: Any, found: Any) -> Any:
    tasks = [task for task in found["tasks"] if task != "pixels"]
    figure, axes = pyplot.subplots(len(CELLS), len(tasks), figsize=(9, 5), sharex=True, squeeze=False)
    for row, cell in enumerate(CELLS):
        for column, task in enumerate(tasks):
            place = axes[row][column]
            for index, (norm, label) in enumerate(NORMS.items()):
                whole = [one for one in found["train"][task][cell][norm]["rates"] if one["last loss"]]
                _plots.band(place, [one["rate"] for one in whole], [one["last loss"] for one in whole], label, index)
            place.axhline(TRAINS * guess(task), color="#999999", linestyle="--", linewidth=1)
            place.set(title=f"{CELLS[cell]}, {TASKS[task]}", xscale="log", yscale="log")
            if row:
                place.set_xlabel("learning rate")
        axes[row][0].set_ylabel("last training loss")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=len(NORMS))
    return figure


def gradients(pyplot: Any, result: Any) -> Any:
    figure, axes = pyplot.subplots(1, 2 * len(CELLS), figsize=(10, 3.4), sharey=True)
    columns = [(cell, norm) for cell in CELLS for norm in ("none", "layer")]
    for place, (cell, norm) in zip(axes, columns, strict=True):
        for index, scale in enumerate(recurrent.SCALES):
            wanted = {"part": "dynamics", "cell": cell, "norm": norm, "scale": scale}
            of = [run["result"]["gradient"] for run in result["runs"] if run["settings"] == wanted]
            spreads = [spread([one[at] / one[-1] for one in of]) for at in range(len(of[0]))]
            _plots.band(place, recurrent.STEPS_SHOWN, spreads, f"weights x {scale:g}", index)
        place.set(title=f"{CELLS[cell]}, {NORMS[norm]}", xlabel="time step", yscale="log")
    axes[0].set_ylabel("gradient of the state, last step's = 1")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(recurrent.SCALES))
    return figure


def write(page: Page) -> Mapping[str, str]:
    page.say(
        "One recurrent layer of {summary/width} units, an LSTM or a GRU, answers from its last state. “No norm” is torch.nn's, "
        "“layer norm” evenorm.torch.LayerNormLSTM or LayerNormGRU, “larger weights” torch.nn's with first weights {summary/larger:g} "
        "times as large: a norm enlarges what small weights give, and so can they. All three start from the same weights of a "
        "seed. Adam, {summary/steps} steps, no clipping. Tasks: scikit-learn's digits read by row or by pixel, {summary/sizes/rows} "
        "in a batch; and packed sequences of {summary/lengths/0} to {summary/lengths/1} of {summary/symbols} symbols, "
        "{summary/sizes/most} in a batch, drawn anew for each step: which symbol is the marked one, which the most frequent."
    )
    page.say(
        "**Training**, at the rate with the least mean loss over all steps, the measure of speed. A rate trains if the mean of "
        "the last tenth of the losses is at most {summary/trains:.0%} of the loss of guessing in every seed."
    )
    names = [(task, cell, norm) for task in page.at("summary/tasks") for cell in CELLS for norm in NORMS]
    rows = []
    for task, cell, norm in names:
        at = f"summary/train/{task}/{cell}/{norm}"
        few = task == "pixels"
        rows.append(
            [TASKS[task], CELLS[cell], NORMS[norm], f"{{{at}/best}}", range_of(f"{at}/mean loss"), range_of(f"{at}/accuracy", ".1%")]
            + ["" if few else f"{{{at}/trains at}}"]
        )  # fmt: skip
    page.table(["task", "cell", "norm", "best rate", "mean loss", "held-out accuracy", "rates that train"], rows)
    page.figure("loss", "Training loss by step, at each one's best rate: medians of the seeds, smallest to largest")
    page.figure(
        "rates", "Last training loss by learning rate: a rate trains where the whole band is below the dashed line"
    )
    write_longer(page)
    write_dynamics(page)
    write_company(page)
    return because(page)


def write_longer(page: Page) -> None:
    page.say(
        "**Longer sequences**, of {summary/longer/0} to {summary/longer/1}, with the same networks. “Growth” is the RMS of the carried "
        "state (the LSTM's c, the GRU's h) after {summary/longer/1} steps over that after {summary/lengths/1}."
    )
    rows = [
        [TASKS[task], CELLS[cell], NORMS[norm]]
        + [range_of(f"summary/train/{task}/{cell}/{norm}/{key}", spec) for key, spec in COLUMNS.items()]
        for task in page.at("summary/tasks")
        if task not in recurrent.COLUMNS
        for cell in CELLS
        for norm in NORMS
    ]
    page.table(["task", "cell", "norm", "accuracy", "on longer ones", "difference", "growth"], rows)


COLUMNS = {"accuracy": ".1%", "longer": ".1%", "drop": ".1%", "growth": ".2f"}


def write_dynamics(page: Page) -> None:
    page.say(
        "**Dynamics** at initialisation, all weights of the layer times a factor, biases as they are, in float64; inputs from "
        "the normal distribution, {summary/longer/1} steps. “Moved” is how far the last output is from that of the factor one, "
        "relative, as RMS; “gradient” that of the state after the first step over that of the last."
    )
    rows = [
        [CELLS[cell], NORMS[norm], f"{{{at}/scale:g}}", range_of(f"{at}/moved", ".2g"), range_of(f"{at}/first over last", ".1e")]
        for cell in CELLS
        for norm in ("none", "layer")
        for at in (f"summary/dynamics/{cell}/{norm}/{scale}" for scale in recurrent.SCALES)
    ]  # fmt: skip
    page.table(["cell", "norm", "factor", "moved", "gradient"], rows)
    page.figure("gradient", "Gradient of the state over time steps at initialisation, by factor of the weights")


def write_company(page: Page) -> None:
    page.say(
        "**Company.** Bits of one sequence's last state that change with its batch, the most of all seeds, after some training. "
        "Packed sequences have no padding, but other lengths make a time step's matrix product one of other shape; padded ones "
        "are as long as the longest, and the result is what stands at the sequence's own end."
    )
    columns = [(cell, norm) for cell in CELLS for norm in ("none", "layer")]
    kinds = list(page.at("summary/company/lstm/layer"))
    page.table(
        ["what changes", *(f"{CELLS[cell]}, {NORMS[norm]}" for cell, norm in columns)],
        [[kind, *(f"{{summary/company/{cell}/{norm}/{kind}}}" for cell, norm in columns)] for kind in kinds],
    )


ALIKE_OR_NOT = {
    HOLDS: "No bit changes with the company, however the batch is made.",
    CONDITIONS: "Condition: matrix products of one shape, which padded batches of one size have, and packed ones of the same "
    "lengths. Another shape may change how PyTorch rounds the product, which stands before the norm.",
    FAILS: "Bits change even where the matrix products have one shape: see the table.",
}


def because(page: Page) -> Mapping[str, str]:
    lists, verdict = "summary/compared", page.at("verdicts")

    return {
        "stable": "With layer norm the output of both cells stays, by less than {summary/close:.0%}, where the weights are "
        "re-scaled by these factors: {summary/layer stays at}; without at: {summary/none stays at}. At any factor it moves by "
        "{summary/most moved/layer:.1%} at most (what moves it is eps, which counts beside small sums), without a norm by "
        "{summary/most moved/none:.0%}. At PyTorch's own weights the gradient keeps its size over the time steps better with layer norm, in every seed, in: "
        "{summary/gradient nearer to itself}. Weights {summary/larger:g} times as large without a norm keep it better than layer "
        "norm does in: {summary/gradient of larger weights nearer than layer's}. Trained, the carried state beyond the lengths of "
        f"training stays nearer to its size in every seed with layer norm in: {{{lists}/state nearer to itself}}; without in: "
        f"{{{lists}/state nearer to itself without}}. Neither cell normalises what it carries on."
        + page.condition("the factors and the cells that are named", "stable"),
        "faster": f"By the mean loss over all steps, each at its own best rate, layer norm is ahead of no norm in every seed in: "
        f"{{{lists}/layer faster than none}}; behind it in every seed in: {{{lists}/none faster than layer}}. Beside larger first "
        f"weights without a norm it is ahead in: {{{lists}/layer faster than scaled}}; behind in: "
        f"{{{lists}/scaled faster than layer}}. The time of a step is not counted. Of a single number as input, as with pixels, a "
        "norm leaves little but the sign."
        + page.condition("the tasks that are named, beside the first weights that are named", "faster"),
        "rates": f"The largest rate that trains is larger with layer norm than without in: {{{lists}/layer trains at larger rates "
        f"than none}}; smaller in: {{{lists}/none trains at larger rates than layer}}. Beside larger first weights it is larger in: "
        f"{{{lists}/layer trains at larger rates than scaled}}; smaller in: {{{lists}/scaled trains at larger rates than layer}}. "
        f"At the largest rate of all that were tried layer norm trains in: {{{lists}/trains at the largest rate}}."
        + page.condition("the tasks that are named", "rates"),
        "longer": "Accuracy on longer sequences is within {summary/close:.0%} of that on the lengths of training, in the median, "
        f"with layer norm in: {{{lists}/layer keeps its accuracy}}; without in: {{{lists}/none keeps its accuracy}}. On them layer "
        f"norm is the more accurate in every seed in: {{{lists}/layer more accurate on longer than none}}; no norm in: "
        f"{{{lists}/none more accurate on longer than layer}}. A norm that can be computed is not yet a network that has learnt "
        "what longer sequences need." + page.condition("the tasks that are named", "longer"),
        "company": ALIKE_OR_NOT[verdict["company"]]
        + " evenorm's norm of the same row changes by {summary/company/lstm/layer/norm, other numbers of rows} bits with the number "
        "of rows, the product by up to {summary/company/lstm/layer/product, other numbers of rows}.",
    }


SECTION = Section(
    "recurrent", "Recurrent", CLAIMS, recurrent.runs, recurrent.run, summary, judge, figures, write
)  # fmt: skip
