// Who shares a mean: the same tensor under several norms, and the effect of one sample on another.
'use strict';

const kMostSamples = 4, kMostPositions = 4, kMostChannels = 8;

// The first and the last of n indices, at most `most`.
const someOf = (n, most) => n <= most ?
    Array.from({length: n}, (_, i) => i) :
    [...Array.from({length: most / 2}, (_, i) => i), ...Array.from({length: most / 2}, (_, i) => n - most / 2 + i)];

// The cells to draw: {samples, positions (over several axes), channels}.
function sharedCells() {
  const {batch_axis: batch, channel_axis: channel} = data.neighbours, shape = data.shapes.x;
  const between = shape.map((_, axis) => axis).filter((axis) => axis !== batch && axis !== channel);
  const sizes = between.map((axis) => shape[axis]);
  return {
    samples: someOf(shape[batch], kMostSamples),
    channels: someOf(shape[channel], kMostChannels),
    between,
    positions: someOf(product(sizes), kMostPositions).map((place) => indexOf(place, sizes))
  };
}

function cellIndex(cells, s, p, c) {
  const index = [];
  index[data.neighbours.batch_axis] = cells.samples[s];
  index[data.neighbours.channel_axis] = cells.channels[c];
  cells.between.forEach((axis, k) => {
    index[axis] = cells.positions[p][k];
  });
  return index;
}

// Elements with the same key are normalised together.
function groupOf(norm, index) {
  const channel = data.neighbours.channel_axis, size = data.shapes.x[channel];
  const key = index.filter((_, axis) => !norm.axes.includes(axis) && !(norm.channel_groups && axis === channel));
  return [...key, norm.channel_groups ? Math.floor(index[channel] / (size / norm.channel_groups)) : ''].join();
}

const pointed = {
  s: 0,
  p: 0,
  c: 0
};

function buildShare() {
  const section =
      el('section', {id: 'share', 'aria-labelledby': 'share-title'},
         el('h2', {id: 'share-title'}, '3. Who shares a mean'));
  if (!data.neighbours) {
    section.append(
        el('p', {class: 'note'}, data.neighbours_note ?? 'There is nothing to compare here.'),
        el('p', {},
           'Batch norm takes a mean for each feature over all samples; layer norm takes one for each row. With an x of two samples or more, such as "[[4 2 8] [1 5 3]]", this section shows both.'));
    return section;
  }
  const {batch_axis: batch, channel_axis: channel, amounts, changed_sample: changed, observed_sample: observed} =
      data.neighbours;
  const cells = sharedCells(), shape = data.shapes.x;
  const cut = cells.samples.length < shape[batch] || cells.channels.length < shape[channel] ||
      cells.positions.length < product(cells.between.map((axis) => shape[axis]));
  const slip = data.axes.includes(batch) ?
      [
        el('p', {class: 'warning'},
           'The chosen axes include the batch axis. So layer norm and RMS norm over them mix the samples as batch norm does, and change below as well.')
      ] :
      [];
  section.append(
      el('p', {},
         `Norms differ mainly in which numbers are normalised together. (RMS norm also subtracts no mean.) Here axis ${
             batch} counts the samples of a batch and axis ${channel} ` +
             `the features (channels). A block is a sample, a column a feature${
                 cells.between.length ? ', a line a position' : ''}. ` +
             'The cells with a dot are normalised together with the chosen cell, which has a ring.' +
             (cut ? ' Only the first and the last few of each axis are drawn.' : '')),
      ...slip,
      el('p', {class: 'quiet hint'}, 'Click a cell, or use the arrow keys (Page Up and Page Down: another sample).'),
      el('div', {
        class: 'five',
        id: 'five',
        tabindex: 0,
        role: 'group',
        'aria-label': 'which numbers are normalised together',
        onkeydown: (e) => shareKey(e, cells)
      }),
      el('h3', {}, 'Change one sample, watch another'),
      el('p', {},
         `Something is added to every number of sample ${changed}. How does the result for sample ${
             observed} change, whose own numbers stay the same?`));
  const range =
      el('input', {type: 'range', id: 'amount', min: 0, max: amounts.length - 1, value: 0, oninput: drawAmount});
  section.append(
      el('div', {class: 'bar'}, el('label', {}, `Added to sample ${changed} `, range),
         el('span', {id: 'amount-words', 'aria-live': 'polite'})),
      el('div', {class: 'scroll', tabindex: 0, role: 'group', 'aria-label': `the result for sample ${observed}`},
         el('table', {id: 'share-table'})),
      el('figure', {id: 'share-line'}),
      el('p', {class: 'quiet'},
         '"Never" means that not a single bit changes, whatever is added. Results are without gamma and beta, in f64, with the eps of this page. Group norm divides the features into equal parts. ' +
             'Batch norm is shown as in training; a trained network uses averages of mean and variance from training instead.'));
  return section;
}

function shareKey(event, cells) {
  const move = {
    ArrowRight: ['c', 1],
    ArrowLeft: ['c', -1],
    ArrowDown: ['p', 1],
    ArrowUp: ['p', -1],
    PageDown: ['s', 1],
    PageUp: ['s', -1]
  }[event.key];
  if (!move) return;
  event.preventDefault();
  const count = {s: cells.samples.length, p: cells.positions.length, c: cells.channels.length}[move[0]];
  pointed[move[0]] = Math.max(0, Math.min(count - 1, pointed[move[0]] + move[1]));
  drawShare();
}

function drawShare() {
  if (!data.neighbours) return;
  const cells = sharedCells();
  document.getElementById('five').replaceChildren(...data.neighbours.norms.map((norm) => {
    const lit = groupOf(norm, cellIndex(cells, pointed.s, pointed.p, pointed.c));
    return el('figure', {}, el('h3', {}, norm.title), blocks(cells, norm, lit), el('figcaption', {}, norm.words));
  }));
  drawAmount();
}

function blocks(cells, norm, lit) {
  const count = [cells.samples.length, cells.positions.length, cells.channels.length], gap = 10;
  const across = count[0] > 2 ? 2 : count[0],
        size = Math.min(22, Math.floor((226 - gap * (across - 1)) / (across * count[2])));
  const width = count[2] * size, height = count[1] * size;
  const drawing = svg('svg', {
    width: across * (width + gap),
    height: Math.ceil(count[0] / across) * (height + gap),
    role: 'img',
    'aria-label': `${norm.title}: ${norm.words}`
  });
  for (let s = 0; s < count[0]; ++s)
    for (let p = 0; p < count[1]; ++p)
      for (let c = 0; c < count[2]; ++c) {
        const x = (s % across) * (width + gap) + c * size, y = Math.floor(s / across) * (height + gap) + p * size;
        const isLit = groupOf(norm, cellIndex(cells, s, p, c)) === lit,
              isChosen = s === pointed.s && p === pointed.p && c === pointed.c;
        const point = () => {
          Object.assign(pointed, {s, p, c});
          drawShare();
        };
        drawing.append(
            svg('rect', {x, y, width: size, height: size, fill: css(isLit ? '--accent' : '--faint'), onclick: point}));
        if (isLit)
          drawing.append(
              svg('circle',
                  {cx: x + size / 2, cy: y + size / 2, r: size / 7, fill: css('--card'), 'pointer-events': 'none'}));
        if (isChosen)
          drawing.append(svg('rect', {
            x: x + 1.5,
            y: y + 1.5,
            width: size - 3,
            height: size - 3,
            fill: 'none',
            style: `stroke: ${css('--warm')}; stroke-width: 3`,
            'pointer-events': 'none'
          }));
      }
  return drawing;
}

function drawAmount() {
  const k = Number(document.getElementById('amount').value), {norms, observed} = data.neighbours;
  document.getElementById('amount-words')
      .replaceChildren(...say`${num(`neighbours/amounts/${k}`)} × the spread of x (${num('neighbours/spread')})`);
  document.getElementById('amount').setAttribute('aria-valuetext', `${data.neighbours.amounts[k]} spreads`);
  const table = document.getElementById('share-table'),
        notation = notationOf(norms.flatMap((norm) => flat(norm.outputs[k])));
  table.replaceChildren(
      el('thead', {},
         el('tr', {}, el('th', {scope: 'col'}, 'norm'), el('th', {scope: 'col'}, 'changes?'),
            el('th', {scope: 'col', class: 'long'}, `largest change in sample ${data.neighbours.observed_sample}`),
            observed.map((index) => el('th', {scope: 'col'}, `y[${index.join(', ')}]`)))),
      el('tbody', {}, norms.map((norm, i) => {
        const moved = numberOf(norm.moved[k]), never = norm.moved.every((v) => v === 0);
        return el(
            'tr',
            {class: never    ? 'stays' :
                 moved === 0 ? null :
                               'moves'},
            el('th', {scope: 'row'}, norm.title),
            el('td', {class: 'moved'},
               never           ? 'never' :
                   moved === 0 ? 'not yet' :
                                 'yes'),
            el('td', {class: 'moved'}, num(`neighbours/norms/${i}/moved/${k}`)),
            observed.map((_, j) => el('td', {}, num(`neighbours/norms/${i}/outputs/${k}/${j}`, notation))));
      })));
  drawOutputs(k);
}

// One line for each norm: the observed numbers as dots, and their first positions as rings.
function drawOutputs(k) {
  const {norms} = data.neighbours, figure = document.getElementById('share-line'), width = widthOf(figure), gap = 46;
  const domain = domainOf(norms.flatMap((norm) => flat(norm.outputs))), scale = linear(domain, [14, width - 14]);
  const drawing = svg('svg', {
    width,
    height: norms.length * gap + 34,
    viewBox: `0 0 ${width} ${norms.length * gap + 34}`,
    role: 'img',
    'aria-label': 'the outputs of the observed sample under each norm, now and before'
  });
  norms.forEach((norm, i) => {
    const y = i * gap + 34, first = norm.outputs[0].map(numberOf), now = norm.outputs[k].map(numberOf);
    drawing.append(
        text(14, y - 16, {}, norm.title), svg('line', {class: 'grid', x1: 14, x2: width - 14, y1: y, y2: y}));
    first.forEach((v, j) => {
      if (!Number.isFinite(v) || !Number.isFinite(now[j])) return;
      drawing.append(
          svg('line', {class: 'residual', x1: scale(v), x2: scale(now[j]), y1: y, y2: y}),
          svg('circle', {cx: scale(v), cy: y, r: 6, fill: 'none', class: 'axis'}),
          svg('circle', {cx: scale(now[j]), cy: y, r: 4.5, class: 'dot'}));
    });
  });
  drawing.append(axis(domain, scale, norms.length * gap + 6, width));
  figure.replaceChildren(drawing);
}
