"""The plots: their names, that they are reproducible, and some of their content."""

import copy

import outcomes
import pytest
from points import Point

pytest.importorskip("matplotlib")
import plots  # noqa: E402


@pytest.fixture
def results(document):
    return outcomes.Results(document)


def figure_of(results, name):
    (picture,) = (picture for picture in plots.pictures(results) if picture.name == name)
    return picture.figure()


def test_names(results):
    assert [picture.name for picture in plots.pictures(results)] == [
        "overview", "bandwidth-forward-1t", "speedup-forward-f32-1t", "speedup-forward-bf16-1t", "bandwidth-forward-2t",
        "speedup-forward-f32-2t", "speedup-forward-bf16-2t", "bandwidth-backward-1t", "speedup-backward-f32-1t",
        "speedup-backward-bf16-1t", "bandwidth-backward-2t", "speedup-backward-f32-2t", "speedup-backward-bf16-2t",
    ]  # fmt: skip


def test_the_same_bytes_each_time_whatever_the_users_style(results, tmp_path, monkeypatch):
    import matplotlib

    few = plots.pictures(results)[:1]
    monkeypatch.setattr(plots, "pictures", lambda _: few)
    assert plots.draw(results, tmp_path / "a") == few
    with matplotlib.rc_context({"lines.linewidth": 9, "axes.facecolor": "black"}):
        plots.draw(results, tmp_path / "b")
        assert matplotlib.rcParams["lines.linewidth"] == 9
    assert (tmp_path / "a" / "overview.svg").read_bytes() == (tmp_path / "b" / "overview.svg").read_bytes()
    assert "<dc:date>" not in (tmp_path / "a" / "overview.svg").read_text()


def test_bandwidth(results):
    figure = figure_of(results, "overview")
    assert [axes.get_title() for axes in figure.axes] == [
        "forward, f32", "forward, bf16", "gradients, statistics given, f32", "gradients, statistics given, bf16",
    ]  # fmt: skip
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    entries = results.chosen(form="forward", dtype="f32", kind="layer", data="normal", threads=1, target="native")
    joined = [entry for entry in entries if entry["cols"] != 32]
    assert list(lines["oneDNN"].get_xdata()) == [entry["bytes"] for entry in joined]
    assert list(lines["oneDNN"].get_ydata()) == [outcomes.bandwidth(entry, "onednn") for entry in joined]
    assert lines["best copy"].get_linestyle() == "--"
    assert [note.get_text() for note in figure.axes[0].texts] == [" L1", " L2", " L3"]
    assert "1 thread; processor time, medians, 3 runs" in figure.get_supxlabel()


def test_bars_begin_at_1(document, entry):
    sizes = [(64, 768), (64, 32), (1, 768)]
    points = [entry(Point("forward", "layer", "f32", *size), torch=0.5, onednn=1.01) for size in sizes]
    axes = figure_of(outcomes.Results(document | {"points": points}), "speedup-forward-f32-1t").axes
    assert [panel.get_title(loc="left") for panel in axes] == [
        "oneDNN's time over evenorm's", "PyTorch's time over evenorm's",
    ]  # fmt: skip
    assert all(bar.get_alpha() < 0.5 for bar in axes[0].patches)  # not significant
    assert [(bar.get_y(), bar.get_height()) for bar in axes[1].patches] == [(1, -0.5)] * 3
    assert axes[1].get_yscale() == "log" and axes[1].patches[0].get_alpha() > 0.5


def test_odd_results_are_drawn(document, entry, tmp_path):
    """An unknown library, a library that not all points have, no copy, one column count, no caches, large ratios."""
    odd = copy.deepcopy(document) | {"points": []}
    odd["machine"]["caches"] = {}
    for rows in (1, 2, 3):
        odd["points"].append(entry(Point("forward", "layer", "f32", rows, 32), another=0.01 * 10**rows))
    odd["points"].append(entry(Point("forward", "layer", "f32", 9, 32), onednn=1.0))
    names = [picture.name for picture in plots.draw(outcomes.Results(odd), tmp_path)]
    assert names == ["overview", "bandwidth-forward-1t", "speedup-forward-f32-1t"]
    assert {path.name for path in tmp_path.iterdir()} == {f"{name}.svg" for name in names}


def test_bytes_in_words():
    assert [plots.bytes_named(1 << power) for power in (8, 12, 20, 28)] == ["256 B", "4 KiB", "1 MiB", "256 MiB"]
