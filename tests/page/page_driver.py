"""Drives a page in Chromium: opens it, records its messages and requests, moves its sliders and reads its numbers."""

import pathlib

DESKTOP, PHONE = (1280, 800), (390, 844)

# performance.now() counts from the start of the navigation. One frame after `data-ready`, the page is painted.
WATCH = """
window.testReadyAt = new Promise((ready, never) => {
  setTimeout(() => never(new Error('no data-ready within 10 s')), 10000);
  new MutationObserver((changes, observer) => {
    if (!document.body?.hasAttribute('data-ready')) return;
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => ready(performance.now())));
    setTimeout(() => ready(performance.now()), 3000);  // where no frame comes
  }).observe(document, { attributes: true, subtree: true, attributeFilter: ['data-ready'] });
});
"""

READ = """
const testSeen = (node) => node.checkVisibility({ opacityProperty: true, visibilityProperty: true });
const testRead = (root, without) => [...root.querySelectorAll('.n')]
  .filter((n) => !(without && n.closest(without)) && testSeen(n))
  .map((n) => [n.getAttribute('data-path'), n.textContent.trim()]);
// What follows from it is on the page at once, but for what moves.
const testSet = (id, value) => {
  const input = document.getElementById(id);
  if (String(input.value) === String(value)) return;
  input.value = value;
  for (const type of ['input', 'change']) input.dispatchEvent(new Event(type, { bubbles: true }));
};
"""

# For each stop of a row: its name, the numbers of #steps, the same after all are requested, and the other numbers.
STOPS = f"""(row) => {{
  {READ}
  const select = document.getElementById('row'), step = document.getElementById('step');
  if (select) testSet('row', row);
  const found = [];
  for (let at = Number(step.min || 0); at <= Number(step.max); ++at) {{
    testSet('step', at);
    const name = document.getElementById('step-name').textContent;
    const few = testRead(document.getElementById('steps')), button = document.getElementById('all-numbers');
    const asked = Boolean(button) && testSeen(button) && !button.disabled;
    if (asked) button.click();
    const all = asked ? testRead(document.getElementById('steps')) : few;
    found.push({{ at, name: name.trim(), few, all, asked, elsewhere: testRead(document.body, '#steps') }});
  }}
  testSet('step', step.min || 0);
  return found;
}}"""

AMOUNTS = f"""() => {{
  {READ}
  const amount = document.getElementById('amount'), found = [];
  for (let at = Number(amount.min || 0); at <= Number(amount.max); ++at) {{
    testSet('amount', at);
    found.push(testRead(document.getElementById('share-table')));
  }}
  testSet('amount', amount.min || 0);
  return found;
}}"""

WITHIN = f"""(selector) => {{
  {READ}
  return [...document.querySelectorAll(selector)].flatMap(testRead);
}}"""


class Opened:
    """A page that is ready, with its messages. It closes when another page opens in the same window."""

    def __init__(self, page, path):
        self.page, self.url = page, pathlib.Path(path).as_uri()
        self.said, self.asked = [], []
        self.hear = {
            "console": lambda message: self.said.append(f"{message.type}: {message.text}"),
            "pageerror": lambda error: self.said.append(f"error: {error}"),
            "crash": lambda _: self.said.append("crashed"),
            "request": lambda request: self.asked.append(request.url),
        }
        for event, heard in self.hear.items():
            page.on(event, heard)
        page.goto(self.url)
        self.milliseconds = page.evaluate("window.testReadyAt")

    def leave(self):
        for event, heard in self.hear.items():
            self.page.remove_listener(event, heard)

    def stops(self, row):
        return self.page.evaluate(STOPS, row)

    def amounts(self):
        return self.page.evaluate(AMOUNTS)

    def unfold(self):
        """Unfolds all folded parts."""
        self.page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")

    def numbers(self, selector):
        return [tuple(pair) for pair in self.page.evaluate(WITHIN, selector)]

    def choose(self, row):
        """Chooses a row, if the page has several."""
        if self.page.query_selector("#row"):
            self.set("row", row)

    def set(self, name, value):
        self.page.evaluate(f"([id, value]) => {{ {READ} testSet(id, value); }}", [name, value])


class Browser:
    """Chromium with one window for each setting. A window shows one page at a time."""

    def __init__(self, chromium):
        self.chromium, self.windows, self.open_now = chromium, {}, {}

    def window(self, size=DESKTOP, scheme="light", motion="no-preference", script=True):
        key = (size, scheme, motion, script)
        if key not in self.windows:
            context = self.chromium.new_context(
                viewport={"width": size[0], "height": size[1]},
                color_scheme=scheme,
                reduced_motion=motion,
                java_script_enabled=script,
            )
            if script:
                context.add_init_script(WATCH)
            self.windows[key] = context.new_page()
        return self.windows[key]

    def open(self, path, **settings):
        window = self.window(**settings)
        if window in self.open_now:
            self.open_now[window].leave()
        self.open_now[window] = Opened(window, path)
        return self.open_now[window]
