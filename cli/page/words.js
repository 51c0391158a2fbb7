// Sentences below the numbers: checks, trials, formulas that are not right.
'use strict';

function ownWords() {
  const path = rowPath(), square = isLayer ? 'var' : 'mean_square';
  return [
    el('p', {}, 'The largest difference from the exact numbers is ', num(`${path}/largest_difference`), '.'),
    el('p', {}, 'Checked on the normalised row, before gamma and beta: ', isLayer ? ['its mean is ', num(`${path}/check/mean`), ' (should be 0), '] : [],
      `its ${isLayer ? 'variance' : 'mean square'} is `, num(`${path}/check/${square}`), ', and should be ', num(`${path}/check/expected`),
      `: ${isLayer ? 'var / (var + eps)' : 'mean_square / (mean_square + eps)'}.`),
    el('p', {}, 'Kept for the backward pass: ', isLayer ? ['mean ', num(`${path}/mean`), ' and '] : [], 'rstd = 1 / sigma = ', num(`${path}/rstd`), '.'),
  ];
}

function ownGradientWords() {
  const path = `${rowPath()}/gradient`, wrong = at(`${path}/wrong`);
  const words = [
    el('p', {}, 'The largest difference from the exact gradient is ', num(`${path}/largest_difference`), '.'),
    isLayer ? el('p', {}, 'First check: the sum of dx is ', num(`${path}/check/sum`), ', and should be 0, since adding the same to all x changes nothing.') : '',
    el('p', {}, `${isLayer ? 'Second check' : 'Check'}: the sum of dx × xhat is `, num(`${path}/check/along_xhat`), ', and should be ',
      num(`${path}/check/expected`), ': 0 but for eps, since stretching the row changes nothing.'),
  ];
  if (wrong.length) words.push(el('h4', {}, 'What slips would give instead'));
  wrong.forEach((slip, k) => words.push(el('p', {}, el('span', { class: 'mono' }, slip.formula), ' ', slip.why),
    ...numberList(`${path}/wrong/${k}/dx`, null, `dx by ${slip.formula}`, 12)));
  return words;
}

function trialWords() {
  const path = `${rowPath()}/gradient/trial`, { index, step } = at(path), x = `x[${index.join(', ')}]`;
  const line = (words, name) => el('tr', {}, el('th', { scope: 'row' }, words), el('td', {}, num(`${path}/${name}`, trialNotation(path))));
  return [el('p', {}, `${x} is `, num(`${path}/x`), '; it is moved by ', num(`${path}/step`), ' up and down. Calculated with 34 digits.'),
    el('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': 'the trial' }, el('table', {},
      line(`L with ${x} above`, 'above'), line(`L with ${x} below`, 'below'), line('their difference, divided by twice the step', 'quotient'),
      line(`dx[${index.join(', ')}], by the formula`, 'dx')))];
}

// L above and below differ late: with all the digits that there are.
const trialNotation = (path) => Math.abs(numberOf(at(`${path}/above`))) >= 1e-3 && Math.abs(numberOf(at(`${path}/above`))) < 1e7
  ? { decimals: 12 } : { power: true, digits: 12 };
