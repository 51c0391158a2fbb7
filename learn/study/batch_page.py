"""The section `batch`: its claims, verdicts, plot and text."""

from typing import Any

from . import _plots, batch
from ._claims import BA, CONDITIONS, FAILS, HOLDS, Claim, extent
from ._page import listed, picture, ranged, sentences, table
from ._sections import Runs, Section, Text, ahead, choices, results, spread

LABELS = {
    "none": "no norm",
    "batch": "batch norm",
    "layer": "layer norm before the activation",
    "layer after": "layer norm after the activation",
}
LAYER = ("layer", "layer after")
CLAIMS = (
    Claim(
        "mates",
        "Layer norm's result for a sample does not depend on the other samples of its batch; batch norm's does.",
        f"{BA}, sections 1 and 3",
    ),
    Claim(
        "modes",
        "Layer norm computes the same in training and at test time; batch norm does not.",
        f"{BA}, abstract",
    ),
    Claim(
        "size",
        "Layer norm is robust to the batch size: it works at batch size 1, and it is more accurate in small batches.",
        f"{BA}, sections 1 and 6.6, figure 6",
    ),
    Claim("speed", "Layer norm trains faster than batch norm.", f"{BA}, section 6.6, figure 6"),
)
CLOSE = 0.03  # a norm works if its accuracy is within this of its best accuracy
SMALL = 8  # the largest small batch


Seeds = dict[str, dict[int, list[Any]]]  # by norm and batch size


def summary(runs: Runs) -> dict[str, Any]:
    sizes = choices(runs, "size")
    of: Seeds = {norm: {size: results(runs, norm=norm, size=size) for size in sizes} for norm in LABELS}

    def seeds(key: str) -> Seeds:
        return {norm: {size: [one[key] for one in found] for size, found in at.items()} for norm, at in of.items()}

    final, training, accuracy = (seeds(key) for key in ("accuracy, inference", "accuracy, training mode", "accuracy"))
    return {
        "sizes": sizes,
        "several": [size for size in sizes if size > 1],
        "epochs": choices(runs, "epochs")[0],
        "samples": choices(runs, "samples")[0],
        "final": final,
        "first": {norm: {size: [one[0] for one in at[size]] for size in sizes} for norm, at in accuracy.items()},
        "gap": {
            norm: {size: spread([a - b for a, b in zip(at[size], final[norm][size], strict=True)]) for size in sizes}
            for norm, at in training.items()
        },
        "bits": {norm: bits_of(norm, at) for norm, at in seeds("dependence").items()},
        "modes": {norm: spread(sum(at.values(), [])) for norm, at in seeds("modes apart, bits").items()},
        "alone": {norm: spread(at[1]) for norm, at in seeds("outputs of all samples apart by").items()},
        "not finite": seeds("inference is finite")["batch"][1].count(False),
    }


def bits_of(norm: str, at: dict[int, list[dict[str, int]]]) -> dict[str, Any]:
    """The bits that change, over all runs without batch norm at batch size 1, which has no finite output."""
    found = [one for size, seeds in at.items() if norm != "batch" or size > 1 for one in seeds]
    return {kind: spread([one[kind] for one in found]) for kind in found[0]}


def medians(found: dict[str, Any], norm: str) -> list[float]:
    """The median accuracy at each batch size above 1."""
    return [spread(found["final"][norm][size]).median for size in found["several"]]


def width(found: dict[str, Any], norm: str) -> float:
    """The range of the median accuracy over batch sizes above 1."""
    return max(medians(found, norm)) - min(medians(found, norm))


def where(found: dict[str, Any], key: str, first: str, second: str) -> list[int]:
    """Batch sizes above 1 at which the first norm is more accurate than the second in every seed."""
    return [size for size in found["several"] if ahead(found[key][first][size], found[key][second][size])]


def at_one(found: dict[str, Any]) -> tuple[float, float]:
    """Layer norm's median accuracy at batch size 1, and at its best batch size."""
    alone = spread(found["final"]["layer"][1]).median
    return alone, max([alone, *medians(found, "layer")])


def judge(found: dict[str, Any]) -> dict[str, str]:
    bits, modes = found["bits"], found["modes"]
    free = {kind: all(bits[norm][kind].most == 0 for norm in LAYER) for kind in bits["layer"]}
    depends = bits["batch"]["norm, as many mates"].least > 0
    independent = (
        free["norm, as many mates"] and free["norm, other numbers of mates"] and free["network, as many mates"]
    )
    alone, best = at_one(found)
    works, robust = alone > best - CLOSE, width(found, "layer") < width(found, "batch")
    small = {size for size in found["several"] if size <= SMALL}
    more_accurate = set(where(found, "final", "layer", "batch"))
    return {
        "mates": extent(1 + free["network, other numbers of mates"], 2) if independent and depends else FAILS,
        "modes": HOLDS if all(modes[norm].most == 0 for norm in LAYER) and modes["batch"].least > 0 else FAILS,
        "size": HOLDS if works and robust and small <= more_accurate else CONDITIONS if works else FAILS,
        "speed": extent(len(where(found, "first", "layer", "batch")), len(found["several"])),
    }


def figures(pyplot: Any, _: Runs, found: dict[str, Any]) -> dict[str, Any]:
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.8), sharey=True)
    places = range(len(found["sizes"]))
    for place, key, title in zip(axes, ("first", "final"), ("after the first epoch", "after the last"), strict=True):
        for index, (norm, label) in enumerate(LABELS.items()):
            _plots.band(place, places, list(zip(*found[key][norm].values(), strict=True)), label, index)
        place.set(xlabel="batch size", title=title, ylim=(0, 1.02))
        place.set_xticks(places, [str(size) for size in found["sizes"]])
    axes[0].set_ylabel("accuracy of inference")
    _plots.legend(figure)
    return {"accuracy": figure}


def write(found: dict[str, Any], verdicts: dict[str, str]) -> Text:
    sizes, kinds = found["sizes"], list(found["bits"]["layer"])
    body = [
        f"A network of two hidden layers of {batch.WIDTH} units reads scikit-learn's digits. It trains on "
        f"{found['samples']:,} samples for {found['epochs']} epochs; the rest are held out. Adam's learning rate is "
        f"{batch.RATE} at batch size {batch.RATE_SIZE}. For all norms, it grows with the root of the batch size.",
        picture("batch", "accuracy", "Accuracy of inference on held-out samples over batch sizes"),
        "Accuracy with the statistics of the batch (training mode) minus accuracy of inference, with the same weights, "
        "by batch size:",
        table(
            ["norm", *sizes],
            [[label, *(ranged(found["gap"][norm][size], "+.1%") for size in sizes)] for norm, label in LABELS.items()],
        ),
        "Bits of one sample's output that the other samples of its batch change, over all runs. The norm alone has "
        f"{32 * batch.WIDTH:,} bits, the network {32 * 10}. The norm alone always gets the same numbers for the "
        "sample:",
        table(
            ["norm", *kinds],
            [[label, *(ranged(found["bits"][norm][kind], ",.0f") for kind in kinds)] for norm, label in LABELS.items()],
        ),
        "torch.nn.BatchNorm1d refuses to train on a batch of one sample. Its formula alone makes all samples alike: "
        f"in training mode, the outputs of all held-out samples lie within {ranged(found['alone']['batch'])} of each "
        f"other; with layer norm, within {ranged(found['alone']['layer'])}. Inference is not finite in "
        f"{found['not finite']} of {len(found['final']['batch'][1])} runs, because its unbiased variance "
        "divides by zero.",
    ]
    return Text(body, because(found))


def because(found: dict[str, Any]) -> dict[str, str]:
    bits, (alone, best) = found["bits"], at_one(found)
    faster, slower = where(found, "first", "layer", "batch"), where(found, "first", "batch", "layer")
    return {
        "mates": sentences(
            f"Layer norm's own output changes by {bits['layer']['norm, other numbers of mates'].most:.0f} bits, "
            "for any number and any values of the other samples. Batch norm's changes by at least "
            f"{bits['batch']['norm, as many mates'].least:,.0f} bits.",
            "The whole network keeps its bits in batches of one size. Another size changes PyTorch's matrix "
            "products, not the norm."
            if bits["layer"]["network, other numbers of mates"].most
            else "The whole network also keeps its bits.",
        ),
        "modes": "Over all held-out samples, training mode and inference differ by at most "
        f"{found['modes']['layer'].most:.0f} bits with layer norm, and by at least "
        f"{found['modes']['batch'].least:,.0f} with batch norm.",
        "size": f"At batch size 1, layer norm has an accuracy of {alone:.1%}; at its best size, {best:.1%}. A norm works "
        f"if these differ by less than {CLOSE:.0%}. Batch norm does not work at size 1. Between larger batch sizes, layer "
        f"norm's median accuracy differs by {width(found, 'layer'):.1%}, batch norm's by {width(found, 'batch'):.1%}. Layer "
        f"norm is more accurate in every seed at batch sizes: {listed(where(found, 'final', 'layer', 'batch'))}; "
        f"batch norm at: {listed(where(found, 'final', 'batch', 'layer'))}.",
        "speed": "By accuracy after the first epoch, layer norm is ahead of batch norm in every seed at batch sizes: "
        f"{listed(faster)}; behind at: {listed(slower)}. It is ahead of the network without a norm at: "
        f"{listed(where(found, 'first', 'layer', 'none'))}.",
    }


SECTION = Section("batch", "Compared with batch norm", CLAIMS, batch.runs, batch.run, summary, judge, figures, write)
