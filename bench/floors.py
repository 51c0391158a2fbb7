"""The lowest ratios that `make bench-quick` accepts: bench/floors.json, with one list for each processor family.

A floor is below the ratio that was measured when it was set (--set-floors), so that noise does not cross it. The margin
is larger for data in memory and for calls of less than a microsecond, because their times vary more.
"""

from __future__ import annotations

import json
import pathlib

import outcomes

FILE = pathlib.Path(__file__).with_name("floors.json")
MARGIN, NOISY_MARGIN = 0.9, 0.75
IN_CACHE = 4 << 20  # bytes that a pass moves
KEPT = ("copy", "onednn", "torch")


def key(entry: dict) -> str:
    size = outcomes.size_and_data(entry)
    return f"{entry['form']} {entry['kind']} {entry['dtype']} {size} {entry['threads']} {entry['target']}"


def margin(entry: dict) -> float:
    return NOISY_MARGIN if entry["rows"] == 1 or entry["bytes"] > IN_CACHE else MARGIN


def family(results: dict) -> str:
    return results["machine"]["name"]


def read() -> dict:
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}


def write(results: dict) -> int:
    floors = read()
    mine = floors.setdefault(family(results), {})
    for entry in results["points"]:
        ratios = {name: outcomes.ratio(entry, name) for name in KEPT}
        mine[key(entry)] = {name: round(margin(entry) * ratio[1], 2) for name, ratio in ratios.items() if ratio}
    lines = [
        f"  {json.dumps(name)}: {{\n" + ",\n".join(f"    {json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(values.items())) + "\n  }"
        for name, values in sorted(floors.items())
    ]  # fmt: skip
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{len(results['points'])} floors of {family(results)} are in {FILE.name}")
    return 0


def check(results: dict, file=None) -> int:
    """Prints the ratios below their floors to `file`. Returns 1 if there are any, 2 if nothing was compared."""
    mine = read().get(family(results))
    if mine is None:
        print(f"bench/floors.json has no floors for {family(results)}; --set-floors writes them", file=file)
        return 0
    compared = below = 0
    for entry in results["points"]:
        for name, floor in mine.get(key(entry), {}).items():
            ratio = outcomes.ratio(entry, name)
            compared += 1
            if ratio is None or not ratio[1] >= floor:
                below += 1
                found = "was not measured beside" if ratio is None else f"{ratio[1]:.2f} of"
                print(
                    f"below its floor: {key(entry)}: {found} {name}, but it should be at least {floor:.2f}", file=file
                )
    print(f"{len(results['points'])} points, {compared} ratios compared, {below} below their floors", file=file)
    if compared == 0:
        return 2
    return 1 if below else 0
