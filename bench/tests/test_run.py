"""The files that run.py writes."""

import json
import sys

import pytest

pytest.importorskip("matplotlib")
import run  # noqa: E402


def linked(report):
    return [line.split("](")[1].removesuffix(")") for line in report.splitlines() if line.startswith("![")]


def few(document):
    """Three sizes of one form: two plots and the overview."""
    points = [point for point in document["points"] if (point["form"], point["dtype"]) == ("forward", "f32")]
    return document | {"points": [point for point in points if len(point["runs"]) == 3 and point["threads"] == 1]}


def test_results_tables_and_plots(document, tmp_path):
    run.write(few(document), tmp_path / "results")
    assert json.loads((tmp_path / "results" / "results.json").read_text()) == few(document)
    report = (tmp_path / "results" / "report.md").read_text()
    assert "## Summary" in report and "### forward, f32, 1 thread" in report
    assert len(linked(report)) == 3
    assert all((tmp_path / "results" / name).exists() for name in linked(report))
    assert not list(tmp_path.rglob("*.part"))


def test_drawn_sizes_differ_between_calls_but_not_between_processes(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["run.py", "--threads", "1", "2"])
    first, second = (run.Bench(run.parse_arguments()) for _ in range(2))
    assert first.points(first.settings[0]) == first.points(first.settings[-1]) != second.points(second.settings[0])
    monkeypatch.setattr(sys, "argv", ["run.py", "--seed", str(first.results["settings"]["seed"])])
    repeated = run.Bench(run.parse_arguments())
    assert repeated.points(repeated.settings[0]) == first.points(first.settings[0])


def test_nothing_measured(document, tmp_path):
    run.write(document | {"points": []}, tmp_path)
    assert "Nothing was measured" in (tmp_path / "report.md").read_text()
