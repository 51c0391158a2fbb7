"""The command line of the study: chooses the runs and the folder of their results."""

import argparse
import datetime
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import _page, _plots, _runner, _sections, _store


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="study", description="Measures claims about layer norm; writes report.md.")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"{', '.join(_sections.NAMES)} (default: all)")
    parser.add_argument("--smoke", action="store_true", help="make short runs that test the study but measure little")
    parser.add_argument("--output", type=Path, metavar="DIR", help="default: build/study, or build/study-smoke")
    parser.add_argument("--list", action="store_true", help="print the sections and their claims; run nothing")
    parser.add_argument("--jobs", type=int, metavar="N", help="runs at once (default: one per processor)")
    parser.add_argument("--report", action="store_true", help="train nothing; write report and plots from the JSON")
    options = parser.parse_args(words)
    unknown = [name for name in options.sections if name not in _sections.NAMES]
    if unknown:
        parser.error(f"no section {unknown[0]!r}; there are {', '.join(_sections.NAMES)}")
    if options.jobs is not None and options.jobs < 1:
        parser.error("--jobs must be at least 1")
    options.chosen = list(options.sections)
    options.sections = [name for name in _sections.NAMES if not options.sections or name in options.sections]
    options.jobs = options.jobs or len(os.sched_getaffinity(0))
    options.output = options.output or Path("build", "study-smoke" if options.smoke else "study")
    return options


def compute(name: str, options: argparse.Namespace, workers: _runner.Workers) -> None:
    """Performs the section's missing runs and writes its JSON."""
    section = _sections.load(name)
    runs, seconds = _runner.complete(section, options.output, options.smoke, workers)
    whole = {
        "section": name,
        "smoke": options.smoke,
        "claims": [vars(claim) for claim in section.claims],
        "seeds": sorted({run["seed"] for run in runs}),
        "verdicts": section.judge(section.summary(runs)),
        "runs": runs,
    }
    _store.write_bytes(options.output / f"{name}.json", _store.lines_of_runs(whole).encode())
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    about = {"date": today, "seconds of all runs": round(seconds, 1), "jobs": options.jobs, **_store.machine()}
    _store.write_json(options.output / f"{name}.machine.json", about, 2)


def draw(folder: Path) -> Path:
    """Writes the plots and the report of all sections that have a JSON file, from these files only."""
    parts = [_page.INTRODUCTION]
    for name in _sections.NAMES:
        try:
            runs: _sections.Runs = json.loads((folder / f"{name}.json").read_text())["runs"]
        except FileNotFoundError:
            continue
        section = _sections.load(name)
        summary = section.summary(runs)
        with _plots.styled() as pyplot:
            for figure, drawn in section.figures(pyplot, runs, summary).items():
                _plots.write(drawn, folder / f"{name}-{figure}.svg")
        parts.append(_page.page_of(section, summary, section.judge(summary)))
    _store.write_bytes(folder / "report.md", "\n".join(parts).encode())
    return folder / "report.md"


def show(name: str, folder: Path) -> None:
    verdicts = json.loads((folder / f"{name}.json").read_text())["verdicts"]
    print("\n".join(f"{name:<10} {claim}: {verdict}" for claim, verdict in verdicts.items()), flush=True)


def resume(options: argparse.Namespace) -> str:
    words = [*options.chosen, *(["--smoke"] if options.smoke else []), "--output", str(options.output)]
    return f'make study ARGS="{" ".join(words)}"'


def interrupted(*_: Any) -> None:
    """Handles the first SIGTERM like Ctrl-C. A second one ends the program at once."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise KeyboardInterrupt


def main(words: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status: 0 for success, 1 for failure, 130 if interrupted."""
    options = arguments(words)
    if options.list:
        for name in _sections.NAMES:
            section = _sections.load(name)
            print(f"{name:<10} {section.title}")
            print("\n".join(f"    {claim.name}: {claim.text}" for claim in section.claims))
        return 0
    before, workers, done = signal.signal(signal.SIGTERM, interrupted), _runner.Workers(options.jobs), False
    try:
        for name in options.sections:
            if not options.report:
                compute(name, options, workers)
            show(name, options.output)
        print(draw(options.output))
        done = True
    except KeyboardInterrupt:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        print(f"\ninterrupted; finished runs are kept. To continue: {resume(options)}", file=sys.stderr)
        return 130
    except FileNotFoundError as error:
        print(f"study: {error}", file=sys.stderr)
        return 1
    finally:
        workers.end(at_once=not done)
        signal.signal(signal.SIGTERM, before)
    return 0
