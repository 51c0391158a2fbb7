"""Motion preferences and printing."""

import pytest
from page_driver import DESKTOP, READ

SECTIONS = ["#tensor", "#steps", "#share", "#precision", "#transformer"]

# The places of the drawing's parts while it played, frame by frame.
PLAY = """async () => {
  const step = document.getElementById('step'), states = [];
  const shapes = 'circle, rect, line, path, text';
  step.value = 1;  // the next one moves all numbers
  for (const type of ['input', 'change']) step.dispatchEvent(new Event(type, { bubbles: true }));
  await new Promise((done) => setTimeout(done, 800));
  document.getElementById('play').click();
  const end = performance.now() + 1800;
  while (performance.now() < end) {
    await new Promise(requestAnimationFrame);
    const places = [...document.querySelectorAll('#steps svg :is(' + shapes + ')')]
      .map((node) => { const box = node.getBoundingClientRect(); return Math.round(box.x) + ' ' + Math.round(box.y); });
    states.push([step.value, places.join()]);
  }
  return [new Set(states.map(([value]) => value)).size, new Set(states.map(String)).size];
}"""


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_play_moves_only_without_reduced_motion(opened, motion):
    page = opened("by_hand", motion=motion)
    stops, states = page.page.evaluate(PLAY)
    assert stops > 1, "nothing was played"
    if motion == "reduce":
        assert states == stops
    else:
        assert states > stops + 5


@pytest.mark.parametrize("name", ["sequence", "grad", "slips"])
def test_prints_on_paper(made, opened, name):
    page = opened(name, size=(794, DESKTOP[1]), scheme="dark").page  # A4 at 96 dots per inch
    page.emulate_media(media="screen")  # the previous test left the page in print media
    page.evaluate("new Promise((done) => setTimeout(done, 50))")
    page.emulate_media(media="print")
    seen = "(selector) => { " + READ + " return [...document.querySelectorAll(selector)].filter(testSeen).length; }"
    parts = [f"#slip-{slip['name']}" for slip in made(name).data.get("slips", [])] or SECTIONS
    assert [part for part in parts if page.evaluate(seen, part) != 1] == []
    assert page.evaluate(seen, "button, input, select") == 0
    assert page.evaluate(seen, "svg") > 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground in ("rgb(255, 255, 255)", "rgba(0, 0, 0, 0)"), "dark ink is wasted"
    assert len(page.pdf()) > 10_000
