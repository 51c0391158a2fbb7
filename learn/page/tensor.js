// The tensor as a heat map, its axes, and the chosen row.
'use strict';

// The user's choice: a row of data.rows, a stop of the steps, an element of the row.
const chosen = {
  row: 0,
  stop: 0,
  element: 0
};

const together = (axis) => data.axes.includes(axis);

// For an element of x: its row, counted over the leading axes, and its place in the row.
function rowAndPlace(index) {
  const leading = index.filter((_, axis) => !together(axis)), inner = data.axes.map((axis) => index[axis]);
  return [placeOf(leading, data.shapes.rows), placeOf(inner, data.shapes.normalized_shape)];
}

// The inverse: the index in x of an element of a row on the page.
function fullIndex(row, element) {
  const inner = indexOf(element, data.shapes.normalized_shape);
  let leading = 0;
  return data.shapes.x.map(
      (_, axis) => together(axis) ? inner[data.axes.indexOf(axis)] : data.rows[row].index[leading++]);
}

// A slice has the elements along the last two axes, for fixed leading axes.
function slices() {
  const shape = data.shapes.x, inner = shape.slice(-2), outer = shape.slice(0, -2);
  const [lines, columns] = inner.length === 2 ? inner : [1, inner[0]];
  // A single long line is broken so that it fits.
  const broken = inner.length === 1 && columns > 64 ? Math.min(columns, 128) : columns;
  const size = lines * columns;
  return {
    count: product(outer),
    columns: broken,
    lines: Math.ceil(size / broken),
    size,
    name: (s) => outer.length ? `[${[...indexOf(s, outer), ':', ':'].join(', ')}]` : '',
  };
}

function decoded(base64) {
  return Int8Array.from(atob(base64), (c) => c.charCodeAt(0));
}

function buildTensor() {
  const section = el('section', {id: 'tensor', 'aria-labelledby': 'tensor-title'});
  section.append(el('h2', {id: 'tensor-title'}, '1. The tensor, and what a row is'), ...tensorWords());
  section.append(
      el('ul', {class: 'chips', 'aria-label': 'axes of x'},
         data.shapes.x.map(
             (size, axis) =>
                 el('li', {class: together(axis) && 'together'},
                    `axis ${axis}: ${commas(size)}${together(axis) ? ', normalised' : ''}`))));
  const select =
      el('select', {id: 'row', onchange: () => choose({row: Number(select.value), element: 0})},
         data.rows.map(
             (row, i) => el('option', {value: i}, data.shapes.rows.length ? `[${row.index.join(', ')}]` : 'the row')));
  section.append(el(
      'div', {class: 'bar'}, el('label', {}, 'Row ', select),
      el('span', {class: 'quiet'},
         data.rows.length < data.rows_total ?
             `${commas(data.rows.length)} of ${commas(data.rows_total)} rows are on this page (--rows selects others)` :
             counted(data.rows_total, 'row', 'rows'))));
  if (data.map)
    section.append(...buildMap());
  else
    section.append(el('p', {class: 'note'}, 'x is too large to be drawn whole. The rows below are complete.'));
  return section;
}

function tensorWords() {
  const n = product(data.shapes.normalized_shape), axes = data.axes.join(' and ');
  const words = [
    el('p', {},
       `x has the shape ${shapeText(data.shapes.x)}. The norm takes together the numbers along ` +
           `${data.axes.length === 1 ? 'axis' : 'axes'} ${axes}: ${counted(n, 'number', 'numbers')}, a `,
       el('b', {}, 'row'),
       (data.rows_total === 1 ? '. It gets ' : `. Each of the ${commas(data.rows_total)} rows gets `) +
           (data.kind === 'layer' ? 'its own mean and spread' : 'its own root mean square') +
           ', computed from its own numbers only.' +
           (data.rows_total === 1 ?
                '' :
                ` So no row${
                    together(data.neighbours?.batch_axis ?? 0) ? '' : ', and no sample of a batch,'} affects another.`))
  ];
  if (data.warnings.length) words[0].lastChild.replaceWith('. Each row gets its own statistics.');
  return [
    ...words, ...data.warnings.map((t) => el('p', {class: 'warning'}, el('b', {}, 'Warning: '), t)),
    ...data.notes.map((t) => el('p', {class: 'note'}, t))
  ];
}

function buildMap() {
  const map = el('div', {
    id: 'map',
    tabindex: 0,
    role: 'group',
    'aria-describedby': 'map-help',
    'aria-label': `x as a map of colours, ${data.shapes.x.join(' by ')}`,
    onkeydown: mapKey,
    onclick: mapClick
  });
  const ramp = el('canvas', {width: 128, height: 14, 'aria-hidden': 'true'});
  const {centre, scale} = data.map;
  const tick = (v) => format(v, notationOf([centre, scale]));
  return [
    map, el('p', {id: 'cell', class: 'quiet'}),
    el('div', {class: 'ramp'}, el('span', {}, `${tick(centre - scale)} or less`), ramp,
       el('span', {}, `${tick(centre + scale)} or more`), el('span', {}, 'not a number: purple')),
    el('p', {id: 'map-help', class: 'quiet hint'},
       'The frame shows the chosen row, whose numbers share statistics. ' +
           (data.rows.length > 1 ? 'Click a number, or use the arrow keys here, to choose another row.' : ''))
  ];
}

// The position on the page of each row, by row number.
const shownRows = new Map();

function mapKey(event) {
  const step = {ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1}[event.key];
  const target = event.key === 'Home' ? 0 :
      event.key === 'End'             ? data.rows.length - 1 :
      step                            ? chosen.row + step :
                                        undefined;
  if (target === undefined || data.rows.length === 1) return;
  event.preventDefault();
  choose({row: Math.max(0, Math.min(data.rows.length - 1, target)), element: 0});
}

function mapClick(event) {
  const slice = event.target.closest('.slice');
  if (!slice) return;
  let place;
  if (event.target.dataset.place) {
    place = Number(event.target.dataset.place);
  } else if (event.target.tagName === 'CANVAS') {
    const all = slices(), box = event.target.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - kFrame) / (box.width - 2 * kFrame) * all.columns);
    const line = Math.floor((event.clientY - box.top - kFrame) / (box.height - 2 * kFrame) * all.lines);
    if (column >= 0 && column < all.columns && line >= 0 && line * all.columns + column < all.size)
      place = Number(slice.dataset.slice) * all.size + line * all.columns + column;
  }
  if (place === undefined) return;
  const [row, element] = rowAndPlace(indexOf(place, data.shapes.x));
  if (shownRows.has(row))
    choose({row: shownRows.get(row), element});
  else
    document.getElementById('cell').textContent =
        `Row ${row} is not on this page: use evenorm explain ... --rows ${row}.`;
}

let levels = null, fewSlices = true;
const kMostSlices = 12;

// The first slices and, if they are few, those of the chosen row.
function shownSlices(all, lit) {
  const some = new Set(Array.from({length: kMostSlices}, (_, s) => s));
  for (const place of lit)
    if (some.size < 2 * kMostSlices) some.add(Math.floor(place / all.size));
  return [...some].sort((a, b) => a - b);
}

function drawTensor() {
  if (!data.map) return;
  levels ??= decoded(data.map.levels);
  const all = slices(), map = document.getElementById('map'), width = widthOf(map) - 12;
  const longest = levels.length <= 240 ? Math.max(...cellTexts().map((t) => t.length)) : 0,
        cell = Math.max(30, 8.6 * longest + 12);
  const small = levels.length <= 240 && Math.floor(width / all.columns) >= cell + 2;
  const lit = new Set(Array.from(
      {length: product(data.shapes.normalized_shape)}, (_, i) => placeOf(fullIndex(chosen.row, i), data.shapes.x)));
  const isLit = (place) => lit.has(place);
  const first =
      fewSlices && all.count > kMostSlices ? shownSlices(all, lit) : Array.from({length: all.count}, (_, s) => s);
  map.replaceChildren(...first.map((s) => {
    const cells = small ? gridSlice(s, all, isLit, cell) : canvasSlice(s, all, isLit, width);
    return el('figure', {class: 'slice', 'data-slice': s}, cells, all.name(s) && el('figcaption', {}, all.name(s)));
  }));
  if (first.length < all.count)
    map.append(
        el('button', {
          onclick: () => {
            fewSlices = false;
            drawTensor();
            map.focus();
          }
        },
           `All ${commas(all.count)} slices`));
  drawCellText();
  const ramp = document.querySelector('.ramp canvas').getContext('2d');
  for (let i = 0; i < 128; ++i) {
    ramp.fillStyle = rgb(colour(i / 63.5 - 1));
    ramp.fillRect(i, 0, 1, 14);
  }
}

const levelColour = (level) => colour(level === -128 ? NaN : level / 127);

const cellNotation = () => notationOf(data.rows.flatMap((row) => flat(row.x)));
const cellTexts = () => data.rows.flatMap((row) => flat(row.x)).map((v) => format(v, cellNotation()));

// A slice with few numbers, which are written into the cells.
function gridSlice(s, all, isLit, width) {
  const grid =
      el('div', {class: 'cells', style: `grid-template-columns: repeat(${all.columns}, ${Math.ceil(width)}px)`});
  const notation = cellNotation();
  for (let i = 0; i < all.size; ++i) {
    const place = s * all.size + i, back = levelColour(levels[place]);
    const [row, element] = rowAndPlace(indexOf(place, data.shapes.x));
    const cell = el(
        'div',
        {class: isLit(place) && 'lit', 'data-place': place, style: `background: ${rgb(back)}; color: ${inkOn(back)}`});
    if (shownRows.has(row)) {
      cell.append(num(elementPath(`rows/${shownRows.get(row)}/x`, element, data.shapes.normalized_shape), notation));
      cell.firstChild.dataset.place = place;
    }
    grid.append(cell);
  }
  return grid;
}

const kFrame = 4;  // pixels around a slice, for the frame of cells at its edge

// A slice with many numbers, shown only as colours.
function canvasSlice(s, all, isLit, width) {
  const across = all.count === 1 || width < 500 ? 1 : all.count === 2 || all.columns > 100 ? 2 : Math.min(4, all.count);
  const room = Math.floor((width - 16 * (across - 1)) / across) - 2 * kFrame,
        shownWidth = Math.min(22 * all.columns, room);
  const height = Math.max(14, Math.round(Math.min(Math.max(shownWidth / all.columns, 3) * all.lines, 420)));
  const ratio = window.devicePixelRatio || 1;
  const canvas = el('canvas', {
    width: Math.round((shownWidth + 2 * kFrame) * ratio),
    height: Math.round((height + 2 * kFrame) * ratio),
    'aria-hidden': 'true',
    style: `width: ${shownWidth + 2 * kFrame}px; height: ${height + 2 * kFrame}px`
  });
  const pixels = new ImageData(all.columns, all.lines);
  const colours = Array.from({length: 256}, (_, i) => [...levelColour(i - 128), 255]);
  for (let i = 0; i < all.size; ++i) pixels.data.set(colours[levels[s * all.size + i] + 128], 4 * i);
  const plain = el('canvas', {width: all.columns, height: all.lines});
  plain.getContext('2d').putImageData(pixels, 0, 0);
  const context = canvas.getContext('2d');
  context.imageSmoothingEnabled = false;
  context.drawImage(plain, kFrame * ratio, kFrame * ratio, shownWidth * ratio, height * ratio);
  frameLit(context, s, all, isLit, shownWidth * ratio / all.columns, height * ratio / all.lines, ratio);
  return canvas;
}

// Frames the chosen row's cells from outside, first light, then dark, to be visible on all colours.
function frameLit(context, s, all, isLit, cellWidth, cellHeight, ratio) {
  const edge = kFrame * ratio / 2,
        lit = (line, column) => line >= 0 && line < all.lines && column >= 0 && column < all.columns &&
      line * all.columns + column < all.size && isLit(s * all.size + line * all.columns + column);
  for (const [grow, style] of [[2 * edge, '#fff'], [edge, '#000']]) {
    context.fillStyle = style;
    for (let line = 0; line < all.lines; ++line) {
      for (let column = 0; column < all.columns; ++column) {
        if (!lit(line, column)) continue;
        const x = 2 * edge + column * cellWidth, y = 2 * edge + line * cellHeight, wide = cellWidth + 2 * grow,
              high = cellHeight + 2 * grow;
        if (!lit(line - 1, column)) context.fillRect(x - grow, y - grow, wide, grow);
        if (!lit(line + 1, column)) context.fillRect(x - grow, y + cellHeight, wide, grow);
        if (!lit(line, column - 1)) context.fillRect(x - grow, y - grow, grow, high);
        if (!lit(line, column + 1)) context.fillRect(x + cellWidth, y - grow, grow, high);
      }
    }
  }
}

function drawCellText() {
  const shape = data.shapes.normalized_shape, index = fullIndex(chosen.row, chosen.element);
  document.getElementById('cell').replaceChildren(...say`The chosen number: x[${index.join(', ')}] = ${
      num(elementPath(`rows/${chosen.row}/x`, chosen.element, shape))}`);
}
