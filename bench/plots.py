#!/usr/bin/env python3
"""Pictures of the results, SVG and PNG of each; the same results give the same bytes.

  overview        for README: bandwidth of forward and gradients, f32 and bf16, one thread
  bandwidth-...   GB/s over the bytes of the pass, a panel for each type, the best copy as the ceiling
  cost-...        evenorm's nanoseconds for one element, by rows and columns
  speedup-...     every rival's time over evenorm's, a panel for each rival

The rest of a name: form, kind and data where they are not the usual ones, speedup's type, threads, target.
"""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import math
import pathlib
import sys
from collections.abc import Callable

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator
from outcomes import (
    LIBRARIES,
    Results,
    bandwidth,
    clock,
    described,
    load,
    measured,
    nanoseconds_per_element,
    ratio,
    shape,
    size,
    spread,
    threads,
    told_apart,
)

WIDTH = 9.0  # inches: README's
LEAST_SIZES = 3  # for a line or a map
LEAST_BARS = 6  # there is room for as many
LEAST_COSTS = 4.0  # from the lightest to the darkest
JOINED = (512, 4096)  # columns: other rows are another matter, and are not joined by the lines
# Of Okabe and Ito's colours, told apart by the colour-blind too; marks differ as well.
COLOURS = {
    "evenorm": "#0072B2",
    "copy": "#555555",
    "onednn": "#D55E00",
    "torch": "#E69F00",
    "onnxruntime": "#009E73",
    "zentorch": "#CC79A7",
    "against": "#56B4E9",
}
MARKS = {"evenorm": "o", "copy": "_", "onednn": "s", "torch": "^", "onnxruntime": "D", "zentorch": "v", "against": "P"}
OTHER_COLOUR, OTHER_MARK = "#000000", "x"
STYLE = {
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#e3e3e3",
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.hashsalt": "evenorm",
}


@dataclasses.dataclass(frozen=True)
class Picture:
    name: str
    caption: str
    figure: Callable[[], Figure] = dataclasses.field(repr=False, compare=False)


def colour(library: str) -> str:
    return COLOURS.get(library, OTHER_COLOUR)


def new_figure(height: float, footer: str) -> Figure:
    figure = Figure(figsize=(WIDTH, height), dpi=160, layout="constrained")
    FigureCanvasAgg(figure)
    figure.supxlabel(footer, fontsize=8, color="#555555")
    return figure


def panels(count: int, height: float, footer: str) -> tuple[Figure, list]:
    """Two in a row, or one alone."""
    columns = min(count, 2)
    rows = math.ceil(count / columns)
    figure = new_figure(height * rows + 0.7, footer)
    return figure, [figure.add_subplot(rows, columns, i + 1) for i in range(count)]


def footer(results: Results, entries: list[dict]) -> str:
    first, runs = entries[0], results.runs(entries)
    return (
        f"{results.processor}, {described(first, 'target')}, {threads(first)}; {clock(first)}, medians, "
        f"{runs} run{'s' if runs > 1 else ''}"
    )


# Bandwidth


def cache_sizes(results: Results) -> dict[str, int]:
    """{"L1": 49152, ...}"""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    sizes = results.machine.get("caches", {})
    return {name.removesuffix("d"): int(text[:-1]) * units[text[-1]] for name, text in sizes.items()}


def bytes_named(value: float, _place: int = 0) -> str:
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if value >= 1 << power:
            return f"{value / (1 << power):g} {unit}"
    return f"{value:g} B"


def draw_library(axes, entries: list[dict], library: str) -> None:
    """A line through rows of the usual lengths; pale marks, loose, for others."""
    there = sorted((entry for entry in entries if measured(entry, library)), key=lambda e: (e["bytes"], shape(e)))
    joined = [entry for entry in there if JOINED[0] <= entry["cols"] <= JOINED[1]]
    loose = [entry for entry in there if entry not in joined]
    ours, copy = library == "evenorm", library == "copy"
    looks = {"color": colour(library), "zorder": 4 if ours else 3}
    mark = MARKS.get(library, OTHER_MARK)
    axes.plot(
        [entry["bytes"] for entry in joined], [bandwidth(entry, library) for entry in joined], **looks,
        linestyle="--" if copy else "-", linewidth=2.2 if ours else 1.3, marker="" if copy and len(joined) > 1 else mark,
        markersize=4.5, label=LIBRARIES.get(library, library),
    )  # fmt: skip
    axes.plot(
        [entry["bytes"] for entry in loose], [bandwidth(entry, library) for entry in loose], **looks, linestyle="",
        marker=mark, markersize=3.5, alpha=0.45,
    )  # fmt: skip


def finish_bandwidth(axes, caches: dict[str, int], limits: tuple[float, float, float, float]) -> None:
    left, right, bottom, top = limits
    axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(bottom, top))
    axes.set(xlabel="bytes read and written", ylabel="GB/s")
    powers = range(math.ceil(math.log2(left)), math.floor(math.log2(right)) + 1)
    axes.xaxis.set_major_locator(FixedLocator([1 << power for power in powers if power % 4 == 0]))
    axes.xaxis.set_major_formatter(FuncFormatter(bytes_named))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
    axes.grid(True)
    for name, cache in caches.items():
        if left < cache < right:
            axes.axvline(cache, color="#aaaaaa", linewidth=0.8, linestyle=":", zorder=1)
            axes.annotate(name, (cache, 0.02), xycoords=("data", "axes fraction"), xytext=(2, 0),
                          textcoords="offset points", fontsize=7, color="#777777")  # fmt: skip


def common_limits(groups: list[list[dict]], libraries: list[str]) -> tuple[float, float, float, float]:
    """Of all panels: they are compared."""
    entries = [entry for group in groups for entry in group]
    across = [entry["bytes"] for entry in entries]
    up = [bandwidth(entry, name) for entry in entries for name in libraries if measured(entry, name)]
    return min(across) / 2, max(across) * 2, min(up) / 1.4, max(up) * 1.4


def bandwidth_figure(results: Results, groups: list[list[dict]]) -> Figure:
    entries = [entry for group in groups for entry in group]
    libraries = ["evenorm", "copy", *results.rivals(entries)]
    libraries = [name for name in libraries if any(measured(entry, name) for entry in entries)]
    told = f"{footer(results, entries)}\nlines: rows of {JOINED[0]:,} to {JOINED[1]:,} columns; pale: others"
    figure, axes = panels(len(groups), 3.2, told)
    limits = common_limits(groups, libraries)
    for panel, group in zip(axes, groups, strict=True):
        for library in libraries:
            draw_library(panel, group, library)
        finish_bandwidth(panel, cache_sizes(results), limits)
        panel.set_title(described(group[0], "form", "kind", "dtype", "data"))
    handles = axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=len(libraries), frameon=False)
    return figure


# Cost


def shades() -> LinearSegmentedColormap:
    """Blue, from light to dark; its lightest is told from the empty places' grey."""
    blues = matplotlib.colormaps["Blues"]
    return LinearSegmentedColormap.from_list("cost", [blues(0.15 + 0.8 * i / 32) for i in range(33)])


def cost_limits(costs: list[float]) -> tuple[float, float]:
    """A factor of LEAST_COSTS at least: costs that hardly differ look alike."""
    room = max(1.0, math.sqrt(LEAST_COSTS * min(costs) / max(costs)))
    return min(costs) / room, max(costs) * room


def draw_cost(axes, entries: list[dict], norm: LogNorm) -> None:
    rows, cols = (sorted({entry[name] for entry in entries}) for name in ("rows", "cols"))
    colours = shades()
    for entry in entries:
        across, up, cost = cols.index(entry["cols"]), rows.index(entry["rows"]), nanoseconds_per_element(entry)
        shade = colours(norm(cost))
        axes.add_patch(matplotlib.patches.Rectangle((across - 0.5, up - 0.5), 1, 1, facecolor=shade))
        light = 0.3 * shade[0] + 0.6 * shade[1] + 0.1 * shade[2] > 0.5
        axes.text(across, up, f"{cost:#.2g}".rstrip("."), ha="center", va="center", fontsize=7,
                  color="#222222" if light else "white")  # fmt: skip
    images = entries[0]["pixels"]
    axes.set(xlim=(-0.5, len(cols) - 0.5), ylim=(-0.5, len(rows) - 0.5), facecolor="#f7f7f7")
    axes.set(xlabel="channels" if images else "columns", ylabel="images x pixels" if images else "rows")
    axes.set_xticks(range(len(cols)), [str(value) for value in cols], rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(rows)), [str(value) for value in rows])
    axes.set_title(described(entries[0], "form", "kind", "dtype", "data"))


def cost_figure(results: Results, groups: list[list[dict]]) -> Figure:
    entries = [entry for group in groups for entry in group]
    norm = LogNorm(*cost_limits([nanoseconds_per_element(entry) for entry in entries]))
    tallest = max(len({entry["rows"] for entry in group}) for group in groups)
    figure, axes = panels(len(groups), 1.1 + 0.28 * tallest, footer(results, entries))
    for panel, group in zip(axes, groups, strict=True):
        draw_cost(panel, group, norm)
    figure.suptitle("evenorm, ns for one element", fontsize=10)
    return figure


# Speed-up


def ratio_ticks(low: float, high: float) -> list[float]:
    """Few enough to be read, 1 among them."""
    if high / low > 8:
        step = max(1, round(math.log2(high / low) / 5))
        ticks = [2.0 ** (step * power) for power in range(-12, 13)]
    elif high / low > 2.5:
        ticks = [0.125, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8]
    elif high / low > 1.5:
        ticks = [0.4, 0.5, 0.6, 0.8, 1, 1.25, 1.5, 2, 2.5]
    else:
        ticks = [0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.4, 1.5]
    return [tick for tick in ticks if low <= tick <= high]


def draw_speedup(axes, entries: list[dict], rival: str) -> None:
    found = [(place, ratio(entry, rival)) for place, entry in enumerate(entries)]
    found = [(place, ratios) for place, ratios in found if ratios]
    for place, (low, middle, high) in found:
        sure = told_apart((low, middle, high))
        axes.bar(place, middle - 1, 0.7, bottom=1, color=colour(rival), alpha=0.85 if sure else 0.3)
        axes.plot([place] * 2, [low, high], color="#222222", linewidth=1, marker="_", markersize=5)
        up = middle >= 1
        axes.annotate(f"{middle:.3g}" if middle >= 10 else f"{middle:.2f}", (place, max(high, 1) if up else min(low, 1)),
                      xytext=(0, 3 if up else -3), textcoords="offset points", ha="center", fontsize=7,
                      va="bottom" if up else "top")  # fmt: skip
    low, high = min(0.97, *(ratios[0] for _, ratios in found)), max(1.03, *(ratios[2] for _, ratios in found))
    room = (high / low) ** 0.18  # for the figures beside the bars
    low, high = low / (room if low < 0.97 else 1.0), high * room
    axes.set(yscale="log", ylim=(low, high), xlim=(-0.8, max(len(entries), LEAST_BARS) - 0.2))
    axes.yaxis.set_major_locator(FixedLocator(ratio_ticks(low, high)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.grid(True, axis="y")
    axes.axhline(1, color="#222222", linewidth=1)
    axes.set_title(f"{LIBRARIES.get(rival, rival)}'s time over evenorm's", loc="left")


def speedup_figure(results: Results, entries: list[dict]) -> Figure:
    entries = sorted(entries, key=lambda entry: (entry["bytes"], shape(entry)))
    rivals = results.rivals(entries)
    told = f"{footer(results, entries)}\nwhiskers: {spread(results.runs(entries))}; pale: not told apart from 1"
    figure = new_figure(1.4 * len(rivals) + 1.8, told)
    for i, rival in enumerate(rivals):
        axes = figure.add_subplot(len(rivals), 1, i + 1)
        draw_speedup(axes, entries, rival)
        names = [size(entry) for entry in entries] if i + 1 == len(rivals) else [""] * len(entries)
        axes.set_xticks(range(len(entries)), names, rotation=45, ha="right", rotation_mode="anchor")
    figure.suptitle(f"{described(entries[0], 'form', 'kind', 'dtype', 'data')}: above 1 evenorm is faster", fontsize=10)
    return figure


# Which there are


def enough(group: list[dict]) -> bool:
    return len({shape(entry) for entry in group}) >= LEAST_SIZES


def name_of(entry: dict, first: str, *, dtype: bool = False) -> str:
    parts = [
        first, entry["form"], "" if entry["kind"] == "layer" else entry["kind"],
        "" if entry["data"] == "normal" else entry["data"], entry["dtype"] if dtype else "", f"{entry['threads']}t",
        "" if entry["target"] == "native" else entry["target"],
    ]  # fmt: skip
    return "-".join(part for part in parts if part)


def overview(results: Results) -> list[Picture]:
    usual = {"kind": "layer", "threads": 1, "target": "native", "data": "normal"}
    groups = [
        results.chosen(form=form, dtype=dtype, **usual) for form in ("forward", "backward") for dtype in ("f32", "bf16")
    ]
    groups = [group for group in groups if enough(group)]
    if not groups:
        return []
    caption = (
        f"Bandwidth of the forward pass and of the gradients over their size, one thread, {results.processor}, "
        "the best copy of as many bytes as the ceiling"
    )
    return [Picture("overview", caption, lambda: bandwidth_figure(results, groups))]


def of_types(results: Results, entries: list[dict]) -> list[Picture]:
    """What has a panel for each type."""
    groups = [group for group in results.groups("dtype", among=entries) if enough(group)]
    if not groups:
        return []
    first = groups[0][0]
    told = f"{described(first, 'form', 'kind', 'data')}, {threads(first)}, {described(first, 'target')}"
    return [
        Picture(name_of(first, "bandwidth"), f"Bandwidth over size: {told}", lambda: bandwidth_figure(results, groups)),
        Picture(
            name_of(first, "cost"),
            f"evenorm's nanoseconds for one element: {told}",
            lambda: cost_figure(results, groups),
        ),
    ]


def of_type(results: Results, entries: list[dict]) -> list[Picture]:
    if not results.rivals(entries):
        return []
    first = entries[0]
    told = f"{described(first, 'form', 'kind', 'dtype', 'data')}, {threads(first)}, {described(first, 'target')}"
    caption = f"Other libraries' times over evenorm's: {told}"
    return [Picture(name_of(first, "speedup", dtype=True), caption, lambda: speedup_figure(results, entries))]


def pictures(results: Results) -> list[Picture]:
    """All that the results have enough points for; nothing is drawn yet."""
    found = overview(results)
    for group in results.groups("form", "kind", "data", "threads", "target"):
        found += of_types(results, group)
        for same_type in results.groups("dtype", among=group):
            found += of_type(results, same_type)
    return found


def draw(results: Results, folder: pathlib.Path, only: list[str] | None = None) -> list[Picture]:
    """NAME.svg and NAME.png of each picture, or of those whose names match one of `only`."""
    there = pictures(results)
    wanted = [picture for picture in there if not only or any(fnmatch.fnmatch(picture.name, name) for name in only)]
    for name in only or []:
        if not fnmatch.filter([picture.name for picture in there], name):
            raise ValueError(f"no picture is called {name}, but there are {', '.join(p.name for p in there) or 'none'}")
    folder.mkdir(parents=True, exist_ok=True)
    for picture in wanted:
        with matplotlib.rc_context():  # whatever the user has set
            matplotlib.rcdefaults()
            matplotlib.rcParams.update(STYLE)
            figure = picture.figure()
            figure.savefig(folder / f"{picture.name}.svg", metadata={"Date": None, "Creator": None})
            figure.savefig(folder / f"{picture.name}.png", metadata={"Software": None})
    return wanted


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=pathlib.Path, help="results.json")
    parser.add_argument("--output", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="names, or patterns such as 'speedup-forward-*'")
    arguments = parser.parse_args()
    try:
        drawn = draw(load(arguments.results), arguments.output, arguments.only)
    except ValueError as error:
        parser.error(str(error))
    for picture in drawn:
        print(f"{arguments.output / picture.name}.svg  {picture.caption}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
