"""Every number on the page is in the output of --json, and every number of a stop is on the page."""

import pytest
from page_cases import EXPLAINED
from page_numbers import MANY, at, elements, number, shows, stops

MANY_ROWS = 8  # of a page with more rows, the tests visit the first two and the last


def wrong(data, pairs):
    """One line for each shown number that is not in the JSON, or differs from it."""
    decimals = data.get("decimals", 4)
    found = []
    for path, text in sorted({tuple(pair) for pair in pairs}):
        try:
            value = number(at(data, path))
        except (AttributeError, KeyError, AssertionError):
            found.append(f"{path}: {text!r}, which the JSON does not have")
            continue
        if not shows(text, value, decimals):
            found.append(f"{path}: {text!r}, which is {value!r}")
    return "\n".join(found)


def paths(pairs):
    return {path for path, _ in pairs}


def rows_of(data):
    count = len(data["rows"])
    return range(count) if count <= MANY_ROWS else (0, 1, count - 1)


@pytest.fixture(params=EXPLAINED, scope="module")
def explained(request, made, browser):
    """A page's JSON and the page. The tests work after other tests have moved its sliders."""
    return made(request.param).data, browser.open(made(request.param).path)


def test_each_stop_of_each_row(explained):
    data, page = explained
    for row in rows_of(data):
        found, expected = page.stops(row), stops(data, row)
        assert len(found) == len(expected), ([stop["name"] for stop in found], [name for name, _ in expected])
        assert len({stop["name"] for stop in found} - {""}) == len(found), "stops without names of their own"
        for stop, (step, path) in zip(found, expected, strict=True):
            where = f"row {row}, stop {step}"
            wanted = elements(data, path)
            amiss = wrong(data, stop["few"] + stop["all"] + stop["elsewhere"])
            assert not amiss, f"{where}\n{amiss}"
            few, whole = paths(stop["few"]) & {*wanted}, paths(stop["all"])
            assert len(few) >= min(len(wanted), MANY), where
            assert stop["asked"] or len(wanted) <= MANY, where
            assert not {*wanted} - whole, where
            by_hand = path.removesuffix("exact") + "rounded"
            if data["round"] is not None and path.endswith("exact") and len(wanted) <= MANY:
                assert not {*elements(data, by_hand)} - whole, where


def test_notes_and_warnings_are_shown(explained):
    data, page = explained
    for row in rows_of(data):
        page.choose(row)
        text = page.page.evaluate("document.body.textContent.replaceAll('−', '-').replace(/\\s+/g, ' ')")
        for note in data["warnings"] + data["notes"] + data["rows"][row]["notes"]:
            assert " ".join(note.replace("−", "-").split()) in text


def test_shows_which_elements_share_a_mean(explained):
    data, page = explained
    neighbours = data["neighbours"]
    if neighbours is None:
        assert not page.page.query_selector("#share-table")
        assert data["neighbours_note"] in page.page.inner_text("#share")
        return
    found = page.amounts()
    assert len(found) == len(neighbours["amounts"])
    for amount, pairs in enumerate(found):
        amiss = wrong(data, pairs)
        assert not amiss, amiss
        for norm, values in enumerate(neighbours["norms"]):
            path = f"neighbours/norms/{norm}"
            wanted = {f"{path}/moved/{amount}", *elements(data, f"{path}/outputs/{amount}")}
            assert not wanted - paths(pairs), (values["name"], amount)


def test_shows_where_precision_is_lost(explained):
    data, page = explained
    for row in rows_of(data):
        page.choose(row)
        page.unfold()
        pairs = page.numbers("#precision")
        amiss = wrong(data, pairs)
        assert not amiss, amiss
        precision, path = data["rows"][row]["precision"], f"rows/{row}/precision"
        if precision is None:
            assert page.page.inner_text("#precision p").strip(), "nothing says why"
            continue
        wanted = {each for k in range(len(precision["points"])) for each in elements(data, f"{path}/points/{k}/errors")}
        wanted |= {f"{path}/eps/{k}/out" for k in range(len(precision["eps"]))}
        assert wanted
        assert not wanted - paths(pairs), row


def test_slips_have_the_numbers_of_json(made, opened):
    data, page = made("slips").data, opened("slips")
    slips = data["slips"]
    assert len(slips) >= 11
    for i, slip in enumerate(slips):
        pairs = page.numbers(f"#slip-{slip['name']}")
        amiss = wrong(data, pairs)
        assert not amiss, amiss
        for side in ("wrong", "right"):
            for j in range(len(slip[side])):
                missing = {*elements(data, f"slips/{i}/{side}/{j}/values")} - paths(pairs)
                assert not missing, slip["name"]
