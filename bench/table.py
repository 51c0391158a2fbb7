"""Formats the results as lines of text."""

from __future__ import annotations

from outcomes import RIVALS, bandwidth, microseconds, ratio, size_and_data

COLUMNS = RIVALS[:3]


def header(names=COLUMNS) -> str:
    rivals = "".join(f"{name:>16}" for name in names)
    return f"{'form':15}{'kind':6}{'type':5}{'thr':>4} {'target':7}{'size':>14}{'evenorm us':>12}{'GB/s':>8}{'of copy':>9}{rivals}"


def ratio_text(ratios: tuple[float, float, float] | None) -> str:
    """The median ratio and half of its spread: "1.23 +-0.05"."""
    if ratios is None:
        return f"{'-':>16}"
    low, middle, high = ratios
    return f"{middle:9.2f} +-{(high - low) / 2:.2f}"


def line(entry: dict, names=COLUMNS) -> str:
    copy = ratio(entry, "copy")
    rivals = "".join(f"{ratio_text(ratio(entry, name)):>16}" for name in names)
    of_copy = f"{copy[1]:9.2f}" if copy else f"{'-':>9}"
    differ = "  other bits" if any(run.get("same_bits") is False for run in entry["runs"]) else ""
    return (
        f"{entry['form']:15}{entry['kind']:6}{entry['dtype']:5}{entry['threads']:>4} {entry['target']:7}{size_and_data(entry):>14}"
        f"{microseconds(entry):12.2f}{bandwidth(entry):8.1f}{of_copy}{rivals}{differ}"
    )
