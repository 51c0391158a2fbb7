"""The figures that are computed from results."""

import json

import outcomes
import pytest
from points import Point

POINT = Point("forward", "layer", "f32", 64, 768)


def test_spread_over_runs(entry):
    point = entry(POINT)
    point["runs"] = [entry(POINT, onednn=ratio)["runs"][0] for ratio in (1.1, 1.3, 1.2)]
    assert outcomes.ratio(point, "onednn") == (1.1, 1.2, 1.3)
    assert outcomes.ratio(entry(POINT, onednn=2.0), "onednn") == (1.96, 2.0, 2.06)
    assert outcomes.ratio(point, "torch") is None


def test_no_ratio_if_one_run_did_not_measure_the_rival(entry):
    point = entry(POINT, runs=2)
    del point["runs"][1]["ratios"]["torch"], point["runs"][1]["rivals"]["torch"]
    assert outcomes.ratio(point, "torch") is None
    assert not outcomes.measured(point, "torch")
    assert outcomes.Results.rivals([point]) == ["onednn", "onnxruntime"]


def test_the_clock_that_counts(entry):
    one, two = entry(POINT), entry(POINT, threads=2)
    assert outcomes.microseconds(one) == one["runs"][0]["rivals"]["evenorm"]["cpu_us"]
    assert outcomes.microseconds(two) == two["runs"][0]["rivals"]["evenorm"]["wall_us"]
    assert (outcomes.clock(one), outcomes.clock(two)) == ("processor time", "wall time")
    assert outcomes.bandwidth(one) == pytest.approx(POINT.traffic / outcomes.microseconds(one) / 1e3)


def test_significantly_different_from_1():
    assert outcomes.significant((1.01, 1.1, 1.2)) and outcomes.significant((0.8, 0.9, 0.99))
    assert not outcomes.significant((0.99, 1.1, 1.2)) and not outcomes.significant((0.9, 0.95, 1.0))


def test_order_of_rivals(entry):
    point = entry(POINT, copy=1.0, another=1.0, torch=1.0, onednn=1.0)
    assert outcomes.Results.rivals([point]) == ["onednn", "torch", "another"]


def test_points_that_were_not_measured_are_left_out(document, tmp_path):
    document["points"][0]["runs"] = []
    file = tmp_path / "results.json"
    file.write_text(json.dumps(document))
    results = outcomes.load(file)
    assert len(results.points) == len(document["points"]) - 1
    assert len(results.chosen(form="channels-first")) == 1
    assert [len(group) for group in results.groups("kind", among=results.chosen(dtype="f32"))] == [22, 1]


def test_sizes_in_words(entry):
    assert outcomes.size(entry(POINT)) == "64 x 768"
    assert outcomes.size(entry(Point("channels-first", "layer", "f32", 8 * 196, 1024, 196))) == "8 x 1024 x 196"
