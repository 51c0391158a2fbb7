"""The section `encdec`: what its runs say together, its plots, its text."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from . import _plots, encdec
from ._page import Page, range_of
from ._sections import CONDITIONS, FAILS, HOLDS, Claim, Section, ahead, spread, spread_if

XIONG = "Xiong et al., On Layer Normalization in the Transformer Architecture, arXiv:2002.04745 (2020)"
CLAIMS = (
    Claim(
        "warm-up",
        "A Transformer with post-norm trains only if the learning rate is warmed up; with pre-norm it needs no warm-up.",
        f"{XIONG}, abstract",
    ),
    Claim(
        "rates",
        "Pre-norm trains at larger learning rates than post-norm.",
        f"what texts make of {XIONG}, whose abstract has that post-norm's large gradients near the output make large rates unstable",
    ),
    Claim("faster", "Pre-norm without warm-up learns in fewer steps than post-norm with it.", f"{XIONG}, abstract"),
    Claim(
        "end",
        "Where post-norm trains, it ends at least as well as pre-norm.",
        "Liu et al., Understanding the Difficulty of Training Transformers, arXiv:2004.08249 (2020), abstract, has that a light "
        "dependency on the residual branches, which is pre-norm's, leads to inferior models",
    ),
    Claim(
        "padding",
        "Padding changes no result: the masks hide it, and layer norm takes its statistics from one position alone.",
        "Ba, Kiros and Hinton, Layer Normalization, arXiv:1607.06450 (2016), section 3, of the statistics; that it is so to the "
        "bit is our own question",
    ),
)
VARIANTS = {
    "post": ("post", 0),
    "post, warm-up": ("post", 1),
    "pre": ("pre", 0),
    "pre, warm-up": ("pre", 1),
}  # the norm's place, and which of the warm-ups
LABELS = {name: name.replace("post", "post-norm").replace("pre", "pre-norm") for name in VARIANTS}
TRAINS = 0.5  # of the loss of guessing: what trains has at most that, held out, in every seed
GUESS = math.log(11)  # ten digits and the end
Runs = list[dict[str, Any]]


def at_rate(rate: float, found: Runs) -> dict[str, Any]:
    held = [one["held-out loss"] for one in found]
    return {
        "rate": rate,
        "trains": all(one is not None and one <= TRAINS * GUESS for one in held),
        "exact": spread([one["exact"] for one in found]),
        "words": spread([one["words"] for one in found]),
        "held-out losses": held,
        "held-out loss": spread_if(held),
        "mean losses": [one["mean loss"] for one in found],
        "mean loss": spread_if([one["mean loss"] for one in found]),
        "steps to": spread_if([one["steps to"] for one in found]),
    }


def best_by(key: str, places: list[dict[str, Any]]) -> dict[str, Any]:
    """The one with the smallest median; where a seed has no number, it is no candidate."""
    return min(places, key=lambda one: one[key]["median"] if one[key] else math.inf)


def whole(values: list[float | None]) -> list[float]:
    """What diverged is above everything."""
    return [math.inf if one is None else one for one in values]


def variant_of(name: str, depth: int, runs: Runs) -> dict[str, Any]:
    norm, index = VARIANTS[name]
    wanted = {"norm": norm, "warmup": encdec.WARMUPS[index], "depth": depth}
    of: dict[float, Runs] = {}
    for run in runs:
        if wanted.items() <= run["settings"].items():
            of.setdefault(run["settings"]["rate"], []).append(run["result"])
    places = [at_rate(rate, found) for rate, found in of.items()]
    trains = [one["rate"] for one in places if one["trains"]]
    return {
        "rates": places,
        "trains at": trains,
        "largest": max(trains, default=0.0),
        "fastest": best_by("mean loss", places),
        "best": best_by("held-out loss", places),
    }


def below(key: str, first: dict[str, Any], second: dict[str, Any]) -> bool:
    """Whether the first is below the second in every seed."""
    return ahead(whole(second[key]), whole(first[key]))


def ends_of(runs: Runs) -> list[dict[str, Any]]:
    """By depth and number of steps: each norm's best setting of all, by the held-out loss."""
    cases: dict[tuple[int, int], dict[str, dict[tuple[float, float], Runs]]] = {}
    for run in runs:
        chosen = run["settings"]
        of = cases.setdefault((chosen["depth"], chosen["steps"]), {}).setdefault(chosen["norm"], {})
        of.setdefault((chosen["warmup"], chosen["rate"]), []).append(run["result"])
    found = []
    for (depth, steps), norms in cases.items():
        best = {
            norm: best_by(
                "held-out loss", [{"warm-up": warm, **at_rate(rate, one)} for (warm, rate), one in of.items()]
            )
            for norm, of in norms.items()
        }
        found.append({"name": f"{layers(str(depth))} in {steps} steps", "depth": depth, "steps": steps, **best})
    return found


def settings_where(table: dict[str, Any], wins: Callable[[dict[str, bool]], bool]) -> list[str]:
    """Depths and rates where it is so of what trains, in words."""
    found = []
    for depth, of in table.items():
        for index, one in enumerate(of["post"]["rates"]):
            if wins({name: of[name]["rates"][index]["trains"] for name in VARIANTS}):
                found.append(f"{layers(depth)} at {one['rate']}")
    return found


def layers(depth: str) -> str:
    return f"{depth} + {depth} layers"


def compared(table: dict[str, Any], ends: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Where it is so, in words."""

    def faster(first: str, second: str) -> list[str]:
        return [
            layers(depth)
            for depth, of in table.items()
            if below("mean losses", of[first]["fastest"], of[second]["fastest"])
        ]

    def better(first: str, second: str) -> list[str]:
        return [of["name"] for of in ends if below("held-out losses", of[first], of[second])]

    def larger(first: str, second: str) -> list[str]:
        """Where the one norm's largest rate that trains is larger than the other's, without warm-up and with."""
        return [
            f"{layers(depth)}{warm.replace(', ', ' with ')}"
            for depth, of in table.items()
            for warm in ("", ", warm-up")
            if of[first + warm]["largest"] > of[second + warm]["largest"]
        ]

    return {
        "all": [layers(depth) for depth in table],
        "post trains without": settings_where(table, lambda one: one["post"]),
        "post needs": settings_where(table, lambda one: one["post, warm-up"] and not one["post"]),
        "pre needs": settings_where(table, lambda one: one["pre, warm-up"] and not one["pre"]),
        "post needs and pre does not": settings_where(
            table, lambda one: one["post, warm-up"] and not one["post"] and one["pre"]
        ),
        "pre at larger rates": larger("pre", "post"),
        "post at larger rates": larger("post", "pre"),
        "pre faster than post": faster("pre", "post"),
        "pre faster than post with warm-up": faster("pre", "post, warm-up"),
        "post with warm-up faster than pre": faster("post, warm-up", "pre"),
        "warm-up makes post faster": faster("post, warm-up", "post"),
        "warm-up makes pre faster": faster("pre, warm-up", "pre"),
        "pre ends better": better("pre", "post"),
        "post ends better": better("post", "pre"),
    }


def summary(runs: Runs) -> dict[str, Any]:
    depths = list(dict.fromkeys(run["settings"]["depth"] for run in runs))
    steps = runs[0]["settings"]["steps"]
    grid = [run for run in runs if run["settings"]["steps"] == steps]  # all settings, before those of more steps
    table = {str(depth): {name: variant_of(name, depth, grid) for name in VARIANTS} for depth in depths}
    ends = ends_of(runs)
    return {
        "depths": depths,
        "steps": steps,
        "warm-up": encdec.WARMUPS[1],
        "width": encdec.WIDTH,
        "heads": encdec.HEADS,
        "inner": encdec.INNER,
        "longest": encdec.LONGEST,
        "batch": encdec.SIZE,
        "held out": encdec.HELD,
        "one in": encdec.ONE_IN,
        "trains": TRAINS,
        "target": encdec.TARGET,
        "table": table,
        "ends": ends,
        **compared(table, ends),
        "bits": {
            norm: {
                kind: max(run["result"]["bits"][kind] for run in runs if run["settings"]["norm"] == norm)
                for kind in runs[0]["result"]["bits"]
            }
            for norm in encdec.NORMS
        },
    }


def judge(found: dict[str, Any]) -> dict[str, str]:
    never = bool(found["post needs"]) and not found["post trains without"] and not found["pre needs"]
    rates, cases = found["pre at larger rates"], 2 * len(found["depths"])
    faster, worse = found["pre faster than post with warm-up"], found["pre ends better"]
    hidden = [bits for one in found["bits"].values() for kind, bits in one.items() if kind != "more padding"]
    wider = [one["more padding"] for one in found["bits"].values()]
    return {
        "warm-up": HOLDS if never else CONDITIONS if found["post needs and pre does not"] else FAILS,
        "rates": HOLDS if len(rates) == cases else CONDITIONS if rates else FAILS,
        "faster": HOLDS if faster == found["all"] else CONDITIONS if faster else FAILS,
        "end": HOLDS if not worse else FAILS if len(worse) == len(found["ends"]) else CONDITIONS,
        "padding": FAILS if any(hidden) else CONDITIONS if any(wider) else HOLDS,
    }


def figures(pyplot: Any, result: Any) -> dict[str, Any]:
    return {"loss": losses(pyplot, result), "exact": exact(pyplot, result["summary"])}


def losses(pyplot: Any, result: Any) -> Any:
    found = result["summary"]
    rates = [one["rate"] for one in found["table"][str(found["depths"][0])]["post"]["rates"]]
    figure, axes = pyplot.subplots(
        len(found["depths"]), len(rates), figsize=(10, 2.6 * len(found["depths"])), sharex=True, sharey=True, squeeze=False
    )  # fmt: skip
    for row, depth in enumerate(found["depths"]):
        for column, rate in enumerate(rates):
            place = axes[row][column]
            for index, (name, (norm, warm)) in enumerate(VARIANTS.items()):
                wanted = {
                    "depth": depth,
                    "rate": rate,
                    "norm": norm,
                    "warmup": encdec.WARMUPS[warm],
                    "steps": found["steps"],
                }
                curves = [run["result"]["loss"] for run in result["runs"] if wanted.items() <= run["settings"].items()]
                if any(None in one for one in curves):
                    continue
                _plots.losses(place, found["steps"], curves, LABELS[name], index)
            place.set(title=f"{layers(str(depth))}, rate {rate}", yscale="log")
            axes[-1][column].set_xlabel("step")
        axes[row][0].set_ylabel("training loss")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=len(VARIANTS))
    return figure


def exact(pyplot: Any, found: Any) -> Any:
    figure, axes = pyplot.subplots(1, len(found["depths"]), figsize=(9, 3.4), sharey=True, squeeze=False)
    for place, (depth, of) in zip(axes[0], found["table"].items(), strict=True):
        for index, name in enumerate(VARIANTS):
            rates = of[name]["rates"]
            _plots.band(place, [one["rate"] for one in rates], [one["exact"] for one in rates], LABELS[name], index)
        place.set(title=layers(depth), xscale="log", xlabel="learning rate", ylim=(-0.02, 1.02))
    axes[0][0].set_ylabel("exact match, held-out strings")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=len(VARIANTS))
    return figure


def write(page: Page) -> Mapping[str, str]:
    page.say(
        "A Transformer with encoder and decoder, as many layers each, of width {summary/width} with {summary/heads} heads, "
        "feed-forward layers of {summary/inner} and sinusoidal positions, learns to reverse and to sort strings of up to "
        "{summary/longest} digits: a letter says which. {summary/batch} strings in a padded batch, drawn anew for each of "
        "{summary/steps} steps, but for one in {summary/one in}, chosen by its hash, which is held out. Norms are "
        "evenorm.torch.LayerNorm; pre-norm has a last one after the encoder and after the decoder. Adam's rate falls linearly to "
        "zero; warm-up is linear over the first {summary/warm-up:.0%} of the steps. A setting trains if its held-out loss is at "
        "most {summary/trains:.0%} of the loss of guessing in every seed."
    )
    page.say(
        "Exact match: the share of {summary/held out} held-out strings whose whole answer is right; an asterisk where it trains:"
    )
    write_exact(page)
    page.figure("loss", "Training loss by step: medians of the seeds, smallest to largest")
    page.figure(
        "exact", "Exact match on held-out strings over learning rates: medians of the seeds, smallest to largest"
    )
    write_best(page)
    write_ends(page)
    page.say(
        "**Padding.** Bits of the logits of {summary/batch} held-out strings that change, where their answers are, the most of all "
        "runs. “More padding” makes all matrix products wider; the others leave their shapes."
    )
    page.table(
        ["what changes", *(f"{norm}-norm" for norm in encdec.NORMS)],
        [
            [kind, *(f"{{summary/bits/{norm}/{kind}}}" for norm in encdec.NORMS)]
            for kind in page.at("summary/bits/post")
        ],
    )
    return because(page)


def write_exact(page: Page) -> None:
    table = page.at("summary/table")
    rows = []
    for depth, of in table.items():
        for index in range(len(of["post"]["rates"])):
            at = f"summary/table/{depth}"
            cells = [
                range_of(f"{at}/{name}/rates/{index}/exact", ".0%")
                + (" *" if of[name]["rates"][index]["trains"] else "")
                for name in VARIANTS
            ]
            rows.append([f"{{{at}/post/rates/{index}/rate}}", *cells])
            rows[-1].insert(0, layers(f"{{summary/depths/{list(table).index(depth)}}}"))
    page.table(["layers", "rate", *LABELS.values()], rows)


def write_best(page: Page) -> None:
    page.say(
        "Each at its own best rate, by the mean loss over all steps, the measure of speed. “Steps” is when the loss, a mean of "
        "a few, first is {summary/target} or less:"
    )
    rows = []
    for number, (depth, of) in enumerate(page.at("summary/table").items()):
        for name, label in LABELS.items():
            at = f"summary/table/{depth}/{name}/fastest"
            rows.append(
                [layers(f"{{summary/depths/{number}}}"), label, f"{{{at}/rate}}"]
                + [
                    range_of(f"{at}/{key}", spec) if of[name]["fastest"][key] else "not in every seed"
                    for key, spec in (("mean loss", ".3g"), ("steps to", ",.0f"), ("held-out loss", ".2g"))
                ]
                + [f"{{summary/table/{depth}/{name}/trains at}}"]
            )
    page.table(["layers", "norm", "best rate", "mean loss", "steps", "held-out loss", "rates that train"], rows)


def write_ends(page: Page) -> None:
    page.say(
        "**Ends.** The best setting of each norm by the held-out loss, with warm-up or without; some with warm-up train longer, the "
        "rate falling to zero at the last step of all."
    )
    rows = []
    for index, of in enumerate(page.at("summary/ends")):
        for norm in encdec.NORMS:
            at = f"summary/ends/{index}"
            rows.append(
                [
                    layers(f"{{{at}/depth}}"),
                    f"{{{at}/steps}}",
                    f"{norm}-norm" + (", warm-up" if of[norm]["warm-up"] else ""),
                ]
                + [f"{{{at}/{norm}/rate}}", range_of(f"{at}/{norm}/exact", ".1%")]
                + [range_of(f"{at}/{norm}/held-out loss", ".2g") if of[norm]["held-out loss"] else "none"]
            )
    page.table(["layers", "steps", "norm", "rate", "exact match", "held-out loss"], rows)


def because(page: Page) -> Mapping[str, str]:
    verdict = page.at("verdicts")

    return {
        "warm-up": "Post-norm trains with warm-up and not without in: {summary/post needs}; pre-norm in: {summary/pre needs}. "
        "Post-norm trains without in: {summary/post trains without}." + page.condition("the settings that are named first", "warm-up"),
        "rates": "The largest rate that trains is larger with pre-norm in: {summary/pre at larger rates}; with post-norm in: "
        "{summary/post at larger rates}." + page.condition("what is named first", "rates"),
        "faster": "By the mean loss over all steps, each at its own best rate, pre-norm without warm-up is ahead of post-norm with "
        "it, in every seed, in: {summary/pre faster than post with warm-up}; behind in: {summary/post with warm-up faster than pre}. "
        "Beside post-norm without warm-up it is ahead in: {summary/pre faster than post}. Warm-up makes post-norm faster in: "
        "{summary/warm-up makes post faster}; pre-norm in: {summary/warm-up makes pre faster}."
        + page.condition("the depths that are named first", "faster"),
        "end": "By the held-out loss, each at its best setting, pre-norm ends ahead in every seed in: {summary/pre ends better}; "
        "post-norm in: {summary/post ends better}. Elsewhere neither is ahead in every seed."
        + page.condition("what is not named first", "end"),
        "padding": "What masks hide changes no bit with either norm."
        + ("" if verdict["padding"] == HOLDS else " Condition: batches of one width. More padding changes the shape of the products, and with it how PyTorch rounds.")
        if verdict["padding"] != FAILS
        else "Bits change with what the masks should hide: see the table.",
    }  # fmt: skip


SECTION = Section("encdec", "Encoder and decoder", CLAIMS, encdec.runs, encdec.run, summary, judge, figures, write)
