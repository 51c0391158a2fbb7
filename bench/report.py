#!/usr/bin/env python3
"""Writes the results as Markdown: a table for each form, type, number of threads and target, and a summary."""

from __future__ import annotations

import argparse
import pathlib

import machine
from outcomes import (
    LIBRARIES,
    Results,
    bandwidth,
    clock,
    described,
    geometric_mean,
    load,
    microseconds,
    off_grid,
    ratio,
    shape,
    significant,
    size,
    spread,
    threads,
)  # fmt: skip

NORMAL = {"target": "native", "data": "normal"}


def markdown(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def time(us: float) -> str:
    """Three digits, or the whole number if it has more."""
    return f"{us:,.0f}" if us >= 100 else f"{us:#.3g}"


def ratio_text(ratios: tuple[float, float, float] | None) -> str:
    if ratios is None:
        return ""
    text = "{1:.2f} ({0:.2f} .. {2:.2f})".format(*ratios)
    return text if significant(ratios) else f"*{text}*"


def row(entry: dict, rivals: list[str]) -> list[str]:
    copy = ratio(entry, "copy")
    return [
        size(entry), time(microseconds(entry)), f"{bandwidth(entry):.1f}", f"{copy[1]:.2f}" if copy else "",
        *(ratio_text(ratio(entry, rival)) for rival in rivals),
    ]  # fmt: skip


def one_table(entries: list[dict]) -> str:
    first, rivals = entries[0], Results.rivals(entries)
    rows = "images x channels x pixels" if first["pixels"] else "rows x columns"
    heads = [rows, "evenorm us", "GB/s", "of the best copy", *(LIBRARIES.get(name, name) for name in rivals)]
    heading = f"{described(first, 'form', 'kind', 'dtype', 'data')}, {threads(first)}, {described(first, 'target')}"
    return f"### {heading}: {clock(first)}\n\n" + markdown(heads, [row(entry, rivals) for entry in entries])


def table(results: Results) -> str:
    groups = results.groups("form", "kind", "dtype", "data", "threads", "target")
    return "\n".join(one_table(sorted(group, key=lambda entry: (entry["bytes"], shape(entry)))) for group in groups)


def cell(entries: list[dict], rival: str) -> str:
    """The geometric mean, and the lowest ratio with its size: "1.43 (0.75: 65536 x 32)"."""
    ratios = [(found[1], size(entry)) for entry in entries if (found := ratio(entry, rival))]
    if not ratios:
        return ""
    least, where = min(ratios)
    mean = geometric_mean([middle for middle, _ in ratios])
    return f"{mean:.2f} ({least:.2f}: {where})" if len(ratios) > 1 else f"{mean:.2f}"


def summary(results: Results) -> str:
    """Geometric means over all sizes, then over those off the grid, for the machine's own target and normal data."""
    entries = results.chosen(**NORMAL)
    rivals = ["copy", *Results.rivals(entries)]
    rows = [
        [described(group[0], "form", "kind") + words, group[0]["dtype"], str(group[0]["threads"])]
        + [cell(group, rival) for rival in rivals]
        for sizes in results.groups("form", "kind", "dtype", "threads", among=entries)
        for words, group in (("", sizes), (", widths not divisible by 16", [*filter(off_grid, sizes)]))
        if group
    ]
    return markdown(["pass", "type", "threads", *(LIBRARIES.get(name, name) for name in rivals)], rows)


def document(results: Results, pictures: list | None = None, folder: str = "plots") -> str:
    """The whole report; pictures are linked, with their captions."""
    if not results.points:
        return "# Measured\n\nNothing was measured.\n"
    versions = ", ".join(results.versions.values())
    parts = [
        "# Measured\n",
        f"{machine.title(results.machine)}." + (f"\n{versions}." if versions else ""),
        f"`--seed {results.seed}` repeats the drawn sizes.\n",
        "Ratios are a library's time over evenorm's, medians (above 1: evenorm is faster), and in brackets "
        f"{spread(Results.runs(results.points))}. Italics: not significantly different from 1. GB/s count the bytes that a pass "
        "has to read and write. Of the best copy: the time of the fastest copy of the same bytes over evenorm's.\n",
        "## Summary\n\nGeometric means over all sizes, and the lowest ratio with its size; the machine's target, normal data.\n",
        summary(results),
        "## Tables\n",
        table(results),
    ]
    if pictures:
        parts.append("## Plots\n")
        parts += [f"![{picture.caption}]({folder}/{picture.name}.svg)\n" for picture in pictures]
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=pathlib.Path, help="results.json")
    parser.add_argument("--summary", action="store_true", help="only the summary")
    arguments = parser.parse_args()
    results = load(arguments.results)
    print(summary(results) if arguments.summary else document(results), end="")


if __name__ == "__main__":
    main()
