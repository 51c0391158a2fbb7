"""Drawn elements are at the places of their numbers."""

import pytest
from page_numbers import at, elements, number, stops

ON_LINE = {"x": "x", "mean": "x", "deviation": "deviation", "std": "deviation", "xhat": "xhat", "y": "y"}

LINE = """() => {
  const line = document.getElementById('line');
  const dots = [...line.querySelectorAll('circle')].map((dot) =>
    [Number(dot.dataset.element ?? -1), Number(dot.getAttribute('cx')), Number(dot.getAttribute('cy'))]);
  const box = (part) => part && ['x1', 'x2', 'y1', 'y2', 'x', 'width'].map((name) => Number(part.getAttribute(name)));
  return { dots, mark: box(line.querySelector('.mark')), band: box(line.querySelector('.band')),
           residuals: [...line.querySelectorAll('.residual')].map(box) };
}"""


def values_at(data, row, name):
    path = dict(stops(data, row))[name]
    return [number(at(data, element)) for element in elements(data, path)]


def stop_of(data, row, name):
    return [step for step, _ in stops(data, row)].index(name)


def affine(pairs):
    """The (origin, unit) of a linear scale. Checks that all (value, place) pairs lie on it."""
    (a, from_), (b, to) = min(pairs), max(pairs)
    unit = (to - from_) / (b - a)
    for value, place in pairs:
        assert place == pytest.approx(from_ + (value - a) * unit, abs=0.01)
    return from_ - a * unit, unit


@pytest.mark.parametrize("name", ["by_hand", "sequence", "zero_centered"])
def test_dots_are_at_their_numbers(made, browser, name):
    page, data = browser.open(made(name).path, motion="reduce"), made(name).data
    for stop, shown in ON_LINE.items():
        page.set("step", stop_of(data, 0, stop))
        values, drawn = values_at(data, 0, shown), page.page.evaluate(LINE)
        assert len(drawn["dots"]) == len(values)
        origin, unit = affine([(values[i], cx) for i, cx, _ in drawn["dots"]])
        if stop == "mean":
            assert drawn["mark"][0] == pytest.approx(origin + unit * values_at(data, 0, "mean")[0], abs=0.01)
        if stop == "std":
            assert drawn["band"][5] == pytest.approx(2 * unit * values_at(data, 0, "std")[0], abs=0.01)


@pytest.mark.parametrize("row", [0, 1])
def test_line_has_the_slope_of_the_gradient(made, browser, row):
    page, data = browser.open(made("grad").path, motion="reduce"), made("grad").data
    page.set("row", row)
    page.set("step", stop_of(data, row, "dx"))
    g, xhat, dx = (values_at(data, row, name) for name in ("g", "xhat", "dx"))
    mean, slope, sigma = (values_at(data, row, name)[0] for name in ("mean_g", "mean_g_xhat", "sigma"))
    drawn = page.page.evaluate(LINE)
    assert len(drawn["dots"]) == len(drawn["residuals"]) == len(g)
    across, wide = affine([(v, cx) for v, (_, cx, _) in zip(xhat, drawn["dots"], strict=True)])
    up, high = affine([(v, cy) for v, (_, _, cy) in zip(g, drawn["dots"], strict=True)])
    x1, x2, y1, y2 = drawn["mark"][:4]
    for x, y in ((x1, y1), (x2, y2)):
        assert y == pytest.approx(up + high * (mean + slope * (x - across) / wide), abs=0.01)
    for (_, _, top, end, *_), gradient in zip(drawn["residuals"], dx, strict=True):
        assert top - end == pytest.approx(high * gradient * sigma, abs=0.01)


def test_cells_that_share_a_mean_are_marked(made, browser):
    page, data = browser.open(made("sequence").path), made("sequence").data
    norms = {norm["name"]: norm for norm in data["neighbours"]["norms"]}
    lit = page.page.evaluate("""() => [...document.querySelectorAll('#five svg')].map((map) =>
      [map.querySelectorAll('circle').length, map.querySelectorAll('rect').length])""")
    assert len(lit) == len(norms)
    shape = data["shapes"]["x"]
    batch, channel = data["neighbours"]["batch_axis"], data["neighbours"]["channel_axis"]
    most = {batch: 4, channel: 8}
    for norm, (points, cells) in zip(norms.values(), lit, strict=True):
        count, whole = 1, 1
        for axis, size in enumerate(shape):
            drawn = min(size, most.get(axis, 4))
            whole *= drawn
            if axis in norm["axes"]:
                count *= drawn
            elif axis == channel and norm["channel_groups"]:
                count *= drawn // norm["channel_groups"]
        assert (points, cells) == (count, whole + 1), norm["name"]  # and the ring


def test_a_row_with_fewer_steps_can_be_chosen_at_the_last_step(made, browser):
    page, data = browser.open(made("grad_not_finite").path), made("grad_not_finite").data
    rows = range(len(data["rows"]))
    longest = max(rows, key=lambda row: len(stops(data, row)))
    shortest = min(rows, key=lambda row: len(stops(data, row)))
    assert len(stops(data, shortest)) < len(stops(data, longest))
    page.set("row", longest)
    page.set("step", len(stops(data, longest)) - 1)
    page.set("row", shortest)
    assert page.page.input_value("#step") == str(len(stops(data, shortest)) - 1)
    assert not page.said
