"""Everything can be reached, seen and moved with the keyboard alone."""

import pytest
from page_driver import READ

# What Tab focuses, in document order, with one radio button of each group.
FOCUSABLE = (
    "() => {"
    + READ
    + """
  const known = 'a[href], button, input, select, textarea, summary, [tabindex]', groups = new Set();
  return [...document.querySelectorAll(known)].filter((node) => {
    if (node.tabIndex < 0 || node.disabled || !node.checkVisibility({ visibilityProperty: true })) return false;
    if (node.type !== 'radio') return true;
    const first = !groups.has(node.name);
    groups.add(node.name);
    return first;
  }).map((node, i) => { node.dataset.testPlace = i; return (node.id && '#' + node.id) || node.outerHTML.slice(0, 80); });
}"""
)
FOCUSED = """() => {
  const node = document.activeElement;
  if (!node || node === document.body) return null;
  const radio = node.type === 'radio' &&
    [...document.querySelectorAll('input[type=radio]')].find((other) => other.name === node.name);
  const style = getComputedStyle(node), box = node.getBoundingClientRect();
  return {
    place: Number((radio || node).dataset.testPlace ?? -1),
    ring: (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1) || style.boxShadow !== 'none',
    inView: box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth && box.width > 0,
  };
}"""
CONTROLS = ["#row", "#map", "#step", "#play", "#amount"]


def walk(page, key, count):
    """The focused element."""
    found = []
    for _ in range(count):
        page.keyboard.press(key)
        found.append(page.evaluate(FOCUSED))
    return found


@pytest.mark.parametrize("name", ["sequence", "grad", "grad_wide", "slips"])
def test_tab_reaches_all_in_order(opened, name):
    page = opened(name, motion="reduce").page  # with reduced motion, the page does not scroll smoothly
    names = page.evaluate(FOCUSABLE)
    assert names
    if name != "slips":
        assert not {*CONTROLS} - {*names}
    found = walk(page, "Tab", len(names))
    assert [at and at["place"] for at in found] == list(range(len(names))), names
    unseen = [names[i] for i, at in enumerate(found) if not (at["ring"] and at["inView"])]
    assert unseen == [], "focus is not seen there"
    page.evaluate("document.activeElement.blur()")
    back = [at["place"] for at in walk(page, "Shift+Tab", len(names) + 1) if at]
    assert len({*back}) >= len(names) - 1, "a trap"


def value(page, name):
    return page.evaluate("(id) => document.getElementById(id).value", name)


def test_arrows_move_the_sliders(opened):
    page = opened("grad").page
    for slider, seen in (("step", "#step-name"), ("amount", "#share-table")):
        page.focus(f"#{slider}")
        page.keyboard.press("Home")
        first = page.inner_text(seen)
        page.keyboard.press("ArrowRight")
        assert value(page, slider) == "1"
        page.wait_for_timeout(50)
        assert page.inner_text(seen) != first
        page.keyboard.press("End")
        assert value(page, slider) == page.evaluate(f"document.getElementById('{slider}').max")
        page.keyboard.press("Home")
        page.wait_for_timeout(50)
        assert page.inner_text(seen) == first


@pytest.mark.parametrize("name", ["sequence", "grad", "minilm", "first_axis"])
def test_arrows_choose_a_row_on_the_map(opened, name):
    page = opened(name).page
    page.focus("#map")
    before = value(page, "row")
    forth = next(
        (key for key in ("ArrowDown", "ArrowRight") if (page.keyboard.press(key), value(page, "row") != before)[1]), ""
    )
    assert forth, "no arrow chose another row"
    page.keyboard.press({"ArrowDown": "ArrowUp", "ArrowRight": "ArrowLeft"}[forth])
    assert value(page, "row") == before


def test_enter_plays(opened):
    page = opened("by_hand").page
    page.focus("#play")
    page.keyboard.press("Enter")
    page.wait_for_function("document.getElementById('step').value !== '0'")
