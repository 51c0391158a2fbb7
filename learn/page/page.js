// Assembles the page, and redraws what a choice changes.
'use strict';

const kSections = [
  ['tensor', 'The tensor'], ['steps', 'The steps'], ['share', 'Who shares a mean'],
  ['precision', 'Where precision goes'], ['transformer', 'In a Transformer']
];

// changes: some of {row, stop, element}.
function choose(changes) {
  const next = {...chosen, ...changes}, last = stopsOf(next.row).length - 1;
  next.stop = Math.max(0, Math.min(last, next.stop));
  const changed = new Set(Object.keys(next).filter((key) => next[key] !== chosen[key]));
  if (!changed.size) return;
  Object.assign(chosen, next);
  draw(changed);
}

function draw(changed) {
  document.getElementById('row').value = chosen.row;
  if (changed.has('row'))
    drawTensor();
  else if (changed.has('element') && data.map)
    drawCellText();
  drawSteps(changed);
  if (changed.has('row')) {
    drawPrecision();
    drawTransformer();
  }
}

function drawAll() {
  if (data.slips) {
    drawSlips();
    return;
  }
  before = null;
  draw(new Set(['row', 'stop', 'element']));
  drawShare();
}

const kTypeWords = {
  f64: 'f64 (64-bit numbers with about sixteen digits)',
  f32: 'f32 (32-bit numbers with about seven digits)',
  bf16: 'bf16 (16-bit numbers with two or three digits)',
  f16: 'f16 (16-bit numbers with about three digits)'
};

const formulaText = () => `y = ${data.zero_centered && data.weight !== null ? '(1 + gamma)' : 'gamma'} * ${
                              isLayer ? '(x - mean) / sqrt(var + eps)' : 'x / sqrt(mean_square + eps)'}` +
    (isLayer || data.bias !== null ? ' + beta' : '');

function buildExplanation() {
  const norm = isLayer ? 'Layer norm' : 'RMS norm', shape = data.shapes;
  document.title = `${norm} of ${shapeText(shape.x)}, step by step`;
  data.rows.forEach((row, i) => shownRows.set(row.row, i));
  const given = (key, name) => data[key] === null ? `no ${name}` : `${name} given`;
  document.getElementById('top').append(
      el('h1', {}, `${norm}, step by step`),
      el('p', {},
         isLayer ?
             'Layer norm takes each row of numbers by itself: it subtracts the row\'s mean and divides by the row\'s spread (its standard deviation). Then it multiplies each column by gamma and adds beta, two lists of learned numbers.' :
             'RMS norm takes each row of numbers by itself and divides it by its root mean square, a typical size of its numbers. Then it multiplies each column by gamma, a list of learned numbers.',
         ' This keeps the numbers between the layers of a network at a steady size, whatever the input is.'),
      el('pre', {}, formulaText()),
      el('p', {},
         `Here x has the shape ${
             shapeText(shape.x)}, its sizes along the axes, which are counted from 0. It is held in ${
             kTypeWords[data.dtype]} and normalised over ${data.axes.length === 1 ? 'axis' : 'axes'} ${
             data.axes.join(', ')}; eps `,
         num('eps', kShortest),
         `; ${given('weight', 'gamma')}${
             data.zero_centered && data.weight !== null ?
                 ' (zero-centred: 1 is added)' :
                 ''}, ${given('bias', 'beta')}. Every number was computed by evenorm `,
         data.version, '; the page only draws them.'),
      el('nav', {'aria-label': 'parts of this page'},
         el('ul', {},
            kSections.map(([id, title], k) => el('li', {}, el('a', {href: `#${id}`}, `${k + 1}. ${title}`))))));
  document.getElementById('main').append(
      buildTensor(), buildSteps(), buildShare(), buildPrecision(), buildTransformer());
}

function start() {
  if (data.slips)
    buildSlips();
  else
    buildExplanation();
  document.getElementById('foot').append(
      el('p', {}, 'Made by ', el('span', {class: 'mono'}, 'evenorm explain --html'),
         '. It loads nothing and sends nothing.'));
  drawAll();
  let width = innerWidth, waiting = 0;
  addEventListener('resize', () => {
    if (innerWidth === width) return;
    width = innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(drawAll, 100);
  });
  for (const query of ['(prefers-color-scheme: dark)', 'print']) matchMedia(query).addEventListener('change', drawAll);
  addEventListener('beforeprint', () => {
    for (const details of document.querySelectorAll('details')) details.open = true;
  });
  document.body.dataset.ready = 'true';
}

start();
