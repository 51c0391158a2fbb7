// Puts the page together, and draws again what a choice changes.
'use strict';

const kSections = [['tensor', 'The tensor'], ['steps', 'The steps'], ['share', 'Who shares a mean'], ['precision', 'Where precision goes'], ['transformer', 'In a Transformer']];

// changes: some of {row, stop, element}.
function choose(changes) {
  const last = stopsOf(chosen.row).length - 1, next = { ...chosen, ...changes };
  next.stop = Math.max(0, Math.min(last, next.stop));
  const changed = new Set(Object.keys(next).filter((key) => next[key] !== chosen[key]));
  if (!changed.size) return;
  Object.assign(chosen, next);
  draw(changed);
}

function draw(changed) {
  document.getElementById('row').value = chosen.row;
  if (changed.has('row')) drawTensor();
  else if (changed.has('element') && data.map) drawCellText();
  drawSteps(changed);
  if (changed.has('row')) {
    drawPrecision();
    drawTransformer();
  }
}

function drawAll() {
  if (data.slips) { drawSlips(); return; }
  before = null;
  draw(new Set(['row', 'stop', 'element']));
  drawShare();
}

function buildExplanation() {
  const norm = isLayer ? 'Layer norm' : 'RMS norm', shape = data.shapes;
  document.title = `${norm} of ${shapeText(shape.x)}, step by step`;
  data.rows.forEach((row, i) => shownRows.set(row.row, i));
  const given = (key, name) => data[key] === null ? `no ${name}` : `${name} given`;
  document.getElementById('top').append(el('h1', {}, `${norm}, step by step`),
    el('p', {}, `On x of shape ${shapeText(shape.x)} in ${data.dtype}, normalised over ${data.axes.length === 1 ? 'axis' : 'axes'} ${data.axes.join(', ')}; eps `, num('eps', kShortest),
      `; ${given('weight', 'gamma')}${data.zero_centered && data.weight !== null ? ' (zero-centred: 1 is added)' : ''}, ${given('bias', 'beta')}. Every number was computed by evenorm `, data.version,
      '; the page only draws them.'),
    el('nav', { 'aria-label': 'parts of this page' }, el('ul', {}, kSections.map(([id, title], k) => el('li', {}, el('a', { href: `#${id}` }, `${k + 1}. ${title}`))))));
  document.getElementById('main').append(buildTensor(), buildSteps(), buildShare(), buildPrecision(), buildTransformer());
}

function start() {
  if (data.slips) buildSlips();
  else buildExplanation();
  document.getElementById('foot').append(el('p', {}, 'Made by ', el('span', { class: 'mono' }, 'evenorm explain --html'), '. It loads nothing and sends nothing.'));
  drawAll();
  let width = innerWidth, waiting = 0;
  addEventListener('resize', () => {
    if (innerWidth === width) return;
    width = innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(drawAll, 100);
  });
  for (const query of ['(prefers-color-scheme: dark)', 'print']) matchMedia(query).addEventListener('change', drawAll);
  addEventListener('beforeprint', () => { for (const details of document.querySelectorAll('details')) details.open = true; });
  document.body.dataset.ready = 'true';
}

start();
