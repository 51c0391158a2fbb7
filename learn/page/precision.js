// Where precision is lost: the row with a growing mean, the effect of eps, and the divisor.
'use strict';

const kMethods = [
  ['textbook', 'E[x²] − mean²', 'M-5,-5L5,5M-5,5L5,-5'],
  ['two_pass', 'two passes', 'M-5,-5H5V5H-5Z'],
  ['welford', 'Welford', 'M0,-6L6,5H-6Z'],
  ['evenorm', 'evenorm', 'M0,-6L6,0L0,6L-6,0Z'],
];

function buildPrecision() {
  return el(
      'section', {id: 'precision', 'aria-labelledby': 'precision-title'},
      el('h2', {id: 'precision-title'}, '4. Where precision goes'), el('div', {id: 'precision-body'}));
}

function drawPrecision() {
  const body = document.getElementById('precision-body'), precision = data.rows[chosen.row].precision,
        path = `${rowPath()}/precision`;
  if (!precision) {
    body.replaceChildren(
        el('p', {class: 'note'},
           'This row has a single number, or numbers that are not finite, so there is no precision to lose.'));
    return;
  }
  const errors = el('figure', {id: 'errors'}), eps = el('figure', {id: 'eps-curve'});
  body.replaceChildren(
      el('p', {},
         isLayer ?
             '' :
             'This section is about layer norm, on the same row: RMS norm subtracts no mean, and so loses no precision that way. ',
         'The same row is moved so that its mean is 1 up to 100,000,000 times its spread (', num(`${path}/unit`),
         data.rows[chosen.row].precision.divisor ? ')' : ', taken as 1 because all its numbers are equal)',
         '. Its pattern stays, so xhat should stay too. ' +
             'In f32, which has about seven digits, four methods to compute layer norm give the following errors. The chart shows the largest error of an xhat, compared with exact arithmetic ' +
             'on the same f32 numbers.'),
      errors, errorTable(path),
      el('p', {},
         'E[x²] − mean² subtracts two large, almost equal numbers: their leading digits cancel, and the rest is mostly rounding. It can be negative; ' +
             'if eps does not make up for that, there is no root and no result. Further out the numbers of the row become equal in f32. They are lost before any norm begins, and no method can restore them.'),
      el('h3', {}, 'What eps does'),
      el('p', {},
         'The row shrinks and its pattern stays. As long as its spread is large compared with the root of eps (',
         num('eps', kShortest),
         ' inside the root), the result has spread 1. Below that, eps dominates and the row fades to 0 instead of being scaled up: a nearly constant row carries no information.'),
      eps, epsTable(path), el('h3', {}, 'Why divided by D'), ...divisorWords(precision, path));
  drawErrors(errors, precision);
  drawEps(eps, precision);
}

const scrolled = (label, table) => el('div', {class: 'scroll', tabindex: 0, role: 'group', 'aria-label': label}, table);

function errorTable(path) {
  const points = at(`${path}/points`);
  return el(
      'details', {}, el('summary', {}, 'These errors as numbers'),
      scrolled(
          'errors as numbers',
          el('table', {},
             el('thead', {},
                el('tr', {}, el('th', {scope: 'col'}, 'mean moved to'), el('th', {scope: 'col'}, 'exact variance'),
                   kMethods.map(([, title]) => el('th', {scope: 'col'}, title)))),
             el('tbody', {},
                points.map(
                    (_, k) =>
                        el('tr', {}, el('th', {scope: 'row'}, num(`${path}/points/${k}/shift`)),
                           el('td', {}, num(`${path}/points/${k}/var`)),
                           kMethods.map(([name]) => el('td', {}, num(`${path}/points/${k}/errors/${name}`)))))))));
}

function epsTable(path) {
  return el(
      'details', {}, el('summary', {}, 'This curve as numbers'),
      scrolled(
          'the curve as numbers',
          el('table', {},
             el('thead', {},
                el('tr', {}, el('th', {scope: 'col'}, 'spread of the row'),
                   el('th', {scope: 'col'}, 'spread of xhat'))),
             el('tbody', {},
                at(`${path}/eps`)
                    .map(
                        (_, k) =>
                            el('tr', {}, el('th', {scope: 'row'}, num(`${path}/eps/${k}/std`)),
                               el('td', {}, num(`${path}/eps/${k}/out`))))))));
}

function divisorWords(precision, path) {
  if (!precision.divisor)
    return [el('p', {}, 'All numbers of this row are equal, so its variance is 0 for any divisor.')];
  const n = num(`${path}/divisor/n`);
  return [el(
      'p', {}, 'D is the number of numbers in the row, here ', n, '. Dividing by D makes the variance of xhat ',
      num(`${path}/divisor/by_n`),
      ' (without eps). Dividing by D − 1, as for a sample of a larger population, would make it ',
      num(`${path}/divisor/by_n_less_1`),
      '. A row is the whole population, not a sample. PyTorch\'s LayerNorm also divides by D.')];
}

// Draws a chart with powers of ten on both axes. lines: [{points: [[power, value]], mark, color, name}]
function logChart(figure, {powers, lowest, highest, lines, across, label}) {
  const width = widthOf(figure), height = 330, left = 58, bottom = height - 52, top = 14, right = width - 24;
  const x = linear(powers, [left, right]), y = linear([lowest, highest], [bottom, top]);
  const drawing = svg('svg', {width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': label});
  for (let p = lowest; p <= highest; p += Math.ceil((highest - lowest) / 6))
    drawing.append(
        svg('line', {class: 'grid', x1: left, x2: right, y1: y(p), y2: y(p)}),
        text(left - 6, y(p) + 4, {'text-anchor': 'end', class: 'quiet'}, `1e${p}`.replace('-', '−')));
  for (let p = powers[0]; p <= powers[1]; p += width < 500 ? 2 : 1)
    drawing.append(
        svg('line', {class: 'axis', x1: x(p), x2: x(p), y1: bottom, y2: bottom + 5}),
        text(x(p), bottom + 20, {'text-anchor': 'middle', class: 'quiet'}, `1e${p}`.replace('-', '−')));
  drawing.append(text((left + right) / 2, bottom + 42, {'text-anchor': 'middle'}, across));
  for (const line of lines) {
    const points = line.points.map(
        ([p, v]) =>
            [x(p), !Number.isFinite(v) ? top : y(Math.max(lowest, Math.min(highest, v > 0 ? Math.log10(v) : lowest)))]);
    drawing.append(svg('polyline', {
      points: points.map((p) => p.join()).join(' '),
      fill: 'none',
      style: `stroke: ${css(line.color)}; stroke-width: 1.5`
    }));
    for (const [px, py] of points)
      drawing.append(svg('path', {
        d: line.mark,
        transform: `translate(${px} ${py})`,
        style: `stroke: ${css(line.color)}; stroke-width: 1.5`,
        fill: line.mark.includes('Z') ? css('--card') : 'none'
      }));
  }
  figure.replaceChildren(drawing);
}

function drawErrors(figure, precision) {
  const points = precision.points.filter((p) => Number.isFinite(numberOf(p.var)));
  if (points.length < 2) {
    figure.replaceChildren(el('p', {class: 'note'}, 'With a mean far from 0, this row does not fit into f32.'));
    return;
  }
  logChart(figure, {
    powers: [0, 8],
    lowest: -9,
    highest: 1,
    across: 'mean of the row, in spreads',
    label: 'the error of four methods against the shift',
    lines: kMethods.map(([name, title, mark], i) => ({
                          name: title,
                          mark,
                          color: `--series-${i}`,
                          points: points.map((p) => [p.power, numberOf(p.errors[name])])
                        }))
  });
  figure.append(
      el('ul', {class: 'chips', 'aria-label': 'legend'},
         kMethods.map(
             ([, title, mark], i) =>
                 el('li', {},
                    svg('svg', {width: 16, height: 14, 'aria-hidden': 'true', style: 'display: inline'}, svg('path', {
                          d: mark,
                          transform: 'translate(8 7)',
                          fill: 'none',
                          style: `stroke: ${css(`--series-${i}`)}; stroke-width: 2`
                        })),
                    ` ${title}`))),
      el('figcaption', {},
         'A point on the upper edge is an error of 10 or more, or no number at all. A point on the lower edge is no error (also if all numbers of the row have become equal, or eps outweighs them all).' +
             (points.length < precision.points.length ? ' Further out, the row does not fit into f32.' : '')));
}

function drawEps(figure, precision) {
  const points =
      precision.eps.map((p) => [Math.log10(numberOf(p.std)), numberOf(p.out)]).filter(([p]) => Number.isFinite(p));
  if (points.length < 2) {
    figure.replaceChildren(
        el('p', {class: 'note'}, 'All numbers of this row are equal, so it has no spread that could shrink.'));
    return;
  }
  const powers = [Math.floor(Math.min(...points.map(([p]) => p))), Math.ceil(Math.max(...points.map(([p]) => p)))];
  logChart(figure, {
    powers: powers[0] < powers[1] ? powers : [powers[0] - 1, powers[0] + 1],
    lowest: Math.min(-2, Math.floor(Math.log10(Math.min(...points.map(([, v]) => v).filter((v) => v > 0), 1)))),
    highest: 0,
    across: 'spread of the row',
    label: 'the spread of xhat against the spread of the row',
    lines: [{points, mark: kMethods[3][2], color: '--series-3'}]
  });
}
