// Numbers on a line: a dot for each (or for some of many), marks for mean and spread, and a histogram below.
'use strict';

const kMostDots = 300;

// The elements that have a dot: all of a short row; for a long row evenly spaced ones, the smallest, the largest and
// the chosen one.
function dotted(values) {
  const n = values.length;
  if (n <= kMostDots) return Array.from({length: n}, (_, i) => i);
  const some = new Set(Array.from({length: kMostDots}, (_, k) => Math.floor(k * n / kMostDots)));
  const far = (sign) =>
      values.reduce((best, v, i) => sign * v > sign * values[best] || Number.isNaN(values[best]) ? i : best, 0);
  return [...some.add(chosen.element).add(far(1)).add(far(-1))].sort((a, b) => a - b);
}

// Positions of dots that do not overlap: from left to right, each dot takes the lowest free level.
function stacked(values, elements, scale, height) {
  const across = new Map(elements.map((i) => [i, Math.max(scale.from, Math.min(scale.to, scale(values[i])))]));
  const inOrder = [...elements].sort((a, b) => across.get(a) - across.get(b));
  for (let radius = elements.length > 60 ? 5 : 8;; radius -= 0.5) {
    const ends = [], level = new Map();
    for (const i of inOrder) {
      let free = ends.findIndex((end) => across.get(i) >= end);
      if (free < 0) free = ends.length;
      ends[free] = across.get(i) + 2 * radius;
      level.set(i, free);
    }
    if (ends.length * 2 * radius > height && radius > 2) continue;
    const step = Math.min(2 * radius, height / Math.max(1, ends.length));
    return {radius, places: elements.map((i) => [across.get(i), height - radius - level.get(i) * step])};
  }
}

function histogram(values, domain, scale, top, height) {
  const finite = values.filter((v) => v >= domain[0] && v <= domain[1]);
  const bins = Math.max(12, Math.min(40, Math.ceil(2 * Math.sqrt(finite.length))));
  const counts = new Array(bins).fill(0);
  for (const v of finite)
    ++counts[Math.max(0, Math.min(bins - 1, Math.floor((v - domain[0]) / (domain[1] - domain[0]) * bins)))];
  const most = Math.max(1, ...counts), width = (scale(domain[1]) - scale(domain[0])) / bins;
  return svg(
      'g', {class: 'bars'},
      counts.map(
          (count, k) => count ? svg('rect', {
            x: scale(domain[0]) + k * width,
            y: top,
            width: Math.max(1, width - 1),
            height: count / most * height
          }) :
                                null));
}

// marks: [{at, path, name, band}]: a line at `at`, or a strip of half width `band` around it.
function drawMarks(marks, scale, domain, height) {
  const group = svg('g', {}), inside = (v) => Math.max(scale(domain[0]), Math.min(scale(domain[1]), scale(v)));
  marks.forEach((mark, k) => {
    if (!Number.isFinite(mark.at) || (mark.band !== undefined && !Number.isFinite(mark.band))) return;
    const y = 14 + 17 * k, middle = inside(mark.at), half = scale(domain[1]) / 2;
    if (mark.band !== undefined) {
      const from = inside(mark.at - mark.band), to = inside(mark.at + mark.band);
      group.append(svg('rect', {class: 'band', x: from, y: 34, width: Math.max(1, to - from), height: height - 34}));
    } else {
      group.append(svg('line', {class: 'mark', x1: middle, x2: middle, y1: y + 5, y2: height}));
    }
    const right = middle < half;
    group.append(
        mark.path ?
            svgNum(
                mark.path, middle + (right ? 4 : -4), y, {class: 'mark-text', 'text-anchor': right ? 'start' : 'end'},
                `${mark.name} `) :
            text(
                middle + (right ? 4 : -4), y, {class: 'mark-text', 'text-anchor': right ? 'start' : 'end'}, mark.name));
  });
  return group;
}

// The positions of the dots drawn last. At the next stop, dots move from there.
let before = null;

// Draws view {values, domain, marks, label} into the element `figure`.
function drawLine(figure, view, moving) {
  const width = widthOf(figure), height = 170, bars = 46, margin = 22;
  const scale =
      Object.assign(linear(view.domain, [margin, width - margin]), {from: margin / 2, to: width - margin / 2});
  const elements = dotted(view.values).filter((i) => Number.isFinite(view.values[i]));
  const {radius, places} = stacked(view.values, elements, scale, height - 36);
  const dots = elements.map((i, k) => svg('circle', {
                              class: i === chosen.element ? 'dot chosen' : 'dot',
                              r: radius,
                              cx: places[k][0],
                              cy: places[k][1] + 36,
                              'data-element': i,
                              onclick: () => choose({element: i})
                            }));
  const front =
      [...dots.filter((d) => !d.classList.contains('chosen')), ...dots.filter((d) => d.classList.contains('chosen'))];
  const drawing =
      svg('svg', {
        width,
        height: height + 26 + bars + 8,
        viewBox: `0 0 ${width} ${height + 34 + bars}`,
        role: 'img',
        'aria-label': view.label
      },
          drawMarks(view.marks, scale, view.domain, height), axis(view.domain, scale, height, width),
          view.values.length > 1 ? histogram(view.values, view.domain, scale, height + 26, bars) : '', ...front);
  figure.replaceChildren(drawing);
  const from = before;
  before = new Map(elements.map((i, k) => [i, [places[k][0], places[k][1] + 36]]));
  if (!moving || !from) return;
  const target = before;
  animate(900, (t) => dots.forEach((dot, k) => {
    const end = target.get(elements[k]), start = from.get(elements[k]) ?? end;
    dot.setAttribute('cx', start[0] + (end[0] - start[0]) * t);
    dot.setAttribute('cy', start[1] + (end[1] - start[1]) * t);
  }));
}

// Draws xhat across and g upwards: the part of g along xhat, and the rest. view.slope is the final line's slope,
// view.shown the current line's. Both use the same scale.
function drawScatter(figure, view) {
  const width = Math.min(520, widthOf(figure)), height = 300, foot = height - 40;
  const across = domainOf(view.xhat, [0]), line = (slope) => across.map((v) => view.mean + slope * v);
  const upwards = domainOf(view.g, [0, ...line(view.slope)]), {ticks, step} = ticksOf(upwards, 5);
  const margin = Math.max(46, ...ticks.map((v) => 12 + 2 * halfOf(tickText(v, step))));
  const x = linear(across, [margin, width - 14]), y = linear(upwards, [foot, 20]);
  const drawing =
      svg('svg',
          {width, height: height + 18, role: 'img', 'aria-label': view.label, viewBox: `0 0 ${width} ${height + 18}`});
  const tick = (v) =>
      svg('g', {}, svg('line', {class: 'grid', x1: margin, x2: width - 14, y1: y(v), y2: y(v)}),
          text(margin - 6, y(v) + 4, {'text-anchor': 'end', class: 'quiet'}, tickText(v, step)));
  drawing.append(
      axis(across, x, foot, width), ...ticks.map(tick), text(width / 2, height + 4, {'text-anchor': 'middle'}, 'xhat'),
      text(4, 12, {}, 'g'));
  const [left, right] = line(view.shown).map(y), drawn = Number.isFinite(left) && Number.isFinite(right);
  if (drawn) drawing.append(svg('line', {class: 'mark', x1: x(across[0]), x2: x(across[1]), y1: left, y2: right}));
  for (const i of dotted(view.g)) {
    const [across, above] = [view.xhat[i], view.g[i]];
    if (!Number.isFinite(above) || !Number.isFinite(across)) continue;
    if (view.residual && drawn)
      drawing.append(
          svg('line',
              {class: 'residual', x1: x(across), x2: x(across), y1: y(above), y2: y(view.mean + view.slope * across)}));
    drawing.append(svg('circle', {
      class: i === chosen.element ? 'dot chosen' : 'dot',
      r: view.g.length > 60 ? 3 : 6,
      cx: x(across),
      cy: y(above),
      onclick: () => choose({element: i})
    }));
  }
  figure.replaceChildren(drawing);
}
