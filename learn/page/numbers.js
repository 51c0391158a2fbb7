// The page's numbers: found in the JSON by path and formatted by one function. No number is computed here.
'use strict';

const data = JSON.parse(document.getElementById('data').textContent);

// JSON has no NaN and no infinities, so these are strings.
const numberOf = (value) => typeof value === 'string' ? Number(value) : value;
const flat = (nested) => Array.isArray(nested) ? nested.flatMap(flat) : [numberOf(nested)];
const at = (path) => path.split('/').reduce((value, key) => value?.[key], data);
const listAt = (path) => flat(at(path));

function indexOf(place, shape) {
  const index = [];
  for (let axis = shape.length - 1; axis >= 0; --axis) {
    index.unshift(place % shape[axis]);
    place = Math.floor(place / shape[axis]);
  }
  return index;
}

const placeOf = (index, shape) => index.reduce((place, i, axis) => place * shape[axis] + i, 0);
const product = (sizes) => sizes.reduce((a, b) => a * b, 1);

// The path of element `place` of a tensor of `shape` that is stored as nested lists.
const elementPath = (path, place, shape) => [path, ...indexOf(place, shape)].join('/');

// The notation for numbers that are shown together: plain, with a number of decimals, or with a power of ten. It has
// enough decimals to distinguish them; rounding errors relative to the largest may show as 0.
function notationOf(values) {
  const finite = values.filter(Number.isFinite);
  const largest = finite.reduce((a, v) => Math.max(a, Math.abs(v)), 0);
  if (finite.every(Number.isInteger) && largest < 1e16) return {decimals: 0};
  const digits = data.decimals ?? 4, range = Math.max(...finite) - Math.min(...finite),
        least = Math.min(range || largest, largest);
  if (largest < 1e-4 || largest >= 1e7)
    return {
      power: true,
      digits: Math.min(16, Math.max(digits, Math.ceil(Math.log10(largest) - Math.log10(least)) + 1))
    };
  return {
    decimals: Math.min(12, Math.max(digits, digits - 1 - Math.floor(Math.log10(least)))),
    noise: largest * 0.9e-7
  };
}

// The shortest form, as a person would type it: 0.00001, 1e-12.
const kShortest = {
  shortest: true
};

function format(value, notation = notationOf([value])) {
  if (Number.isNaN(value)) return 'NaN';
  if (!Number.isFinite(value)) return value < 0 ? '−∞' : '∞';
  if (notation.shortest) return String(value).replaceAll('-', '−');
  const power = notation.power && value !== 0, plain = value.toFixed(notation.decimals ?? 0);
  const lost = !power && Math.abs(value) > (notation.noise ?? 0) && Number(plain) === 0 && value !== 0;
  const text = power || lost ? value.toExponential(notation.digits ?? data.decimals ?? 4) : plain;
  if (notation.brief && Number(text) === value) return String(value).replaceAll('-', '−');
  return (/^-0\.?0*$/.test(text) ? text.slice(1) : text).replaceAll('-', '−');
}

// A span (in SVG, a text) with the number at `path`.
function num(path, notation) {
  const value = numberOf(at(path));
  const span = el('span', {class: 'n', 'data-path': path});
  span.textContent = format(value, notation ?? notationOf([value]));
  return span;
}

// Sentences with numbers inserted: say`the mean is ${num(path)}`.
const say = (texts, ...parts) => texts.flatMap((text, i) => i < parts.length ? [text, parts[i]] : [text]).flat();
const commas = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, ',');
const counted = (n, one, many) => `${commas(n)} ${n === 1 ? one : many}`;
const shapeText = (shape) => `(${shape.join(', ')})`;
