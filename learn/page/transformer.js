// The two positions of the norm in a Transformer block, and the norm's input on this page.
'use strict';

// From bottom to top, as is usual in such drawings: [kind, words].
const kPlaces = {
  post: {
    title: 'Post-norm (2017): after the sum',
    parts: [['block', 'attention'], ['sum'], ['norm', 'norm 1'], ['block', 'feed-forward'], ['sum'], ['norm', 'norm 2']]
  },
  pre: {
    title: 'Pre-norm (GPT-2 and most since): before each part',
    parts: [
      ['norm', 'norm 1'], ['block', 'attention'], ['sum'], ['norm', 'norm 2'], ['block', 'feed-forward'], ['sum'],
      ['norm', 'last norm']
    ]
  },
};

const kNormWords = {
  'post norm 1': `x + attention(x) is normalised: every block brings the stream back to ${
                     isLayer ? 'mean 0 and spread 1, then scales it by gamma and shifts it by beta' :
                               'a root mean square of 1, then scales it by gamma'}. ` +
      'Gradients pass through every norm on their way back, ' +
      'so deep post-norm stacks need a slow start (warm-up).',
  'post norm 2':
      'The sum with the feed-forward part is normalised as well, so the block\'s output is normalised. No last norm is needed.',
  'pre norm 1':
      'Only the input of attention is normalised; the stream beside it is unchanged. Gradients flow back along it unhindered.',
  'pre norm 2':
      'Only the input of the feed-forward part is normalised. The stream grows from block to block, because every part adds to it.',
  'pre last norm':
      'After the last block, the stream has not been normalised yet. It is normalised once before the output is computed.',
};

function buildTransformer() {
  const shape = data.shapes.x, three = shape.length === 3;
  const section = el(
      'section', {id: 'transformer', 'aria-labelledby': 'transformer-title'},
      el('h2', {id: 'transformer-title'}, '5. In a Transformer'),
      el('p', {},
         'A Transformer keeps one vector of features for each position of each sample: the residual stream, the thick line. Attention and feed-forward parts read from it and add to it, dozens of times. Norms keep their inputs at a steady size, so that deep stacks can be trained. The norm has one of two positions. ' +
             'Point at a norm, or reach it with the Tab key, to see its formula.'));
  const features = data.axes.length === 1 && data.axes[0] === shape.length - 1;
  if (three && !features)
    section.append(
        el('p', {}, 'In a Transformer, the norm is over the features only, the last axis; this page uses other axes.'));
  if (three && features)
    section.append(
        el('p', {},
           `The x of this page could be such a stream: ${shapeText(shape)}. All of it goes through every norm, ` +
               `${counted(data.rows_total, 'row', 'rows')} of ${
                   counted(product(data.shapes.normalized_shape), 'number', 'numbers')}, each row by itself.`));
  section.append(
      el('div', {class: 'columns'},
         Object.entries(kPlaces).map(
             ([key, place]) => el('figure', {}, el('h3', {}, place.title), blockDrawing(key, place, three)))),
      el('div', {id: 'norm-words', 'aria-live': 'polite'}));
  return section;
}

function blockDrawing(key, {title, parts}, three) {
  const width = 290, step = 56, height = parts.length * step + 104, stream = 70, middle = 190;
  const drawing = svg('svg', {width, height, viewBox: `0 0 ${width} ${height}`, role: 'group', 'aria-label': title});
  const y = (k) => height - 62 - (k + 0.5) * step,
        box = (k, words, kind, more = {}) =>
            svg('g', {class: kind === 'norm' ? 'norm' : 'part', ...more},
                svg('rect',
                    {class: `block ${kind}`, x: (more.x ?? middle) - 64, y: y(k) - 18, width: 128, height: 36, rx: 6}),
                text(more.x ?? middle, y(k) + 5, {'text-anchor': 'middle'}, words));
  drawing.append(
      svg('line', {class: 'stream', x1: stream, x2: stream, y1: height - 40, y2: 22}),
      svg('path', {class: 'arrow', d: `M${stream - 7},32L${stream},20L${stream + 7},32`}),
      text(stream + 12, height - 40, {}, three ? `x: ${shapeText(data.shapes.x)}` : 'x: (batch, sequence, features)'));
  parts.forEach(([kind, words], k) => {
    const onStream = kind === 'norm' && (key === 'post' || words === 'last norm');
    if (kind === 'sum') {
      drawing.append(
          svg('path', {class: 'arrow', d: `M${middle},${y(k - 1) - 18}V${y(k)}H${stream + 16}m8,-6l-8,6l8,6`}),
          svg('circle', {class: 'block', cx: stream, cy: y(k), r: 13}),
          text(stream, y(k) + 5, {'text-anchor': 'middle'}, '+'));
      return;
    }
    const name = `${key} ${words}`, show = () => drawNormWords(name);
    const more = kind === 'norm' ? {
      tabindex: 0,
      role: 'button',
      'aria-label': `${words}, ${title}`,
      'data-norm': name,
      onmouseenter: show,
      onfocus: show,
      onclick: show
    } :
                                   {};
    if (!onStream && (k === 0 || parts[k - 1][0] !== 'norm' || key === 'post'))
      drawing.append(svg('path', {class: 'arrow', d: `M${stream},${y(k) + 27}H${middle}V${y(k) + 20}m-6,8l6,-8l6,8`}));
    else if (!onStream)
      drawing.append(svg('path', {class: 'arrow', d: `M${middle},${y(k - 1) - 18}V${y(k) + 20}m-6,8l6,-8l6,8`}));
    drawing.append(box(k, words, kind, {...more, x: onStream ? stream : undefined}));
  });
  return drawing;
}

function drawNormWords(name) {
  for (const node of document.querySelectorAll('[data-norm]')) node.classList.toggle('now', node.dataset.norm === name);
  const row = data.rows[chosen.row], label = data.shapes.rows.length ? `row [${row.index.join(', ')}]` : 'the row';
  document.getElementById('norm-words')
      .replaceChildren(
          el('h3', {}, name.replace(/^(post|pre) /, (_, place) => `${place === 'post' ? 'Post' : 'Pre'}-norm, `)),
          el('p', {}, kNormWords[name]), el('pre', {}, formulaText()),
          el('p', {}, `If the x of this page enters the norm, ${label} has `,
             isLayer ? ['mean ', num(pathOf('mean')), ' and '] : [], 'sigma ', num(pathOf('sigma')),
             '. gamma and beta are the same for all rows. Each norm of the network has its own.'));
}

function drawTransformer() {
  drawNormWords(document.querySelector('[data-norm].now')?.dataset.norm ?? 'post norm 1');
}
