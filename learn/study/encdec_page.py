"""The section `encdec`: its claims, verdicts, plots and text."""

import math
from collections.abc import Sequence
from typing import Any

from . import _plots, encdec
from ._claims import BA, CONDITIONS, FAILS, HOLDS, XIONG, Claim, extent
from ._page import listed, picture, ranged, table
from ._rates import at_rates, larger_rate, lower, lowest, numbers
from ._sections import Json, Runs, Section, Text, choices, results, spread, spread_if

CLAIMS = (
    Claim(
        "warm-up",
        "A Transformer with post-norm trains only if the learning rate is warmed up; with pre-norm it needs no "
        "warm-up.",
        f"{XIONG}, abstract",
    ),
    Claim(
        "rates",
        "Pre-norm trains at larger learning rates than post-norm.",
        f"a common reading of {XIONG}, abstract: post-norm's large gradients near the output make large rates unstable",
    ),
    Claim("faster", "Pre-norm without warm-up learns in fewer steps than post-norm with it.", f"{XIONG}, abstract"),
    Claim(
        "end",
        "Where post-norm trains, it ends at least as well as pre-norm.",
        "Liu et al., Understanding the Difficulty of Training Transformers, arXiv:2004.08249 (2020), abstract: "
        "depending little on the residual branches, as pre-norm does, leads to inferior models",
    ),
    Claim(
        "padding",
        "Padding changes no result: the masks hide it, and layer norm takes its statistics from one position only.",
        f"{BA}, section 3; whether this holds to the bit is our own question",
    ),
)
COLD, WARM = encdec.WARMUPS
VARIANTS = {
    "post-norm": ("post", COLD),
    "post-norm, warm-up": ("post", WARM),
    "pre-norm": ("pre", COLD),
    "pre-norm, warm-up": ("pre", WARM),
}
TRAINS = 0.5  # a setting trains if its held-out loss is at most this share of the loss of guessing in every seed
GUESS = math.log(11)  # the loss of guessing among ten digits and the end


def layers(depth: int) -> str:
    return f"{depth} + {depth} layers"


def variant(runs: Runs, depth: int, steps: int, norm: str, warm_up: float) -> dict[str, Any]:
    """One norm with or without warm-up, at all its rates."""
    wanted = {"depth": depth, "steps": steps, "norm": norm, "warmup": warm_up}
    of = {rate: results(runs, rate=rate, **wanted) for rate in choices(runs, "rate")}
    exact = {rate: [one["exact"] for one in seeds] for rate, seeds in of.items()}
    return {"exact": exact, **at_rates(of, "held-out loss", TRAINS * GUESS)}


def end(runs: Runs, depth: int, steps: int, norm: str) -> dict[str, Any]:
    """The norm's best setting by the held-out loss, with or without warm-up."""
    cases: dict[tuple[float, float], list[Json]] = {}
    for run in runs:
        chosen = run["settings"]
        if (chosen["depth"], chosen["steps"], chosen["norm"]) == (depth, steps, norm):
            cases.setdefault((chosen["warmup"], chosen["rate"]), []).append(run["result"])
    best = lowest("held-out loss", cases)
    return {
        "warm-up": best[0],
        "rate": best[1],
        "loss": numbers("held-out loss", cases[best]),
        "exact": spread([one["exact"] for one in cases[best]]),
    }


def summary(runs: Runs) -> dict[str, Any]:
    depths, (steps, longer) = choices(runs, "depth"), choices(runs, "steps")
    lengths = [(depth, steps) for depth in depths] + [(depths[0], longer)]
    kinds = list(runs[0]["result"]["bits"])
    return {
        "steps": steps,
        "table": {
            layers(depth): {name: variant(runs, depth, steps, *setting) for name, setting in VARIANTS.items()}
            for depth in depths
        },
        "ends": {
            f"{layers(depth)} in {many} steps": {norm: end(runs, depth, many, norm) for norm in encdec.NORMS}
            for depth, many in lengths
        },
        "bits": {
            kind: [max(one["bits"][kind] for one in results(runs, norm=norm)) for norm in encdec.NORMS]
            for kind in kinds
        },
    }


def settings(found: dict[str, Any], trains: str, but_not: str = "") -> list[str]:
    """Depths and rates at which the variant `trains` trains and the variant `but_not`, if given, does not."""
    return [
        f"{name} at {rate}"
        for name, of in found["table"].items()
        for rate in of[trains]["trains at"]
        if not but_not or rate not in of[but_not]["trains at"]
    ]


def larger_rates(found: dict[str, Any], first: str, second: str) -> list[str]:
    """Depths, without warm-up and with it, at which the first norm trains at a larger rate than the second."""
    warm = larger_rate(found["table"], f"{first}, warm-up", f"{second}, warm-up")
    return larger_rate(found["table"], first, second) + [f"{name} with warm-up" for name in warm]


def judge(found: dict[str, Any]) -> dict[str, str]:
    networks, depths = found["table"], len(found["table"])
    needed = settings(found, "post-norm, warm-up", "post-norm")
    never = not settings(found, "post-norm")
    worse = lower(found["ends"], "loss", "pre", "post")
    hidden = [bits for kind, both in found["bits"].items() if kind != "more padding" for bits in both]
    return {
        "warm-up": HOLDS
        if needed and never and not settings(found, "pre-norm, warm-up", "pre-norm")
        else (CONDITIONS if needed else FAILS),
        "rates": extent(len(larger_rates(found, "pre-norm", "post-norm")), 2 * depths),
        "faster": extent(len(lower(networks, "mean loss", "pre-norm", "post-norm, warm-up")), depths),
        "end": extent(len(found["ends"]) - len(worse), len(found["ends"])),
        "padding": FAILS if any(hidden) else CONDITIONS if any(found["bits"]["more padding"]) else HOLDS,
    }


def figures(pyplot: Any, _: Runs, found: dict[str, Any]) -> dict[str, Any]:
    def drawn(draw: Any, **axes: Any) -> Any:
        figure, places = pyplot.subplots(1, len(found["table"]), figsize=(9, 3.6), sharey=True, squeeze=False)
        for place, (title, of) in zip(places[0], found["table"].items(), strict=True):
            for index, name in enumerate(VARIANTS):
                draw(place, of[name], name, index)
            place.set(title=title, **{key: value for key, value in axes.items() if key != "ylabel"})
        places[0][0].set_ylabel(axes["ylabel"])
        _plots.legend(figure)
        return figure

    def exact(place: Any, of: dict[str, Any], name: str, index: int) -> None:
        _plots.band(place, list(of["exact"]), list(zip(*of["exact"].values(), strict=True)), name, index)

    def loss(place: Any, of: dict[str, Any], name: str, index: int) -> None:
        curves = [one["loss"] for one in of["seeds"]]
        if not any(None in one for one in curves):
            _plots.losses(place, found["steps"], curves, name, index)

    share = "exact match, held-out strings"
    return {
        "exact": drawn(exact, xscale="log", xlabel="learning rate", ylim=(-0.02, 1.02), ylabel=share),
        "loss": drawn(loss, yscale="log", xlabel="step", ylabel="training loss"),
    }


def best_rows(found: dict[str, Any]) -> list[Sequence[object]]:
    return [
        [
            depth,
            name,
            listed(one["trains at"]),
            one["fastest"],
            ranged(spread(one["mean loss"])),
            ranged(steps, ",.0f")
            if (steps := spread_if([seed["steps to"] for seed in one["seeds"]]))
            else "not in every seed",
            ranged(spread_if([seed["held-out loss"] for seed in one["seeds"]]), ".2g"),
        ]
        for depth, of in found["table"].items()
        for name, one in of.items()
    ]


def end_rows(found: dict[str, Any]) -> list[Sequence[object]]:
    return [
        [
            name,
            f"{norm}-norm" + (", warm-up" if one["warm-up"] else ""),
            one["rate"],
            ranged(one["exact"], ".1%"),
            ranged(spread(one["loss"]), ".2g"),
        ]
        for name, of in found["ends"].items()
        for norm, one in of.items()
    ]


def write(found: dict[str, Any], verdicts: dict[str, str]) -> Text:
    body = [
        f"A Transformer with encoder and decoder, of width {encdec.WIDTH} with {encdec.HEADS} heads, learns to "
        f"reverse and to sort strings of up to {encdec.LONGEST} digits; a letter states the task. Each of "
        f"{found['steps']} steps has a padded batch of {encdec.SIZE} new strings. One string in {encdec.ONE_IN} is "
        f"held out. Adam's rate falls linearly to zero; warm-up is linear over the first {WARM:.0%} of the steps. Pre-norm "
        "adds a norm after the encoder and one after the decoder. A setting **trains** if its held-out loss is at most "
        f"{TRAINS:.0%} of the loss of guessing in every seed. Exact match is the share of {encdec.HELD} held-out "
        "strings whose whole answer is right.",
        picture("encdec", "exact", "Exact match on held-out strings over learning rates"),
        "Each variant at its fastest rate, which has the smallest mean loss over all steps. The column 'steps' holds "
        f"the number of steps until the loss is at most {encdec.TARGET}:",
        table(
            ["layers", "variant", "rates that train", "fastest rate", "mean loss", "steps", "held-out loss"],
            best_rows(found),
        ),
        picture("encdec", "loss", "Training loss by step, each variant at its fastest rate"),
        "Each norm's best setting by the held-out loss, with or without warm-up. The last two rows train longer:",
        table(["layers", "norm", "rate", "exact match", "held-out loss"], end_rows(found)),
        f"Bits of the logits of {encdec.SIZE} held-out strings, at their answers' positions, that change with the "
        "padding; the largest number over all runs. More padding makes the matrix products wider; the other changes "
        "keep their shapes:",
        table(
            ["change", *(f"{norm}-norm" for norm in encdec.NORMS)],
            [[kind, *(f"{bits:,}" for bits in both)] for kind, both in found["bits"].items()],
        ),
    ]
    return Text(body, because(found, verdicts))


def because(found: dict[str, Any], verdicts: dict[str, str]) -> dict[str, str]:
    networks, ends = found["table"], found["ends"]
    padding = {
        HOLDS: "No bit changes.",
        CONDITIONS: "In batches of one width, no bit changes with what the masks hide, with either norm. More padding "
        "changes the shape of the matrix products, and so how PyTorch rounds them.",
        FAILS: "Bits change with what the masks hide: see the table.",
    }
    return {
        "warm-up": "Post-norm trains only with warm-up at: "
        f"{listed(settings(found, 'post-norm, warm-up', 'post-norm'))}. Pre-norm trains only with warm-up at: "
        f"{listed(settings(found, 'pre-norm, warm-up', 'pre-norm'))}. Post-norm trains without warm-up at: "
        f"{listed(settings(found, 'post-norm'))}.",
        "rates": "The largest rate that trains is larger with pre-norm at: "
        f"{listed(larger_rates(found, 'pre-norm', 'post-norm'))}; with post-norm at: "
        f"{listed(larger_rates(found, 'post-norm', 'pre-norm'))}.",
        "faster": "By the mean loss over all steps, each at its fastest rate, pre-norm without warm-up is ahead of "
        f"post-norm with warm-up in every seed at: {listed(lower(networks, 'mean loss', 'pre-norm', 'post-norm, warm-up'))}; behind "
        f"at: {listed(lower(networks, 'mean loss', 'post-norm, warm-up', 'pre-norm'))}.",
        "end": "Pre-norm ends with a lower held-out loss in every seed at: "
        f"{listed(lower(ends, 'loss', 'pre', 'post'))}; post-norm at: {listed(lower(ends, 'loss', 'post', 'pre'))}.",
        "padding": padding[verdicts["padding"]],
    }


SECTION = Section("encdec", "Encoder and decoder", CLAIMS, encdec.runs, encdec.run, summary, judge, figures, write)
