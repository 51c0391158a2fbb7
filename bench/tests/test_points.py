"""The measured points, the floors, and a line of the table."""

import argparse
import json

import floors
import table
from machine import core_name
from points import FORMS, GRID, OFF_GRID, Point, all_points, chosen, drawn, quick_points


def options(**given):
    return argparse.Namespace(**{"forms": None, "kinds": None, "dtypes": None, "data": None, "sizes": None, **given})


def test_every_form_and_each_point_once():
    points = all_points(1)
    assert {point.form for point in points} == set(FORMS)
    assert len(points) == len(set(points))
    forward = {(point.rows, point.cols) for point in points if (point.form, point.dtype) == ("forward", "f32")}
    assert forward >= set(GRID)


def test_sizes_off_the_grid():
    for seed in range(100):
        sizes = drawn(seed)
        assert sizes == drawn(seed) and len(set(sizes)) == 3
        assert all(17 <= cols <= 1100 and cols % 16 and abs(rows * cols - 2**20) <= cols for rows, cols in sizes)
    assert drawn(1) != drawn(2)
    points = [point for point in all_points(1) if point.cols % 16]
    assert {(point.rows, point.cols) for point in points} == {*OFF_GRID, *drawn(1)}
    assert len(points) == 6 * (len(OFF_GRID) + 3)  # in six passes


def test_options_choose_points():
    points = chosen(all_points(1), options(forms=["forward"], dtypes=["bf16"], kinds=["rms"], sizes=[(3, 5)]))
    assert points == [Point("forward", "rms", "bf16", 3, 5)]
    assert all(point.form == "backward" for point in chosen(quick_points(1), options(forms=["backward"])))


def test_bytes_of_a_pass():
    assert Point("forward", "layer", "f32", 10, 100).traffic == 8000
    assert Point("backward", "layer", "bf16", 10, 100).traffic == 6000
    assert Point("residual", "layer", "f32", 10, 100).traffic == 16000
    assert Point("int8", "layer", "f32", 10, 100).traffic == 5000


def entry(ratio):
    run = {"rivals": {name: {"wall_us": 2.0, "cpu_us": 1.0} for name in ("evenorm", "copy", "onednn")},
           "ratios": {"copy": [0.5, 0.5, 0.5], "onednn": [ratio, ratio, ratio]}}  # fmt: skip
    point = Point("forward", "layer", "f32", 64, 768)
    return {"form": point.form, "kind": point.kind, "dtype": point.dtype, "size": point.size, "data": point.data, "threads": 1,
            "rows": point.rows, "target": "native", "bytes": point.traffic, "runs": [run]}  # fmt: skip


def results(ratio):
    return {"machine": {"name": "Zen 5"}, "points": [entry(ratio)]}


def test_floors(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(floors, "FILE", tmp_path / "floors.json")
    assert floors.check(results(1.0)) == 0  # no floors yet
    assert floors.write(results(2.0)) == 0
    assert json.loads(floors.FILE.read_text())["Zen 5"]["forward layer f32 64x768 1 native"] == {
        "copy": 0.45,
        "onednn": 1.8,
    }
    assert floors.check(results(1.81)) == 0
    assert floors.check(results(1.79)) == 1
    assert "1.79 of onednn, but it should be at least 1.80" in capsys.readouterr().out


def test_noisy_points_have_lower_floors():
    quiet = entry(1.0)
    assert floors.margin(quiet) == floors.MARGIN
    assert floors.margin({**quiet, "rows": 1}) == floors.margin({**quiet, "bytes": 64 << 20}) == floors.NOISY_MARGIN


def test_a_line_of_the_table():
    text = table.line(entry(1.25))
    assert "64x768" in text and "1.25" in text and "0.50" in text


def test_names_of_cores():
    assert core_name("AuthenticAMD", 26, 2) == "Zen 5"
    assert core_name("AuthenticAMD", 25, 0x11) == "Zen 4"
    assert core_name("AuthenticAMD", 25, 1) == "Zen 3"
    assert core_name("GenuineIntel", 6, 143) == "Sapphire Rapids"
    assert core_name("somebody", 1, 2) == "family 1 model 2"
