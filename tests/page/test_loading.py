"""Pages are small, soon there, alone and silent."""

import pytest
from page_cases import CASES

MOST_BYTES = 2_000_000
# A second is promised, on a machine that does nothing else; the last lines of a run say what it was.
MOST_MILLISECONDS = 3000


@pytest.mark.parametrize("name", CASES)
def test_small_soon_alone_and_silent(made, opened, figures, name):
    page, size = opened(name), made(name).path.stat().st_size
    figures[name] = (size, page.milliseconds)
    assert size < MOST_BYTES
    assert page.milliseconds < MOST_MILLISECONDS
    page.page.wait_for_timeout(50)  # what comes late
    assert page.asked == [page.url]
    assert page.said == []


@pytest.mark.parametrize("name", ["by_hand", "slips"])
def test_without_script_a_sentence_says_so(made, browser, name):
    page = browser.window(script=False)
    page.goto(made(name).path.as_uri())
    assert len(page.inner_text("noscript").split()) > 5
