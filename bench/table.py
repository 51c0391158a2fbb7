"""The results as lines of text."""

from __future__ import annotations

import statistics

RIVALS = ("onednn", "torch", "onnxruntime", "against")


def header() -> str:
    rivals = "".join(f"{name:>16}" for name in RIVALS[:3])
    return f"{'form':15}{'kind':6}{'type':5}{'thr':>4} {'target':7}{'size':>14}{'evenorm us':>12}{'GB/s':>8}{'of copy':>9}{rivals}"


def counted(entry: dict) -> str:
    """The clock that counts: the processor's with one thread."""
    return "cpu_us" if entry["threads"] == 1 else "wall_us"


def median_of_runs(entry: dict, value) -> float:
    return statistics.median(value(run) for run in entry["runs"])


def microseconds(entry: dict, rival: str = "evenorm") -> float:
    return median_of_runs(entry, lambda run: run["rivals"][rival][counted(entry)])


def ratio(entry: dict, rival: str) -> tuple[float, float, float] | None:
    """Over the runs: the lowest, the median and the highest of their medians; of one run, its quartiles."""
    if any(rival not in run["ratios"] for run in entry["runs"]):
        return None
    if len(entry["runs"]) == 1:
        return tuple(entry["runs"][0]["ratios"][rival])
    medians = sorted(run["ratios"][rival][1] for run in entry["runs"])
    return medians[0], statistics.median(medians), medians[-1]


def told(ratios: tuple[float, float, float] | None) -> str:
    """1.23 +-0.05"""
    if ratios is None:
        return f"{'-':>16}"
    low, middle, high = ratios
    return f"{middle:9.2f} +-{(high - low) / 2:.2f}"


def line(entry: dict) -> str:
    us = microseconds(entry)
    copy = ratio(entry, "copy")
    size = entry["size"] + ("" if entry["data"] == "normal" else f" {entry['data']}")
    rivals = "".join(f"{told(ratio(entry, name)):>16}" for name in RIVALS if name != "against" or ratio(entry, name))
    of_copy = f"{copy[1]:9.2f}" if copy else f"{'-':>9}"
    differ = "  other bits" if any(run.get("same_bits") is False for run in entry["runs"]) else ""
    return (
        f"{entry['form']:15}{entry['kind']:6}{entry['dtype']:5}{entry['threads']:>4} {entry['target']:7}{size:>14}"
        f"{us:12.2f}{1e-3 * entry['bytes'] / us:8.1f}{of_copy}{rivals}{differ}"
    )
