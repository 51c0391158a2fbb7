"""The pictures: which there are, that they are the same each time, and a look at what is drawn."""

import copy

import outcomes
import pytest
from points import Point

pytest.importorskip("matplotlib")
import plots  # noqa: E402


@pytest.fixture
def results(document):
    return outcomes.Results(document)


def test_which_there_are(results):
    names = [picture.name for picture in plots.pictures(results)]
    assert names[:5] == [
        "overview", "bandwidth-forward-1t", "cost-forward-1t", "speedup-forward-f32-1t", "speedup-forward-bf16-1t",
    ]  # fmt: skip
    assert {"bandwidth-backward-2t", "speedup-forward-rms-f32-1t", "speedup-forward-far3-f32-1t"} < set(names)
    assert {"speedup-forward-f32-1t-avx2", "speedup-channels-first-f32-1t"} < set(names)
    assert "bandwidth-forward-rms-1t" not in names and "cost-channels-first-1t" not in names  # one size is too few
    assert len(names) == len(set(names))


def test_the_same_bytes_each_time(results, tmp_path):
    only = ["speedup-forward-far3-f32-1t"]
    for folder in ("a", "b"):
        assert [picture.name for picture in plots.draw(results, tmp_path / folder, only)] == only
    for kind in ("svg", "png"):
        name = f"{only[0]}.{kind}"
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    svg = (tmp_path / "a" / f"{only[0]}.svg").read_text(encoding="utf-8")
    assert "<dc:date>" not in svg and 'width="648pt"' in svg


def test_a_users_settings_change_nothing_and_stay(results, tmp_path):
    import matplotlib

    only = ["speedup-forward-far3-f32-1t"]
    plots.draw(results, tmp_path / "a", only)
    with matplotlib.rc_context({"lines.linewidth": 9, "axes.facecolor": "black"}):
        plots.draw(results, tmp_path / "b", only)
        assert matplotlib.rcParams["lines.linewidth"] == 9
    assert (tmp_path / "a" / f"{only[0]}.png").read_bytes() == (tmp_path / "b" / f"{only[0]}.png").read_bytes()


def test_a_name_that_there_is_not(results, tmp_path):
    with pytest.raises(ValueError, match="no picture is called overvieW, but there are overview, bandwidth-"):
        plots.draw(results, tmp_path, ["overvieW"])


def drawn(results, name):
    (picture,) = (picture for picture in plots.pictures(results) if picture.name == name)
    return picture.figure()


def test_bandwidth(results):
    figure = drawn(results, "overview")
    assert [axes.get_title() for axes in figure.axes] == [
        "forward, f32", "forward, bf16", "gradients, statistics given, f32", "gradients, statistics given, bf16",
    ]  # fmt: skip
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    entries = results.chosen(form="forward", dtype="f32", kind="layer", data="normal", threads=1, target="native")
    joined = [entry for entry in entries if entry["cols"] != 32]
    assert list(lines["oneDNN"].get_xdata()) == [entry["bytes"] for entry in joined]
    assert list(lines["oneDNN"].get_ydata()) == [outcomes.bandwidth(entry, "onednn") for entry in joined]
    assert lines["best copy"].get_linestyle() == "--"
    assert [note.get_text() for note in figure.axes[0].texts] == ["L1", "L2", "L3"]
    assert "1 thread; processor time, medians, 3 runs" in figure.get_supxlabel()


def test_cost(results):
    axes = drawn(results, "cost-forward-1t").axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["32", "768", "2048"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1", "64", "512", "4096", "8192"]
    assert len(axes.patches) == len(axes.texts) == 5


def test_costs_that_hardly_differ_look_alike():
    assert plots.cost_limits([1.0, 1.0]) == pytest.approx((0.5, 2.0))
    assert plots.cost_limits([1.0, 100.0, 10.0]) == (1.0, 100.0)


def test_bars_from_1(results):
    axes = drawn(results, "speedup-forward-rms-f32-1t").axes[0]
    (bar,) = axes.patches
    assert (bar.get_y(), bar.get_height()) == (1, -0.5)
    assert axes.get_yscale() == "log" and bar.get_alpha() > 0.5
    (pale,) = drawn(results, "speedup-forward-far3-f32-1t").axes[0].patches
    assert pale.get_alpha() < 0.5
    assert [axes.get_title(loc="left") for axes in drawn(results, "speedup-forward-f32-1t").axes] == [
        f"{name}'s time over evenorm's" for name in ("oneDNN", "PyTorch", "ONNX Runtime")
    ]


def test_odd_results_are_drawn(document, entry, tmp_path):
    """A library that is not known, one that is not everywhere, no copy, one column count, no caches, many a ratio."""
    odd = copy.deepcopy(document) | {"points": []}
    odd["machine"]["caches"] = {}
    for rows in (1, 2, 3):
        odd["points"].append(entry(Point("forward", "layer", "f32", rows, 32), another=0.01 * 10**rows))
    odd["points"].append(entry(Point("forward", "layer", "f32", 9, 32), onednn=1.0))
    drawn_names = [picture.name for picture in plots.draw(outcomes.Results(odd), tmp_path)]
    assert drawn_names == ["overview", "bandwidth-forward-1t", "cost-forward-1t", "speedup-forward-f32-1t"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        f"{name}.{kind}" for name in drawn_names for kind in ("svg", "png")
    )


@pytest.mark.parametrize("low, high", [(0.96, 1.05), (0.7, 1.2), (0.5, 3.0), (0.3, 40.0), (0.97, 4000.0)])
def test_ticks_of_ratios(low, high):
    ticks = plots.ratio_ticks(low, high)
    assert 1 in ticks and 1 <= len(ticks) <= 8
    assert all(low <= tick <= high for tick in ticks)


def test_bytes_in_words():
    assert [plots.bytes_named(1 << power) for power in (8, 12, 20, 28)] == ["256 B", "4 KiB", "1 MiB", "256 MiB"]
