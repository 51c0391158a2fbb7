"""The section `depth`: what its runs say together, its plots, its text."""

from collections.abc import Mapping
from typing import Any

from . import _plots, depth
from ._page import Page, range_of
from ._sections import CONDITIONS, Claim, Section, spread
from .depth_summary import gradient_checks, judge, summary

LABELS = {
    "none": "no norm",
    "still": "no norm, branches begin at zero",
    "post": "post-norm",
    "post, warm-up": "post-norm with warm-up",
    "pre": "pre-norm",
    "both": "norm before and after (peri)",
    "rms": "pre-norm, RMS norm",
    "tanh": "pre-norm, tanh for the norm",
}
CLAIMS = (
    Claim(
        "warm-up",
        "Post-norm needs a warm-up of the learning rate to train deep stacks; pre-norm trains them without.",
        "Xiong et al., On Layer Normalization in the Transformer Architecture, arXiv:2002.04745 (2020), abstract",
    ),
    Claim(
        "gradients",
        "At initialisation, post-norm's gradients are large near the output, however deep the stack; pre-norm's fall with the "
        "depth, as one over its root.",
        "Xiong et al., arXiv:2002.04745 (2020), section 3",
    ),
    Claim(
        "none",
        "Without a norm, deep stacks do not train.",
        "a common belief, which Zhang, Dauphin and Ma state to refute it: Fixup Initialization, arXiv:1901.09321 (2019), abstract",
    ),
    Claim(
        "rms",
        "RMS norm trains as well as layer norm.",
        "Zhang and Sennrich, Root Mean Square Layer Normalization, arXiv:1910.07467 (2019), abstract",
    ),
    Claim(
        "tanh",
        "A tanh with a learned scale in the norm's place (DyT) trains as well as the norm, mostly without other settings.",
        "Zhu et al., Transformers without Normalization, arXiv:2503.10622 (2025), abstract",
    ),
    Claim(
        "peri",
        "Norms before and after each sublayer (peri-norm) let the residual stream grow less in training than pre-norm does, and "
        "train more stably and as well or better.",
        "Kim et al., Peri-LN: Revisiting Normalization Layer in the Transformer Architecture, arXiv:2502.02732 (2025), abstract",
    ),
)
ALONE = tuple(kind for kind in LABELS if kind != "post, warm-up")  # those that begin in their own way


def figures(pyplot: Any, result: Any) -> dict[str, Any]:
    return {"loss": curves(pyplot, result), "rates": maps(pyplot, result), "layers": layers(pyplot, result)}


def colour(kind: str) -> int:
    return list(LABELS).index(kind)


def curves(pyplot: Any, result: Any) -> Any:
    """Held-out loss by step, a panel for each depth, each kind at its best rate."""
    found = result["summary"]
    figure, axes = pyplot.subplots(1, len(found["depths"]), figsize=(9.5, 4.3), sharey=True, squeeze=False)
    of = {
        (run["settings"]["norm"], run["settings"]["depth"], run["settings"]["rate"], run["seed"]): run["result"]["loss"]
        for run in result["runs"]
        if run["settings"]["part"] == "train"
    }
    for place, at in zip(axes[0], found["depths"], strict=True):
        for name in ("unigram", "bigram"):
            place.axhline(
                found["text"][name], color="#999999", linewidth=0.8, linestyle="--" if name == "bigram" else "-."
            )
        for kind, label in LABELS.items():
            best = found["best"][kind][str(at)]
            if best:
                losses = [of[kind, at, best["rate"], seed] for seed in result["seeds"]]
                steps = [found["steps"] * point / depth.POINTS for point in range(depth.POINTS + 1)]
                _plots.band(place, steps, [spread(one) for one in zip(*losses, strict=True)], label, colour(kind))
        place.set(
            title=f"{at} layers", xlabel="step", ylim=(found["text"]["bigram"] - 0.1, found["text"]["unigram"] + 0.6)
        )
    axes[0][0].set_ylabel("held-out loss, nats")
    handles = {name: one for place in axes[0] for one, name in zip(*place.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4)
    return figure


def maps(pyplot: Any, result: Any) -> Any:
    """The loss after the last step over depth and rate, a panel for each kind; bold where all seeds train."""
    found = result["summary"]
    depths, rates = found["depths"], found["rates"]
    figure, axes = pyplot.subplots(2, 4, figsize=(9.5, 4.6), sharex=True, sharey=True)
    shades = pyplot.get_cmap("viridis_r").with_extremes(bad="#dddddd")
    low, high = found["text"]["bigram"], found["text"]["unigram"]
    for place, (kind, label) in zip(axes.flat, LABELS.items(), strict=True):
        table = [[found["table"][kind][str(at)][str(rate)] for rate in rates] for at in depths]
        values = [[one["loss"]["median"] if one["loss"] else float("nan") for one in line] for line in table]
        drawn = place.pcolormesh(values, cmap=shades, vmin=low, vmax=high + 0.2)
        for row, line in enumerate(table):
            for column, one in enumerate(line):
                dark = one["loss"] and one["loss"]["median"] > (low + high) / 2
                weight = "bold" if one["train"] == found["seeds"] else "normal"
                place.text(
                    column + 0.5, row + 0.5, words(one, found["seeds"]), ha="center", va="center", fontsize=7.5, fontweight=weight,
                    color="white" if dark else "black",
                )  # fmt: skip
        place.grid(False)
        place.set_title(label, fontsize=8.5)
        place.set_xticks([one + 0.5 for one in range(len(rates))], [f"{rate:g}" for rate in rates])
        place.set_yticks([one + 0.5 for one in range(len(depths))], [str(at) for at in depths])
    figure.supxlabel("learning rate", fontsize=9)
    figure.supylabel("layers", fontsize=9)
    figure.colorbar(drawn, ax=axes, label="held-out loss, nats", extend="max", shrink=0.8)
    return figure


def words(cell: dict[str, Any], seeds: int) -> str:
    """The median loss, or how many of the seeds ended early."""
    if cell["loss"] is None:
        return f"{cell['ended early']}/{seeds}"
    return f"{cell['loss']['median']:.{2 if cell['loss']['median'] < 100 else 0}f}"


def layers(pyplot: Any, result: Any) -> Any:
    """Of the deepest stack: gradients and the stream at initialisation, the stream after training; gradients by depth."""
    found = result["summary"]
    deepest, rate, depths = found["deepest"], found["shown rate"], found["depths"]
    figure, axes = pyplot.subplots(2, 2, figsize=(9.5, 6.6))
    for kind in LABELS:
        for name, place in (("gradient", axes[0][0]), ("stream", axes[1][0])):
            if kind in ALONE:
                by_layer(place, values_of(result, kind, {"part": "start", "depth": deepest}, name), name, kind)
        by_layer(
            axes[1][1],
            values_of(result, kind, {"part": "train", "depth": deepest, "rate": rate}, "stream"),
            "stream",
            kind,
        )
        last = found["start"][kind]["last"] if kind in ALONE else {}
        if last and all(last.values()):
            _plots.band(axes[0][1], depths, [last[str(at)] for at in depths], LABELS[kind], colour(kind))
    finish(axes, found)
    handles = {name: one for place in axes.flat for one, name in zip(*place.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4)
    return figure


def finish(axes: Any, found: Any) -> None:
    """The four panels' titles and axes, and the line that Xiong et al. expect."""
    deepest, rate, depths = found["deepest"], found["shown rate"], found["depths"]
    first = found["start"]["pre"]["last"][str(depths[0])]["median"]
    axes[0][1].plot(
        depths,
        [first * (depths[0] / at) ** 0.5 for at in depths],
        color="#888888",
        linestyle="--",
        linewidth=1,
        label="one over the root",
    )
    axes[0][0].set(title=f"gradient at initialisation, {deepest} layers", xlabel="layer", ylabel="norm")
    axes[0][1].set(title="gradient of the last layer at initialisation", xlabel="layers", ylabel="norm", xscale="log")
    axes[0][1].set_xticks(depths, [str(at) for at in depths])
    axes[0][1].minorticks_off()
    axes[1][0].set(
        title=f"residual stream at initialisation, {deepest} layers", xlabel="after layer", ylabel="root mean square"
    )
    trained = "no rate" if rate is None else f"rate {rate:g}"
    axes[1][1].set(
        title=f"after training, {deepest} layers, {trained}", xlabel="after layer", ylabel="root mean square"
    )
    for place in (axes[0][0], axes[1][0], axes[1][1]):
        place.xaxis.get_major_locator().set_params(integer=True)
    for place, top in ((axes[0][0], 10), (axes[0][1], 10), (axes[1][0], 100), (axes[1][1], 1000)):
        place.set_yscale("log")
        place.set_ylim(None, min(top, place.get_ylim()[1]))  # without a norm both grow off the page


def values_of(result: Any, kind: str, wanted: dict[str, Any], name: str) -> list[list[float]]:
    """What each seed gave by layer; nothing where a seed gave none."""
    wanted = {**wanted, "norm": kind}
    found = [run["result"][name] for run in result["runs"] if wanted.items() <= run["settings"].items()]
    return found if all(one and None not in one for one in found) else []


def by_layer(place: Any, values: list[list[float]], name: str, kind: str) -> None:
    if values:
        first = 1 if name == "gradient" else 0  # the stream begins with the embedding
        at = range(first, first + len(values[0]))
        spreads = [spread(one) for one in zip(*values, strict=True)]
        colours = _plots.COLOURS[colour(kind) % len(_plots.COLOURS)]
        place.plot(at, [one["median"] for one in spreads], color=colours, label=LABELS[kind])
        low, high = [one["min"] for one in spreads], [one["max"] for one in spreads]
        place.fill_between(at, low, high, color=colours, alpha=0.15, linewidth=0)


def write(page: Page) -> Mapping[str, str]:
    page.say(
        "A GPT reads the text of Python's manual (pydoc_data.topics: {summary/text/characters} characters, "
        "{summary/text/symbols} symbols, the last of them for all rare characters) character by character: width {summary/width}, {summary/heads} heads, "
        "context {summary/context}, feed-forward network with ReLU, Glorot initialisation. Of its blocks of {summary/block} characters "
        "{summary/held-out share:.0%} are held out. Adam makes {summary/steps} steps with {summary/batch} windows each, the rate "
        "constant, nothing clipped; the same seed gives the same weights and the same text whatever the norm. “With warm-up” the rate "
        "grows linearly in the first {summary/warm-up/steps} steps. “Branches begin at zero”: the last matrix of each is zero at first, so "
        "that each layer begins as the identity, without a norm. The tanh is gamma tanh(alpha x) + beta with alpha {summary/alpha} at first. "
        "Pre-norm and peri-norm have a last norm before the logits, post-norm has none, as in the papers."
    )
    page.say(
        "Whoever counts characters gets the loss {summary/text/unigram:.3f} (the unigram entropy, in nats), pairs of them "
        "{summary/text/bigram:.3f}. A run **trains** if its held-out loss comes below {summary/criterion:.3f}, {summary/way:.0%} of the way from "
        "the one to the other; a rate, if all seeds do. A run whose loss is no number, or after {summary/share:.0%} of the steps more than "
        "{summary/hopeless:.0f} times that of guessing, is ended. So few steps show what starts to learn, not who wins in the end."
    )
    page.figure(
        "rates",
        "Median held-out loss over depth and learning rate; bold where all seeds train; grey where runs ended early, and how many",
    )
    tables(page)
    page.figure(
        "loss",
        "Held-out loss by step, each at its best rate: medians of the seeds, smallest to largest; lines: the two entropies",
    )
    page.figure(
        "layers",
        "Gradients of the last matrix of each layer, and the size of the residual stream, by layer and depth; what grows fastest leaves the page",
    )
    return {
        "warm-up": because_of_warm_up(page),
        "gradients": because_of_gradients(page),
        "none": because_of_none(page),
        "rms": compared(page, "rms", "close at"),
        "tanh": compared(page, "tanh", "as well at") + " The largest rate that trains is, by depth, "
        + f"{tops(page, 'tanh')}, with the norm {tops(page, 'pre')}. Alpha was not tuned.",
        "peri": because_of_peri(page),
    }  # fmt: skip


def tables(page: Page) -> None:
    depths = page.at("summary/depths")
    heads = [f"{{summary/depths/{index}}} layers" for index in range(len(depths))]
    page.say("The largest learning rate that trains:")
    page.table(
        ["", *heads], [[label, *(f"{{summary/top/{kind}/{at}}}" for at in depths)] for kind, label in LABELS.items()]
    )

    def best(kind: str, at: int) -> str:
        path = f"summary/best/{kind}/{at}"
        return f"{range_of(f'{path}/loss', '.3f')} at {{{path}/rate}}" if page.at(path) else "ended early at every rate"

    page.say("The held-out loss after the last step, at the rate with the best median:")
    page.table(["", *heads], [[label, *(best(kind, at) for at in depths)] for kind, label in LABELS.items()])


def by_depth(page: Page, path: str, spec: str) -> str:
    """Spreads by depth, as words."""
    return "; ".join(
        f"{{summary/depths/{index}}} layers: " + (range_of(f"{path}/{at}", spec) if page.at(f"{path}/{at}") else "none")
        for index, at in enumerate(page.at("summary/depths"))
    )


def tops(page: Page, kind: str) -> str:
    return ", ".join(f"{{summary/top/{kind}/{at}}}" for at in page.at("summary/depths"))


def compared(page: Page, kind: str, counted: str) -> str:
    """How a kind does beside pre-norm."""
    path = f"summary/against pre/{kind}"
    within = "either way" if counted == "close at" else "more"
    return (
        f"Each at its best rate, its loss less that of pre-norm with layer norm, seed by seed: {by_depth(page, f'{path}/apart', '+.3f')}. "
        f"A median of {{summary/close}} {within} at most counts as equally good where both train; that is so at these depths: {{{path}/{counted}}}. It is better in every "
        f"seed at these: {{{path}/better at}}; worse in every seed at these: {{{path}/worse at}}."
    )


def because_of_warm_up(page: Page) -> str:
    top, deepest = page.at("summary/top"), str(page.at("summary/deepest"))
    post, warm, pre = (top[kind][deepest] for kind in ("post", "post, warm-up", "pre"))
    text = (
        "Without warm-up, pre-norm trains at these depths: {summary/trains at/pre}; post-norm at these: {summary/trains at/post}; with "
        "warm-up, post-norm at these: {summary/trains at/post, warm-up}. With it, post-norm trains in {summary/warm-up/gains} of "
        "{summary/warm-up/of} settings (depth and rate) in which it does not without, and does not in {summary/warm-up/loses} in which it does."
    )
    if page.at("verdicts/warm-up") == CONDITIONS:
        if post is None and warm is None:
            text += (
                " Condition: in {summary/steps} steps warm-up does not rescue post-norm at {summary/deepest} layers. That pre-norm does "
                "without it holds, that warm-up is what post-norm lacks there is not shown."
            )
        else:
            text += " Condition: a large rate. At {summary/deepest} layers post-norm trains without warm-up at smaller ones."
    if pre is not None and post is not None and post >= pre:
        text += " At {summary/deepest} layers post-norm trains at as large a rate as pre-norm, without warm-up."
    if pre is None:
        text += " At {summary/deepest} layers pre-norm does not train either."
    return text


def because_of_gradients(page: Page) -> str:
    start, checks = "summary/start", gradient_checks(page.at("summary"))
    return (
        f"The norm of the gradient of the last layer's last matrix, post-norm: {by_depth(page, f'{start}/post/last', '.2g')}. Pre-norm: "
        f"{by_depth(page, f'{start}/pre/last', '.2g')}. Over depth, in logarithms, post-norm's has the slope "
        f"{range_of(f'{start}/post/slope', '.2f')}, pre-norm's {range_of(f'{start}/pre/slope', '.2f')}: {{summary/flat/0}} to {{summary/flat/1}} "
        "counts as none, {summary/root/0} to {summary/root/1} as one over the root. The last layer's over the first's with post-norm: "
        f"{by_depth(page, f'{start}/post/last over first', '.2g')}; with pre-norm: {by_depth(page, f'{start}/pre/last over first', '.2g')}. "
        f"Of the claim's parts, each to hold in every seed, these do: {'; '.join(name for name, yes in checks.items() if yes) or 'none'}. These do not: "
        f"{'; '.join(name for name, yes in checks.items() if not yes) or 'none'}."
    )


def because_of_none(page: Page) -> str:
    top, deepest = page.at("summary/top"), str(page.at("summary/deepest"))
    text = (
        "Without a norm, these depths train: {summary/trains at/none}; with branches that begin at zero, still without a norm: "
        "{summary/trains at/still}. The largest rates that train are, by depth, "
        f"{tops(page, 'none')} and {tops(page, 'still')}, with pre-norm {tops(page, 'pre')}. "
        "With branches that begin at zero, the loss at the best rate less pre-norm's is, seed by seed: "
        f"{by_depth(page, 'summary/against pre/still/apart', '+.3f')}. It is better in every seed at these depths: "
        "{summary/against pre/still/better at}; worse in every seed at these: {summary/against pre/still/worse at}."
    )
    if top["pre"][deepest] is None:
        text += " Since pre-norm does not train {summary/deepest} layers either, nothing is shown of the norm."
    if page.at("verdicts/none") == CONDITIONS:
        if top["none"][deepest] is None:
            begins = [f"summary/start/{kind}/stream/{deepest}" for kind in ("none", "pre")]
            sizes = [range_of(path, ".3g") if page.at(path) else "no number" for path in begins]
            text += (
                f" Condition: the usual initialisation. With it the residual stream after {{summary/deepest}} layers begins with a root mean square of {sizes[0]} "
                f"without a norm, {sizes[1]} with pre-norm. Where branches begin at zero, {{summary/deepest}} layers train without a norm."
            )
        else:
            text += " Condition: a large rate. {summary/deepest} layers train without a norm at smaller ones."
    return text


def because_of_peri(page: Page) -> str:
    active = "summary/activations"
    ratios = [
        f"at rate {{summary/rates/{index}}} " + range_of(f"{active}/ratio at/{rate}", ".2f")
        for index, rate in enumerate(page.at("summary/rates"))
        if page.at(f"{active}/ratio at/{rate}")
    ]
    return (
        f"In {{{active}/settings}} settings (depth and rate) both train. After training, peri-norm's stream after the last layer (root mean square) is "
        f"smaller than pre-norm's in every seed in {{{active}/smaller}} of them, larger in {{{active}/larger}}. Peri-norm's over pre-norm's, of all depths: {'; '.join(ratios) or 'none'}. The largest number in the stream is "
        f"smaller in {{{active}/largest smaller}}, larger in {{{active}/largest larger}}. At initialisation the stream is smaller at these "
        f"depths: {{{active}/smaller at the beginning at}}; larger at these: {{{active}/larger at the beginning at}}. "
        + compared(page, "both", "as well at")
        + f" The largest rates that train are, by depth, {tops(page, 'both')}, pre-norm's {tops(page, 'pre')}."
    )


SECTION = Section("depth", "Depth and learning rate", CLAIMS, depth.runs, depth.run, summary, judge, figures, write)
