"""Pages are small, load quickly, request nothing and print no messages."""

import pytest
from page_cases import CASES

MOST_BYTES = 2_000_000
# The goal is one second on an idle machine.
MOST_MILLISECONDS = 3000


@pytest.mark.parametrize("name", CASES)
def test_page_is_small_fast_and_silent(made, opened, name):
    page = opened(name)
    assert made(name).path.stat().st_size < MOST_BYTES
    assert page.milliseconds < MOST_MILLISECONDS
    page.page.wait_for_timeout(50)  # for late requests and messages
    assert page.asked == [page.url]
    assert page.said == []


@pytest.mark.parametrize("name", ["by_hand", "slips"])
def test_without_script_the_page_explains_itself(made, browser, name):
    page = browser.window(script=False)
    page.goto(made(name).path.as_uri())
    assert len(page.inner_text("noscript").split()) > 5
