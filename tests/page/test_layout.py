"""Pages are small, load quickly, request nothing and print no messages. Nothing is wider than the screen, too small to
read, cut off, or on top of something else."""

import pytest
from page_cases import CASES
from page_driver import DESKTOP, PHONE, READ

LEAST_PIXELS = 12
MOST_BYTES = 2_000_000
# The goal is one second on an idle machine.
MOST_MILLISECONDS = 3000

# Visits each stop and both ends of each slider. Returns what is wrong, and where it was first seen.
TOUR = (
    "(last) => {"
    + READ
    + """
const measure = () => {
  const found = [], told = (text) => text.trim().replace(/\\s+/g, ' ').slice(0, 60);
  const wide = Math.max(document.documentElement.scrollWidth, document.body.scrollWidth);
  if (wide > innerWidth) found.push(`the document is ${wide} wide on ${innerWidth}`);

  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let texts = 0;
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement, words = walker.currentNode.textContent;
    if (!words.trim() || /^(SCRIPT|STYLE|NOSCRIPT|OPTION)$/.test(node.tagName) || !testSeen(node)) continue;
    ++texts;
    const matrix = node instanceof SVGGraphicsElement ? node.getScreenCTM() : null;
    const scale = matrix ? Math.sqrt(Math.abs(matrix.a * matrix.d - matrix.b * matrix.c)) : 1;
    const size = parseFloat(getComputedStyle(node).fontSize) * scale;
    if (size < LEAST - 0.01) found.push(`"${told(words)}" is ${size.toFixed(1)} px high`);
  }
  if (!texts) found.push('no text');

  // Boxes have room above and below the letters.
  const boxOf = (label) => {
    const box = label.getBoundingClientRect(), room = Math.min(box.height, box.width) * 0.18;
    const upright = box.height <= box.width || label.textContent.trim().length === 1;
    return upright ? { left: box.left + 0.5, right: box.right - 0.5, top: box.top + room, bottom: box.bottom - room }
                   : { left: box.left + room, right: box.right - room, top: box.top + 0.5, bottom: box.bottom - 0.5 };
  };
  for (const drawing of document.querySelectorAll('svg')) {
    if (!testSeen(drawing)) continue;
    const edge = drawing.getBoundingClientRect();
    const labels = [...drawing.querySelectorAll('text')].filter((label) => label.textContent.trim() && testSeen(label))
      .map((label) => [told(label.textContent), boxOf(label)]);
    const where = drawing.closest('[id]')?.id;
    for (const [i, [words, box]] of labels.entries()) {
      if (box.left < edge.left - 1 || box.right > edge.right + 1 || box.top < edge.top - 1 || box.bottom > edge.bottom + 1)
        found.push(`"${words}" leaves its drawing (in #${where})`);
      for (const [other, its] of labels.slice(i + 1)) {
        if (box.left < its.right && its.left < box.right && box.top < its.bottom && its.top < box.bottom)
          found.push(`"${words}" and "${other}" overlap (in #${where})`);
      }
    }
  }

  for (const node of document.body.querySelectorAll('*')) {
    const style = getComputedStyle(node);
    if (node.clientWidth > 1 && /hidden|clip/.test(style.overflowX) && node.scrollWidth > node.clientWidth + 1 &&
        node.textContent.trim() && testSeen(node)) found.push(`"${told(node.textContent)}" is cut off`);
  }
  return found;
};
  const seen = new Map();
  const look = (where) => { for (const amiss of measure()) if (!seen.has(amiss)) seen.set(amiss, where); };
  const visit = (id, value) => {
    if (!document.getElementById(id)) return;
    testSet(id, value);
    look(`${id} ${value}`);
  };
  look('as it opens');
  document.querySelectorAll('details').forEach((part) => { part.open = true; });
  look('unfolded');
  const step = document.getElementById('step'), amount = document.getElementById('amount');
  for (let at = 1; step && at <= Number(step.max); ++at) visit('step', at);
  if (amount) visit('amount', amount.max);
  if (last > 0) visit('row', last);
  return [...seen].map(([amiss, where]) => `${where}: ${amiss}`).join('\\n');
}"""
).replace("LEAST", str(LEAST_PIXELS))


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("name", CASES)
def test_layout_has_no_faults(made, opened, name, size):
    page = opened(name, size=size, motion="reduce").page
    amiss = page.evaluate(TOUR, len(made(name).data.get("rows", [])) - 1)
    assert not amiss, amiss


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
