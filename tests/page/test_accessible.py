"""axe-core's rules, and the contrast of texts in drawings, which axe-core does not check."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from page_driver import DESKTOP, PHONE, READ

TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
OPTIONS = {"runOnly": {"type": "tag", "values": TAGS}, "resultTypes": ["violations"]}
VIEWS = [(size, scheme) for size in (DESKTOP, PHONE) for scheme in ("light", "dark")]
LEAST_CONTRAST = 4.5

# For each text in a drawing: the colour of the topmost element under its middle, and its own colour.
CONTRASTS = (
    READ
    + """
const style = document.createElement('style');
style.textContent = 'svg *, canvas { pointer-events: auto !important }';
document.head.append(style);
const parts = (colour) => (colour.match(/[\\d.]+%?/g) || []).map(Number);
const over = (top, share, below) => below.map((c, i) => top[i] * share + c * (1 - share));
const ground = (x, y, label) => {
  const layers = [];
  for (const node of document.elementsFromPoint(x, y)) {
    if (node === label || label.contains(node) || node.closest('text')) continue;
    const own = getComputedStyle(node);
    const shape = node instanceof SVGGeometryElement;
    const colour = parts(shape ? own.fill : own.backgroundColor);
    if ((shape && own.fill === 'none') || colour.length < 3) continue;
    const share = (colour[3] ?? 1) * (shape ? Number(own.fillOpacity) : 1) * Number(own.opacity);
    if (share) layers.push([colour.slice(0, 3), share]);
    if (share === 1) break;
  }
  return layers.reverse().reduce((below, [colour, share]) => over(colour, share, below), [255, 255, 255]);
};
const luminance = (colour) => colour.map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
  .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
const found = [];
for (const label of document.querySelectorAll('svg text')) {
  if (!testSeen(label) || !label.textContent.trim()) continue;
  label.scrollIntoView({ block: 'center', behavior: 'instant' });
  const box = label.getBoundingClientRect(), x = box.x + box.width / 2, y = box.y + box.height / 2;
  const below = ground(x, y, label), own = parts(getComputedStyle(label).fill).slice(0, 3);
  const [low, high] = [luminance(below), luminance(own)].sort((a, b) => a - b);
  found.push([label.textContent.trim(), (high + 0.05) / (low + 0.05)]);
}
style.remove();
return found;
"""
)


def violations(page):
    """One line for each violation."""
    found = Axe().run(page.page, options=OPTIONS).response["violations"]
    return "\n".join(
        f"{rule['id']}: {rule['help']}: {node['html'][:160]} ({node['any'][0]['message'] if node['any'] else ''})"
        for rule in found
        for node in rule["nodes"]
    )


@pytest.mark.parametrize("size, scheme", VIEWS, ids=lambda part: str(part).replace(" ", ""))
@pytest.mark.parametrize("name", ["sequence", "grad", "slips"])
def test_axe_finds_nothing(opened, name, size, scheme):
    page = opened(name, size=size, scheme=scheme)
    first = violations(page)
    assert not first, first
    page.unfold()
    if name == "grad":  # the backward pass too
        page.set("step", page.page.evaluate("document.getElementById('step').max"))
    found = violations(page)
    assert not found, found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["sequence", "two_words", "grad", "slips"])
def test_texts_in_drawings_stand_out(opened, name, scheme):
    page = opened(name, scheme=scheme)
    found = page.page.evaluate(f"() => {{ {CONTRASTS} }}")
    assert found
    pale = [f"{text!r}: {ratio:.2f}" for text, ratio in found if ratio < LEAST_CONTRAST]
    assert not pale, "\n".join(pale)
