// The steps of the chosen row: the content of each stop of the slider.
'use strict';

const isLayer = data.kind === 'layer';
const rowPath = () => `rows/${chosen.row}`;
const innerShape = () => data.shapes.normalized_shape;
const rowSize = () => product(innerShape());

function stopsOf(row) {
  const path = `rows/${row}`, stop = (name, at, step = {}) => ({
                                name,
                                path: at,
                                title: step.title ?? kTitles[name],
                                rule: step.rule,
                                formulas: step.formulas ?? [],
                                scalar: step.shape?.length === 0,
                                rounded: step.rounded !== undefined && at.replace(/exact$/, 'rounded')
                              });
  const steps = (base) =>
      at(`${base}/steps`).map((step, k) => ({...stop(step.name, `${base}/steps/${k}/exact`, step), number: k + 1}));
  const stops = [stop('x', `${path}/x`), ...steps(path), stop('own', `${path}/y`)];
  const gradient = at(`${path}/gradient`);
  if (!gradient) return stops;
  stops.push(stop('dy', `${path}/gradient/dy`), ...steps(`${path}/gradient`), stop('own-dx', `${path}/gradient/dx`));
  if (gradient.trial) stops.push(stop('trial', `${path}/gradient/trial`));
  return stops;
}

const stopNamed = (name) => stopsOf(chosen.row).find((stop) => stop.name === name);
const pathOf = (name) => stopNamed(name)?.path;
const elementOf = (name) => elementPath(pathOf(name), chosen.element, innerShape());
const valuesOf = (name) => listAt(pathOf(name));

// The numbers on the line at a stop.
function onTheLine(stop) {
  const base = isLayer ? 'deviation' : 'x';
  const of = {
    mean: 'x',
    'var': base,
    std: base,
    mean_square: base,
    rms: base,
    sigma: base,
    mean_g: 'g',
    mean_g_xhat: 'g'
  }[stop.name];
  return of ?? stop.name;
}

function marksAt(name) {
  const one = (n) => numberOf(at(pathOf(n))), check = `${rowPath()}/check/expected`;
  const plain = isLayer ? 'std' : 'rms';
  const marks = {
    mean: () => [{at: one('mean'), path: pathOf('mean'), name: 'mean'}],
    deviation: () => [{at: 0, name: 'the mean is 0'}],
    'var': () => [{at: 0, band: one('std'), path: pathOf('var'), name: 'variance'}],
    mean_square: () => [{at: 0, band: one('rms'), path: pathOf('mean_square'), name: 'mean square'}],
    sigma: () => [{at: 0, band: one('sigma'), path: pathOf('sigma'), name: 'sigma'}],
    [plain]: () => [{at: 0, band: one(plain), path: pathOf(plain), name: plain}],
    xhat: () =>
        [...(isLayer ? [{at: 0, name: 'mean 0'}] : []),
         {at: 0, band: Math.sqrt(numberOf(at(check))), path: check, name: isLayer ? 'variance' : 'mean square'}],
    dx: () => isLayer ? [{at: 0, name: 'the sum is 0'}] : [],
  }[name];
  return marks ? marks() : [];
}

// The scale of a step. All steps share one if it shows them all, so that the numbers visibly move.
function domainAt(name) {
  const family = ['x', 'deviation', 'xhat', 'y', 'own'].includes(name) ? ['x', 'deviation', 'xhat', 'y'] : ['dy', 'g'];
  const values = (n) => pathOf(n) ? valuesOf(n) : [];
  const own = bulkOf(values(name), [0].filter(() => name !== 'x'));
  if (![...family, 'own'].includes(name)) return [own, false];
  const each = family.filter((n) => pathOf(n)).map((n) => bulkOf(values(n)));
  const spans = each.map(([a, b]) => b - a), plain = domainOf(each.flat(), [0]);
  // Includes the strips if that costs little width.
  const strip = numberOf(at(pathOf(isLayer ? 'std' : 'rms'))),
        wide = domainOf(plain, [-strip, strip, -1, 1].slice(family[0] === 'x' ? 0 : 4));
  const all = wide[1] - wide[0] < 3 * (plain[1] - plain[0]) ? wide : plain;
  return (all[1] - all[0]) < 25 * Math.min(...spans) ? [all, true] : [own, false];
}

function buildSteps() {
  const section = el('section', {id: 'steps', 'aria-labelledby': 'steps-title'});
  const range = el('input', {
    type: 'range',
    id: 'step',
    min: 0,
    max: stopsOf(0).length - 1,
    value: 0,
    step: 1,
    'aria-describedby': 'step-name',
    oninput: () => {
      stopPlaying();
      choose({stop: Number(range.value)});
    }
  });
  const element = el('input', {
    type: 'number',
    id: 'element',
    min: 0,
    max: rowSize() - 1,
    value: 0,
    onchange: () => {
      choose({element: Math.max(0, Math.min(rowSize() - 1, Math.round(Number(element.value) || 0)))});
      element.value = chosen.element;
    }
  });
  section.append(
      el('h2', {id: 'steps-title'}, '2. The steps, on ', el('span', {id: 'row-name'})), el('div', {id: 'row-notes'}),
      el('div', {class: 'bar'}, el('label', {}, 'Step ', range),
         el('button', {id: 'back', onclick: () => goBy(-1)}, 'Back'),
         el('button', {id: 'next', onclick: () => goBy(1)}, 'Next'),
         el('button', {id: 'play', onclick: togglePlaying}, 'Play'), el('label', {}, 'Chosen number ', element)),
      el('ol', {class: 'stops', 'aria-label': 'all steps'}), el('figure', {id: 'line'}),
      el('p', {id: 'line-note', class: 'quiet'}),
      el('div', {id: 'stop'}, el('h3', {id: 'step-name', 'aria-live': 'polite'}), el('div', {id: 'step-words'})),
      el('h3', {id: 'numbers-title'}), el('div', {id: 'step-numbers'}), el('h3', {}, 'All steps in words'),
      el('details', {id: 'in-words'}, el('summary', {}, 'every step of this row, its rule and its numbers'),
         el('div', {})));
  return section;
}

// Writes the text of every step, for reading and printing.
function inWords() {
  const of = (steps) => steps.flatMap(
      (step, k) => [el('h4', {}, `${k + 1}. ${step.title}`), el('pre', {}, [step.rule, ...step.formulas].join('\n'))]);
  const row = data.rows[chosen.row];
  document.querySelector('#in-words div')
      .replaceChildren(
          ...of(row.steps), ...(row.gradient ? [el('h4', {}, 'The backward pass'), ...of(row.gradient.steps)] : []));
}

let playing = 0;

function goBy(steps) {
  stopPlaying();
  choose({stop: chosen.stop + steps});
}

function stopPlaying() {
  clearTimeout(playing);
  playing = 0;
  document.getElementById('play').textContent = 'Play';
}

function togglePlaying() {
  if (playing) {
    stopPlaying();
    return;
  }
  const atEnd = () => chosen.stop >= stopsOf(chosen.row).length - 1;
  const next = () => {
    if (atEnd()) {
      stopPlaying();
      return;
    }
    choose({stop: chosen.stop + 1});
    playing = setTimeout(next, 2200);
  };
  if (atEnd()) choose({stop: 0});
  document.getElementById('play').textContent = 'Pause';
  playing = setTimeout(next, 500);
}

let drawnLine = '';

function drawSteps(changed) {
  const stops = stopsOf(chosen.row), stop = stops[chosen.stop], row = data.rows[chosen.row];
  document.getElementById('row-name').textContent =
      data.shapes.rows.length ? `row [${row.index.join(', ')}]` : 'the row';
  document.getElementById('row-notes')
      .replaceChildren(...[...row.notes, ...(row.gradient?.notes ?? [])].map((t) => el('p', {class: 'note'}, t)));
  Object.assign(document.getElementById('step'), {max: stops.length - 1, value: chosen.stop});
  document.getElementById('step').setAttribute('aria-valuetext', `${stop.name}: ${stop.title}`);
  document.getElementById('back').setAttribute('aria-disabled', chosen.stop === 0);
  document.getElementById('next').setAttribute('aria-disabled', chosen.stop === stops.length - 1);
  document.getElementById('element').value = chosen.element;
  document.querySelector('#steps .stops')
      .replaceChildren(...stops.map(
          (s, k) =>
              el('li', k === chosen.stop ? {class: 'now', 'aria-current': 'step'} : {},
                 el('a', {
                   href: '#steps',
                   onclick: (event) => {
                     event.preventDefault();
                     stopPlaying();
                     choose({stop: k});
                   },
                   tabindex: -1
                 },
                    s.name))));
  document.getElementById('step-name').textContent = stop.number ? `${stop.number}. ${stop.title}` : stop.title;
  document.getElementById('step-words')
      .replaceChildren(
          el('p', {}, kWhy[stop.name]()), stop.rule ? el('pre', {class: 'rule'}, stop.rule) : '',
          stop.formulas.length ? el('pre', {}, stop.formulas.join('\n')) : '', ...wayOf(stop));
  drawPicture(stop, changed);
  drawNumbers(stop);
  if (changed.has('row')) inWords();
}

function drawPicture(stop, changed) {
  const figure = document.getElementById('line'), note = document.getElementById('line-note');
  figure.hidden = stop.name === 'trial';
  note.textContent = '';
  if (['mean_g', 'mean_g_xhat', 'dx'].includes(stop.name)) {
    before = null;
    const mean = pathOf('mean_g') ? numberOf(at(pathOf('mean_g'))) : 0;
    drawScatter(figure, {
      xhat: valuesOf('xhat'),
      g: valuesOf('g'),
      mean,
      slope: numberOf(at(pathOf('mean_g_xhat'))),
      shown: stop.name === 'mean_g' ? 0 : numberOf(at(pathOf('mean_g_xhat'))),
      residual: stop.name === 'dx',
      label: `g against xhat: ${stop.title}`
    });
    return;
  }
  if (stop.name === 'trial') return;
  const name = onTheLine(stop), values = valuesOf(name), [domain, shared] = domainAt(name);
  const outside = values.filter((v) => Number.isFinite(v) && (v < domain[0] || v > domain[1])).length;
  const missing = values.filter((v) => !Number.isFinite(v)).length;
  const marks = marksAt(stop.name), cut = marks.some((mark) => mark.band > Math.min(-domain[0], domain[1]));
  drawLine(
      figure, {values, domain, marks, label: `${stop.title}: the numbers of ${name} on a line`},
      changed.has('stop') && drawnLine !== name);
  drawnLine = name;
  note.textContent = [
    `On the line: ${name}.`,
    shared ? 'The scale is the same at all steps, so the numbers visibly move.' : 'This step has its own scale.',
    values.length > kMostDots ? `${kMostDots} of ${commas(values.length)} numbers have a dot; the bars count all.` : '',
    outside ? `${counted(outside, 'number lies', 'numbers lie')} beyond the ends of the line.` : '',
    cut ? 'The strip is wider than the line.' : '',
    missing ? `${counted(missing, 'number is', 'numbers are')} not finite and cannot be drawn.` : ''
  ].filter(Boolean).join(' ');
}

// The formula of this stop for the chosen number.
function wayOf(stop) {
  const i = `[${indexOf(chosen.element, innerShape()).join(', ')}]`,
        brief = (path) => num(path, {...notationOf([numberOf(at(path))]), brief: true});
  const operand = (path) => numberOf(at(path)) < 0 ? ['(', brief(path), ')'] : brief(path);
  const n = (name) => operand(elementOf(name)), s = (name) => operand(pathOf(name)),
        result = () => num(elementOf(stop.name));
  const parameter = (key, otherwise) =>
      data[key] === null ? otherwise : operand(elementPath(key, chosen.element, innerShape()));
  const gamma = () =>
      data.zero_centered && data.weight !== null ? ['(1 + ', parameter('weight'), ')'] : [parameter('weight', '1')];
  const base = isLayer ? 'deviation' : 'x';
  const ways = {
    deviation: () => say`deviation${i} = x${i} - mean = ${n('x')} - ${s('mean')} = ${result()}`,
    xhat: () => say`xhat${i} = ${base + i} / sigma = ${n(base)} / ${s('sigma')} = ${result()}`,
    y: () => say`y${i} = gamma * xhat + beta = ${gamma()} * ${n('xhat')} + ${parameter('bias', '0')} = ${result()}`,
    g: () => say`g${i} = dy * gamma = ${n('dy')} * ${gamma()} = ${result()}`,
    dx: () => isLayer ? say`dx${i} = (g - mean(g) - xhat * mean(g * xhat)) / sigma = (${n('g')} - ${s('mean_g')} - ${
                            n('xhat')} * ${s('mean_g_xhat')}) / ${s('sigma')} = ${result()}` :
                        say`dx${i} = (g - xhat * mean(g * xhat)) / sigma = (${n('g')} - ${n('xhat')} * ${
                            s('mean_g_xhat')}) / ${s('sigma')} = ${result()}`,
  };
  return ways[stop.name] ?
      [el('p', {}, el('b', {}, 'The chosen number: '), el('span', {class: 'mono'}, ways[stop.name]()))] :
      [];
}

const kFirst = 48;

// The paths of lists that show all their numbers.
const opened = new Set();

// A list of a row's numbers at `path`: all of them, or the first ones and the chosen one.
function numberList(path, rounded, label, few = kFirst) {
  const shape = innerShape(), n = rowSize(), most = opened.has(path) ? n : few, notation = notationOf(listAt(path));
  const places = Array.from({length: Math.min(n, most)}, (_, i) => i);
  if (chosen.element >= places.length) places.push(chosen.element);
  const list = el('ul', {class: 'numbers', 'aria-label': label});
  const names = places.map((i) => `[${indexOf(i, shape).join(', ')}]`);
  places.forEach(
      (i, k) => list.append(
          el('li', {class: i === chosen.element && 'chosen', 'data-element': i}, el('span', {class: 'index'}, names[k]),
             num(elementPath(path, i, shape), notation),
             rounded ? el('span', {class: 'hand'}, 'rounded: ', num(elementPath(rounded, i, shape))) : null)));
  list.addEventListener('click', (event) => {
    const item = event.target.closest('li');
    if (item) choose({element: Number(item.dataset.element)});
  });
  if (n <= most) return [list];
  return [
    list,
    el('button', {
      class: 'all',
      id: document.getElementById('all-numbers') ? null : 'all-numbers',
      onclick: (event) => {
        opened.add(path);
        const [whole] = numberList(path, rounded, label);
        event.target.remove();
        list.replaceWith(whole);
        whole.tabIndex = -1;
        whole.focus();
      }
    },
       `All ${commas(n)} numbers`)
  ];
}

function drawNumbers(stop) {
  const box = document.getElementById('step-numbers'), heading = document.getElementById('numbers-title');
  box.replaceChildren();
  heading.textContent = stop.name === 'trial' ? 'L above and below' :
      stop.scalar                             ? 'The number' :
                                                `The numbers: shape ${shapeText(innerShape())}`;
  if (stop.name === 'trial') {
    box.append(...trialWords());
    return;
  }
  if (stop.scalar) {
    box.append(
        el('p', {class: 'mono'}, `${stop.name} = `, num(stop.path),
           ...(stop.rounded ? [', with every step rounded ', num(stop.rounded)] : [])));
    return;
  }
  box.append(...numberList(stop.path, stop.rounded, stop.title));
  if (stop.name === 'own') box.append(...ownWords());
  if (stop.name === 'own-dx') box.append(...ownGradientWords());
  if (['dgamma', 'dbeta'].includes(stop.name)) {
    box.append(
        el('h4', {}, `Over the ${counted(data.gradient_sums.rows, 'row', 'rows')} on this page, exactly`),
        ...numberList(`gradient_sums/exact_${stop.name}`, null, `exact ${stop.name} over rows`),
        el('h4', {}, 'and as evenorm computes it'),
        ...numberList(`gradient_sums/${stop.name}`, null, `${stop.name} over rows`));
  }
}
