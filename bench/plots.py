#!/usr/bin/env python3
"""Plots the results as SVG. The same results give the same bytes.

  overview        for README: bandwidth of forward and gradients, f32 and bf16, one thread
  bandwidth-...   GB/s over the bytes of the pass, with the best copy; a panel for each type
  speedup-...     every rival's time over evenorm's; a panel for each rival

The rest of a name has the form, kind, data, type, threads and target, unless they are the usual ones.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
from collections.abc import Callable

import matplotlib.style
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from outcomes import (
    LIBRARIES,
    Results,
    bandwidth,
    clock,
    described,
    load,
    measured,
    off_grid,
    ratio,
    shape,
    significant,
    size,
    spread,
    threads,
)

LEAST_SIZES = 3  # for a plot
LEAST_BARS = 6  # a plot has room for at least that many
JOINED = (512, 4096)  # columns; lines join only rows of similar lengths
# Okabe and Ito's colours, which colour-blind readers can distinguish. Marks differ, too.
LOOKS = {
    "evenorm": ("#0072B2", "o"), "copy": ("#555555", "_"), "onednn": ("#D55E00", "s"), "torch": ("#E69F00", "^"),
    "onnxruntime": ("#009E73", "D"), "zentorch": ("#CC79A7", "v"),
}  # fmt: skip
OTHER = ("#000000", "x")
STYLE = {
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#e3e3e3",
    "svg.hashsalt": "evenorm",
}


@dataclasses.dataclass(frozen=True)
class Picture:
    name: str
    caption: str
    figure: Callable[[], Figure] = dataclasses.field(repr=False, compare=False)


def footer(results: Results, entries: list[dict]) -> str:
    first, runs = entries[0], results.runs(entries)
    return (
        f"{results.processor}, {described(first, 'target')}, {threads(first)}; {clock(first)}, medians, "
        f"{runs} run{'s' if runs > 1 else ''}"
    )


def new_figure(height: float, text: str) -> Figure:
    figure = Figure(figsize=(9, height), layout="constrained")
    figure.supxlabel(text, fontsize=8, color="#555555")
    return figure


def caches(results: Results) -> dict[str, int]:
    """{"L1": 49152, ...}"""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    sizes = results.machine.get("caches", {})
    return {name.removesuffix("d"): int(text[:-1]) * units[text[-1]] for name, text in sizes.items()}


def bytes_named(value: float, _: int = 0) -> str:
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if value >= 1 << power:
            return f"{value / (1 << power):g} {unit}"
    return f"{value:g} B"


def draw_library(axes, entries: list[dict], library: str) -> None:
    """A line through rows of the usual widths; pale marks for other rows."""
    there = sorted((entry for entry in entries if measured(entry, library)), key=lambda e: (e["bytes"], shape(e)))
    usual = [entry for entry in there if JOINED[0] <= entry["cols"] <= JOINED[1] and not off_grid(entry)]
    others = [entry for entry in there if entry not in usual]
    ours, copy = library == "evenorm", library == "copy"
    colour, mark = LOOKS.get(library, OTHER)

    def draw(points: list[dict], **look) -> None:
        x, y = [entry["bytes"] for entry in points], [bandwidth(entry, library) for entry in points]
        axes.plot(x, y, color=colour, zorder=4 if ours else 3, **look)

    mark_of_line = "" if copy and len(usual) > 1 else mark
    line = {"linestyle": "--" if copy else "-", "linewidth": 2.2 if ours else 1.3}
    draw(usual, marker=mark_of_line, markersize=4.5, label=LIBRARIES.get(library, library), **line)
    draw(others, marker=mark, markersize=3.5, linestyle="", alpha=0.45)


def finish_bandwidth(axes, sizes: dict[str, int]) -> None:
    axes.set(xscale="log", yscale="log", xlabel="bytes read and written", ylabel="GB/s")
    axes.xaxis.set_major_locator(LogLocator(base=16))
    axes.xaxis.set_major_formatter(FuncFormatter(bytes_named))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
    axes.tick_params(labelbottom=True)
    axes.grid(True)
    left, right = axes.get_xlim()
    for name, cache in sizes.items():
        if left < cache < right:
            axes.axvline(cache, color="#aaaaaa", linewidth=0.8, linestyle=":", zorder=1)
            axes.text(cache, 0.02, f" {name}", transform=axes.get_xaxis_transform(), fontsize=7, color="#777777")


def bandwidth_figure(results: Results, groups: list[list[dict]]) -> Figure:
    """A panel for each group, two in a row, with the same axes."""
    entries = [entry for group in groups for entry in group]
    libraries = [
        name
        for name in ("evenorm", "copy", *results.rivals(entries))
        if any(measured(entry, name) for entry in entries)
    ]
    columns = min(len(groups), 2)
    rows = -(-len(groups) // columns)
    text = f"{footer(results, entries)}\nlines: {JOINED[0]:,} to {JOINED[1]:,} columns, divisible by 16; pale: others"
    figure = new_figure(3.2 * rows + 0.7, text)
    axes = list(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)
    for panel, group in zip(axes, groups, strict=False):
        for library in libraries:
            draw_library(panel, group, library)
        panel.set_title(described(group[0], "form", "kind", "dtype", "data"))
    for panel in axes[: len(groups)]:
        finish_bandwidth(panel, caches(results))
    for panel in axes[len(groups) :]:
        panel.remove()
    handles = axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=len(libraries), frameon=False)
    return figure


def draw_speedup(axes, entries: list[dict], rival: str) -> None:
    """Bars from 1 for the medians, and whiskers for their spread."""
    found = [(place, ratios) for place, entry in enumerate(entries) if (ratios := ratio(entry, rival))]
    for place, (low, middle, high) in found:
        up, alpha = middle >= 1, 0.85 if significant((low, middle, high)) else 0.3
        axes.bar(place, middle - 1, 0.7, bottom=1, color=LOOKS.get(rival, OTHER)[0], alpha=alpha)
        axes.plot([place] * 2, [low, high], color="#222222", linewidth=1, marker="_", markersize=5)
        end, side = (max(high, 1), 3) if up else (min(low, 1), -3)
        axes.annotate(
            f"{middle:.3g}" if middle >= 10 else f"{middle:.2f}", (place, end), xytext=(0, side),
            textcoords="offset points", ha="center", va="bottom" if up else "top", fontsize=7,
        )  # fmt: skip
    low, high = min(0.97, *(ratios[0] for _, ratios in found)), max(1.03, *(ratios[2] for _, ratios in found))
    room = (high / low) ** 0.2  # for the numbers beside the bars
    axes.set(yscale="log", ylim=(low / room, high * room), xlim=(-0.8, max(len(entries), LEAST_BARS) - 0.2))
    axes.yaxis.set_major_locator(LogLocator(base=2, numticks=6) if high / low > 4 else MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.grid(True, axis="y")
    axes.axhline(1, color="#222222", linewidth=1)
    axes.set_title(f"{LIBRARIES.get(rival, rival)}'s time over evenorm's", loc="left")


def speedup_figure(results: Results, entries: list[dict]) -> Figure:
    entries = sorted(entries, key=lambda entry: (entry["bytes"], shape(entry)))
    rivals = results.rivals(entries)
    whiskers = f"whiskers: {spread(results.runs(entries))}; pale: not significantly different from 1"
    figure = new_figure(1.4 * len(rivals) + 1.8, f"{footer(results, entries)}\n{whiskers}")
    axes = figure.subplots(len(rivals), 1, sharex=True, squeeze=False)[:, 0]
    for panel, rival in zip(axes, rivals, strict=True):
        draw_speedup(panel, entries, rival)
    names = [size(entry) for entry in entries]
    axes[-1].set_xticks(range(len(entries)), names, rotation=45, ha="right", rotation_mode="anchor")
    figure.suptitle(f"{described(entries[0], 'form', 'kind', 'dtype', 'data')}: above 1 evenorm is faster", fontsize=10)
    return figure


def enough(group: list[dict]) -> bool:
    return len({shape(entry) for entry in group}) >= LEAST_SIZES


def name_of(entry: dict, first: str, *, dtype: bool = False) -> str:
    parts = [
        first, entry["form"], "" if entry["kind"] == "layer" else entry["kind"],
        "" if entry["data"] == "normal" else entry["data"], entry["dtype"] if dtype else "", f"{entry['threads']}t",
        "" if entry["target"] == "native" else entry["target"],
    ]  # fmt: skip
    return "-".join(part for part in parts if part)


def bandwidth_picture(results: Results, groups: list[list[dict]], name: str = "") -> list[Picture]:
    """The picture of these groups; empty if no group has enough sizes."""
    groups = [group for group in groups if enough(group)]
    if not groups:
        return []
    first = groups[0][0]
    words = ("form", "kind", "data", "target") if not name else ("kind", "data", "target")
    caption = f"Bandwidth over size: {described(first, *words)}, {threads(first)}"
    return [Picture(name or name_of(first, "bandwidth"), caption, lambda: bandwidth_figure(results, groups))]


def speedup_picture(results: Results, entries: list[dict]) -> list[Picture]:
    if not results.rivals(entries) or not enough(entries):
        return []
    first = entries[0]
    caption = (
        f"Other libraries' times over evenorm's: {described(first, 'form', 'kind', 'dtype', 'data', 'target')}, "
        f"{threads(first)}"
    )
    return [Picture(name_of(first, "speedup", dtype=True), caption, lambda: speedup_figure(results, entries))]


def pictures(results: Results) -> list[Picture]:
    """All plots that the results have enough points for. Nothing is drawn yet."""
    usual = {"kind": "layer", "threads": 1, "target": "native", "data": "normal"}
    groups = [
        results.chosen(form=form, dtype=dtype, **usual) for form in ("forward", "backward") for dtype in ("f32", "bf16")
    ]
    found = bandwidth_picture(results, groups, "overview")
    for group in results.groups("form", "kind", "data", "threads", "target"):
        same_type = results.groups("dtype", among=group)
        found += bandwidth_picture(results, same_type)
        for entries in same_type:
            found += speedup_picture(results, entries)
    return found


def draw(results: Results, folder: pathlib.Path) -> list[Picture]:
    """Draws each picture and writes NAME.svg."""
    drawn = pictures(results)
    folder.mkdir(parents=True, exist_ok=True)
    with matplotlib.style.context(["default", STYLE]):  # not the user's settings
        for picture in drawn:
            picture.figure().savefig(folder / f"{picture.name}.svg", metadata={"Date": None, "Creator": None})
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=pathlib.Path, help="results.json")
    parser.add_argument("--output", type=pathlib.Path, required=True, metavar="DIR")
    arguments = parser.parse_args()
    for picture in draw(load(arguments.results), arguments.output):
        print(f"{arguments.output / picture.name}.svg  {picture.caption}")


if __name__ == "__main__":
    main()
