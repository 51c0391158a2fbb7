// Helpers for elements, scales, axes and colours.
'use strict';

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on'))
      node.addEventListener(name.slice(2), value);
    else
      node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter(
      (child) => child !== null && child !== undefined && child !== false && child !== ''));
  return node;
}

const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) =>
    fill(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);
const text = (x, y, attributes, words) => svg('text', {x, y, ...attributes}, words);

// Draws a number of the JSON in SVG.
function svgNum(path, x, y, attributes = {}, before = '', after = '') {
  const value = numberOf(at(path));
  return text(
      x, y, attributes,
      [before, svg('tspan', {class: 'n', 'data-path': path}, format(value)), after].filter((part) => part !== ''));
}

const still = () => matchMedia('(prefers-reduced-motion: reduce)').matches;
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const widthOf = (node, most = 1100) => Math.max(240, Math.min(most, Math.floor(node.getBoundingClientRect().width)));

// [low, high] around the finite values with a margin. Never has zero width.
function domainOf(values, more = []) {
  let low = Infinity, high = -Infinity;
  for (const v of [...values, ...more]) {
    if (!Number.isFinite(v)) continue;
    low = Math.min(low, v);
    high = Math.max(high, v);
  }
  if (low > high) return [-1, 1];
  const pad = (high - low) * 0.06 || Math.abs(high) * 0.05 || 1;
  return [low - pad, high + pad];
}

// Like domainOf, but ignores a few far outliers that would make the others indistinguishable.
function bulkOf(values, more = []) {
  const sorted = values.filter(Number.isFinite).sort((a, b) => a - b), n = sorted.length;
  const [low, high] = [sorted[Math.floor(n / 50)], sorted[Math.ceil(n - 1 - n / 50)]];
  if (n < 50 || sorted[n - 1] - sorted[0] < 12 * (high - low) || low === high) return domainOf(values, more);
  return domainOf([low - (high - low) / 4, high + (high - low) / 4], more);
}

const linear = ([a, b], [from, to]) => (v) => from + (v - a) / (b - a) * (to - from);

function ticksOf([low, high], count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const ticks = [];
  for (let k = Math.ceil(low / step); k * step <= high && ticks.length < 100; ++k) ticks.push(k * step);
  return {ticks, step};
}

// Labels of an axis are positions on a scale, not numbers of the JSON.
function tickText(v, step) {
  const largest = Math.max(Math.abs(v), step);
  if (Number.isInteger(step) && largest >= 1e7 && largest < 1e16 && largest / step > 1e6)
    return v.toFixed(0).replaceAll('-', '−');
  if (largest >= 1e7 || step < 1e-6)
    return v.toExponential(Math.min(8, Math.max(0, Math.ceil(Math.log10(largest / step)))))
        .replaceAll('-', '−')
        .replace('e+', 'e');
  return v.toFixed(Math.max(0, -Math.floor(Math.log10(step) + 1e-9))).replace(/^-0(\.0*)?$/, '0').replaceAll('-', '−');
}

// A little more than half of a label's width.
const halfOf = (label) => 4.2 * label.length;

// Draws a horizontal axis at y.
function axis(domain, scale, y, width) {
  const room = (count) => {
    const found = ticksOf(domain, count);
    const longest = Math.max(...found.ticks.map((v) => tickText(v, found.step).length));
    return count > 2 && found.ticks.length * (8.4 * longest + 14) > width ? room(count - 1) : found;
  };
  const {ticks, step} = room(Math.max(3, Math.floor(width / 110)));
  return svg(
      'g', {}, svg('line', {class: 'axis', x1: scale(domain[0]), x2: scale(domain[1]), y1: y, y2: y}),
      ticks.map(
          (v) =>
              svg('g', {}, svg('line', {class: 'axis', x1: scale(v), x2: scale(v), y1: y, y2: y + 5}),
                  text(
                      Math.max(halfOf(tickText(v, step)), Math.min(width - halfOf(tickText(v, step)), scale(v))),
                      y + 19, {'text-anchor': 'middle', class: 'quiet'}, tickText(v, step)))));
}

// Blue for low and orange for high values; the middle has the colour of the page.
const kLow = [0x1f, 0x5f, 0xa8], kHigh = [0xb5, 0x52, 0x0f];
const isDark = () => matchMedia('(prefers-color-scheme: dark)').matches && !matchMedia('print').matches;

function colour(t) {
  if (Number.isNaN(t)) return [0x80, 0x00, 0x80];
  const middle = isDark() ? [0x2c, 0x30, 0x38] : [0xf4, 0xf2, 0xec];
  const end = t < 0 ? kLow : kHigh, share = Math.min(1, Math.abs(t));
  return middle.map((m, i) => Math.round(m + (end[i] - m) * share));
}

const rgb = (parts) => `rgb(${parts.join(' ')})`;

// Black or white, whichever has more contrast with the colour.
function inkOn(parts) {
  const light = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const luminance = 0.2126 * light(parts[0]) + 0.7152 * light(parts[1]) + 0.0722 * light(parts[2]);
  return luminance > 0.179 ? '#000' : '#fff';
}

// Calls frame(fraction) with fractions from 0 to 1 over `ms`. Jumps to 1 if motion is not wanted.
let motion = 0;
function animate(ms, frame, done = () => {}) {
  cancelAnimationFrame(motion);
  if (still() || ms === 0) {
    frame(1);
    done();
    return;
  }
  const start = performance.now();
  const next = (now) => {
    const t = Math.min(1, (now - start) / ms);
    frame(t < 0.5 ? 2 * t * t : 1 - 2 * (1 - t) * (1 - t));
    if (t < 1)
      motion = requestAnimationFrame(next);
    else
      done();
  };
  frame(0);
  motion = requestAnimationFrame(next);
}
