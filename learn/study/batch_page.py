"""The section `batch`: what its runs say together, its plots, its text."""

from collections.abc import Mapping
from typing import Any

from . import _plots, batch
from ._page import Page, range_of
from ._sections import CONDITIONS, FAILS, HOLDS, Claim, Section, ahead, spread

LABELS = {
    "none": "no norm",
    "batch": "batch norm",
    "layer": "layer norm before the activation",
    "layer after": "layer norm after it",
    "group": "group norm",
}
LAYER = ("layer", "layer after")
SOURCE = "Ba, Kiros and Hinton, Layer Normalization, arXiv:1607.06450 (2016)"
CLAIMS = (
    Claim(
        "mates",
        "What layer norm makes of a sample does not depend on the other samples of its batch; what batch norm makes of it does.",
        f"{SOURCE}, sections 1 and 3",
    ),
    Claim(
        "modes",
        "Layer norm computes the same in training and at test time; batch norm does not.",
        f"{SOURCE}, abstract",
    ),
    Claim(
        "size",
        "Layer norm is robust to the batch size: it works at batch size 1, and is the more accurate one in small batches.",
        f"{SOURCE}, sections 1 and 6.6, figure 6",
    ),
    Claim("speed", "Layer norm trains faster than batch norm.", f"{SOURCE}, section 6.6, figure 6"),
)
CLOSE = 0.03  # so near to its best accuracy, a norm works


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    norms = list(dict.fromkeys(run["settings"]["norm"] for run in runs))
    sizes = list(dict.fromkeys(run["settings"]["size"] for run in runs))
    of: dict[tuple[str, int], list[dict[str, Any]]] = {
        (norm, size): [
            run["result"] for run in runs if run["settings"]["norm"] == norm and run["settings"]["size"] == size
        ]
        for norm in norms
        for size in sizes
    }
    table: dict[str, dict[str, dict[str, Any]]] = {
        norm: {
            str(size): {
                "accuracy": spread([one["accuracy, inference"] for one in of[norm, size]]),
                "accuracy in training mode": spread([one["accuracy, training mode"] for one in of[norm, size]]),
                "gap": spread([one["accuracy, training mode"] - one["accuracy, inference"] for one in of[norm, size]]),
                "modes apart, bits": spread([one["modes apart, bits"] for one in of[norm, size]]),
                "first epoch": spread([one["accuracy"][0] for one in of[norm, size]]),
                "inference is finite": all(one["inference is finite"] for one in of[norm, size]),
            }
            for size in sizes
        }
        for norm in norms
    }
    kinds = list(of[norms[0], sizes[0]][0]["dependence"])
    bits = {
        norm: {
            kind: {
                how: choose(
                    one["dependence"][kind] for size in sizes if norm != "batch" or size > 1 for one in of[norm, size]
                )
                for how, choose in (("min", min), ("max", max))
            }
            for kind in kinds
        }
        for norm in norms
    }

    def compared(key: str, first: str, second: str) -> list[int]:
        def values(norm: str, size: int) -> list[float]:
            return [one[key][0] if isinstance(one[key], list) else one[key] for one in of[norm, size]]

        return [size for size in sizes if size > 1 and ahead(values(first, size), values(second, size))]

    medians = {
        norm: [one["accuracy"]["median"] for size, one in table[norm].items() if int(size) > 1] for norm in norms
    }
    alone = table["layer"]["1"]["accuracy"]["median"]
    ones = of["batch", sizes[0]] if sizes[0] == 1 else []
    return {
        "epochs": runs[0]["settings"]["epochs"],
        "sizes": sizes,
        "trained on": runs[0]["settings"]["samples"],
        "width": batch.WIDTH,
        "groups": batch.GROUPS,
        "learning rate": batch.RATE,
        "batch size of the rate": batch.RATE_SIZE,
        "table": table,
        "bits": bits,
        "modes apart, bits": {
            norm: {
                how: choose(one["modes apart, bits"] for size in sizes for one in of[norm, size])
                for how, choose in (("min", min), ("max", max))
            }
            for norm in norms
        },
        "close": CLOSE,
        "layer at one": alone,
        "layer at best": max([alone, *medians["layer"]]),
        "range over sizes": {norm: max(values) - min(values) for norm, values in medians.items()},
        "layer more accurate at": compared("accuracy, inference", "layer", "batch"),
        "batch more accurate at": compared("accuracy, inference", "batch", "layer"),
        "layer faster at": compared("accuracy", "layer", "batch"),
        "batch faster at": compared("accuracy", "batch", "layer"),
        "none faster than layer at": compared("accuracy", "none", "layer"),
        "layer faster than none at": compared("accuracy", "layer", "none"),
        "one": {
            "runs": len(ones),
            "outputs apart by": spread([one["outputs of all samples apart by"] for one in ones]) if ones else None,
            "outputs apart by with layer norm": spread(
                [one["outputs of all samples apart by"] for one in of["layer", 1]]
            )
            if ones
            else None,
            "inference not finite": sum(not one["inference is finite"] for one in ones),
            "torch says": ones[0]["torch.nn.BatchNorm1d says"] if ones else "",
        },
    }


def judge(found: dict[str, Any]) -> dict[str, str]:
    bits, small = found["bits"], [size for size in found["sizes"] if 1 < size <= 8]
    norm_alone = all(
        bits[norm][f"norm, {kind} mates"]["max"] == 0 for norm in LAYER for kind in ("as many", "other numbers of")
    )
    network = all(bits[norm]["network, as many mates"]["max"] == 0 for norm in LAYER)
    other_sizes = all(bits[norm]["network, other numbers of mates"]["max"] == 0 for norm in LAYER)
    batch_depends = bits["batch"]["norm, as many mates"]["min"] > 0
    mates = HOLDS if other_sizes else CONDITIONS
    modes = found["modes apart, bits"]
    won = set(found["layer more accurate at"])
    at_one = found["layer at one"] > found["layer at best"] - CLOSE
    robust = found["range over sizes"]["layer"] < found["range over sizes"]["batch"]
    faster = found["layer faster at"]
    several = [size for size in found["sizes"] if size > 1]
    return {
        "mates": mates if norm_alone and network and batch_depends else FAILS,
        "modes": HOLDS if all(modes[norm]["max"] == 0 for norm in LAYER) and modes["batch"]["min"] > 0 else FAILS,
        "size": HOLDS if at_one and robust and won >= set(small) else CONDITIONS if at_one else FAILS,
        "speed": HOLDS if faster == several else CONDITIONS if faster else FAILS,
    }


def figures(pyplot: Any, result: Any) -> dict[str, Any]:
    found, table = result["summary"], result["summary"]["table"]
    sizes, places = found["sizes"], range(len(found["sizes"]))
    accuracy, axes = pyplot.subplots(1, 2, figsize=(9, 3.6))
    for index, norm in enumerate(table):
        _plots.band(axes[0], places, [table[norm][str(size)]["accuracy"] for size in sizes], LABELS[norm], index)
        _plots.band(axes[1], places, [table[norm][str(size)]["first epoch"] for size in sizes], LABELS[norm], index)
    for one, title in zip(axes, ("after the last epoch", "after the first epoch"), strict=True):
        one.set(xlabel="batch size", title=f"accuracy of inference {title}", ylim=(0, 1.02))
        one.set_xticks(places, [str(size) for size in sizes])
    axes[0].legend(loc="lower right")
    curves, axes = pyplot.subplots(1, len(sizes), figsize=(2 * len(sizes) + 1, 3), sharey=True, squeeze=False)
    for column, size in enumerate(sizes):
        for index, norm in enumerate(table):
            losses = [
                run["result"]["loss"]
                for run in result["runs"]
                if run["settings"]["norm"] == norm and run["settings"]["size"] == size
            ]
            if not any(None in one for one in losses):
                epochs = range(1, len(losses[0]) + 1)
                _plots.band(
                    axes[0][column], epochs, [spread(one) for one in zip(*losses, strict=True)], LABELS[norm], index
                )
        axes[0][column].set(xlabel="epoch", title=f"batch size {size}", yscale="log")
        axes[0][column].set_xticks(range(1, found["epochs"] + 1))
    axes[0][0].set_ylabel("training loss")
    axes[0][-1].legend(fontsize=7)
    return {"accuracy": accuracy, "loss": curves}


def write(page: Page) -> Mapping[str, str]:
    one = "summary/one"
    page.say(
        "A network of two hidden layers of {summary/width} units reads scikit-learn's digits: {summary/trained on} to train "
        "on for {summary/epochs} epochs, the rest held out, split anew for each seed. Adam's learning rate is "
        "{summary/learning rate} at batch size {summary/batch size of the rate} and goes with the root of the batch size, alike for all norms. "
        "Group norm (torch.nn's) has {summary/groups} groups. Layer norm is evenorm.torch's."
    )
    page.figure("accuracy", "Accuracy of inference over batch sizes: medians of the seeds, smallest to largest")
    sizes = page.at("summary/sizes")
    page.say("Accuracy of inference, after the last epoch:")
    page.table(
        ["norm", *(f"{{summary/sizes/{index}}}" for index in range(len(sizes)))],
        [
            [LABELS[norm], *(range_of(f"summary/table/{norm}/{size}/accuracy", ".1%") for size in sizes)]
            for norm in LABELS
        ],
    )
    page.say("The gap: accuracy with the statistics of the batch (training mode) less that of inference, same weights:")
    page.table(
        ["norm", *(f"{{summary/sizes/{index}}}" for index in range(len(sizes)))],
        [[LABELS[norm], *(range_of(f"summary/table/{norm}/{size}/gap", "+.1%") for size in sizes)] for norm in LABELS],
    )
    page.figure("loss", "Training loss by epoch at each batch size: medians of the seeds, smallest to largest")
    page.say(
        "How many bits of one sample's output its batch mates change, the most of all runs (batch norm's least in brackets). "
        "A norm's row has {summary/bits/layer/bits of a norm's row/max} bits, the network's output "
        "{summary/bits/layer/bits of the network's row/max}. The norm alone is given the same numbers each time. In the "
        "network, the matrix product stands before it, which may round otherwise when the batch has another size."
    )
    kinds = ["norm, as many mates", "norm, other numbers of mates", "network, as many mates", "network, other numbers of mates",
             "product, other numbers of mates"]  # fmt: skip
    page.table(
        ["norm", *kinds],
        [
            [LABELS[norm], *(f"{{summary/bits/{norm}/{kind}/max}}" + (f" ({{summary/bits/{norm}/{kind}/min}})" if norm == "batch" else "")
                             for kind in kinds)]
            for norm in LABELS
        ],
    )  # fmt: skip
    if page.at(f"{one}/runs"):
        page.say(
            f"One sample is a batch that batch norm cannot train on. torch.nn.BatchNorm1d refuses it: “{{{one}/torch says}}”. "
            "Its formula alone takes from each sample all that tells it from others: in training mode the outputs of all held-out "
            f"samples lie within {range_of(f'{one}/outputs apart by')} of each other (with layer norm within "
            f"{range_of(f'{one}/outputs apart by with layer norm')}). Inference is not finite in "
            f"{{{one}/inference not finite}} of {{{one}/runs}} runs, since the unbiased variance that is kept for it divides by "
            "zero; the tables count that as an answer, always the same digit."
        )
    product = page.at("summary/bits/layer/network, other numbers of mates/max")
    sizes_of = {
        name: f"{{summary/{name}}}"
        for name in ("layer more accurate at", "batch more accurate at", "layer faster at", "batch faster at")
    }
    return {
        "mates": "Layer norm's own output changes by {summary/bits/layer/norm, as many mates/max} bits, whatever the mates and "
        "however many, batch norm's by {summary/bits/batch/norm, as many mates/min} at least. "
        + (
            "Condition: the whole network keeps its bits among batches of one size alone, for another size changes "
            "PyTorch's matrix products, not the norm."
            if product
            else "The whole network keeps its bits, too."
        ),
        "modes": "Over all held-out samples, training mode and inference differ by {summary/modes apart, bits/layer/max} bits at "
        "most with layer norm, by {summary/modes apart, bits/batch/min} at least with batch norm.",
        "size": "At batch size one layer norm has {summary/layer at one:.1%}, {summary/layer at best:.1%} at its best size (within "
        "{summary/close:.0%} counts as working), and batch norm does not work: that is the condition. Among larger batches, layer norm's median accuracy differs by {summary/range over sizes/layer:.1%} between the best and the worst "
        "batch size, batch norm's by {summary/range over sizes/batch:.1%}. Layer norm is ahead in "
        f"every seed at these batch sizes: {sizes_of['layer more accurate at']}; batch norm at these: {sizes_of['batch more accurate at']}. "
        "Without any norm the difference is {summary/range over sizes/none:.1%}.",
        "speed": "By accuracy after the first epoch, layer norm is ahead of batch norm in every seed at these batch sizes: "
        f"{sizes_of['layer faster at']}; batch norm at these: {sizes_of['batch faster at']}. Beside no norm at all, layer norm is ahead at "
        "these: {summary/layer faster than none at}.",
    }


SECTION = Section("batch", "Beside batch norm", CLAIMS, batch.runs, batch.run, summary, judge, figures, write)
