// Sentences of the steps: what each shows; checks, numerical checks, and wrong formulas.
'use strict';

const kTitles = {
  x: 'The given row',
  dy: 'The given gradient of y',
  own: `What evenorm computes, in ${data.dtype}`,
  'own-dx': `The gradient of x that evenorm computes, in ${data.dtype}`,
  trial: 'A numerical check of the gradient',
};

// For readers who are new to the operations.
const kWhy = {
  x: () => 'Each number of the row is a dot on the line. The bars below show how many dots are where.',
  mean: () => 'The mean is the point at which the line would balance if every dot weighed the same.',
  deviation: () =>
      'Subtracting the mean moves all dots by the same distance. Their distances from each other stay; their middle is 0.',
  'var': () =>
      'How far are the dots from their middle? A square counts a distance to the left like one to the right. The mean of the squares is the variance. It is divided by ' +
      'the count of the numbers, because these are all of them and not a sample.',
  std: () =>
      'The root brings the squares back to the unit of x: a typical distance from the middle. The strip reaches that far to both sides.',
  mean_square: () =>
      'RMS norm does not subtract the mean. It measures only how large the numbers are: the mean of their squares.',
  rms: () =>
      'The root brings the squares back to the unit of x: a typical size. The strip reaches that far to both sides of 0.',
  sigma: () => `eps is added before the root. It matters only if the ${
      isLayer ? 'variance' : 'mean square'} is not much larger than eps, and it prevents a row of ${
      isLayer ? 'equal numbers' : 'zeros'} from being divided by 0.`,
  xhat: () =>
      [isLayer ? 'The mean is 0. ' : 'The middle keeps its place, in proportion. ',
       isLayer ? 'The variance is ' : 'The mean of the squares is ', num(`${rowPath()}/check/expected`),
       ': 1, or less if eps matters. Only the pattern of the row is left, not its size.'],
  y: () =>
      ['gamma stretches ', data.bias === null && !isLayer ? '' : 'and beta shifts ',
       'each column, in every row alike. ',
       'Both are learned, so the network can choose the size and the middle of each feature. The row\'s own size and middle do not come back. ',
       data.weight === null ? 'gamma is not given here, so it is 1. ' : '',
       data.bias === null && isLayer ? 'beta is not given here, so it is 0.' : ''],
  own: () => `This is the library's result: not the exact numbers, but the nearest numbers in ${
      data.dtype}, or close to them.`,
  dy: () =>
      'The backward pass begins here. Training makes one number small, the loss. dy, the gradient of y, states how fast the loss grows when each y grows a little. It comes from the layers after this one.',
  g: () => 'If xhat grows a little, y grows gamma times as much. So the gradient of xhat is g = dy * gamma.',
  mean_g: () =>
      'Adding one number to all x changes no y. So the part that all g share cannot affect x: their mean, the level line, is subtracted.',
  mean_g_xhat: () => isLayer ?
      'Stretching the row about its mean changes no y (except for eps). So the part of g that follows xhat, the slanted line, cannot affect x either.' :
      'Stretching the row changes no y (except for eps). So the part of g that follows xhat, the slanted line, cannot affect x.',
  dx: () =>
      'The rest of g is how far each dot is above (+) or below (−) the line. Divided by sigma, it is the gradient of x.',
  dgamma: () =>
      'If gamma grows a little, y grows xhat times as much. So this row\'s part is dy * xhat; the parts of all rows are added.',
  dbeta: () =>
      'If beta grows a little, y grows as much. So this row\'s part is dy itself; the parts of all rows are added.',
  'own-dx': () => 'The gradient that the library computes, with checks that you can repeat.',
  trial: () =>
      'Is the formula right? Move one number a little up and a little down, and see how the loss L = sum of dy * y changes.',
};

function ownWords() {
  const path = rowPath(), square = isLayer ? 'var' : 'mean_square';
  return [
    el('p', {}, 'The largest difference from the exact numbers is ', num(`${path}/largest_difference`), '.'),
    el('p', {}, 'Checked on the normalised row, before gamma and beta: ',
       isLayer ? ['its mean is ', num(`${path}/check/mean`), ' (should be 0), '] : [],
       `its ${isLayer ? 'variance' : 'mean square'} is `, num(`${path}/check/${square}`), ' and should be ',
       num(`${path}/check/expected`), `: ${isLayer ? 'var / (var + eps)' : 'mean_square / (mean_square + eps)'}.`),
    el('p', {}, 'Kept for the gradients: ', isLayer ? ['mean ', num(`${path}/mean`), ' and '] : [],
       'rstd = 1 / sigma = ', num(`${path}/rstd`), '.'),
  ];
}

function ownGradientWords() {
  const path = `${rowPath()}/gradient`, wrong = at(`${path}/wrong`);
  const words = [
    el('p', {}, 'The largest difference from the exact gradient is ', num(`${path}/largest_difference`), '.'),
    isLayer ? el('p', {}, 'First check: the sum of dx is ', num(`${path}/check/sum`),
                 ' and should be 0, because adding one number to all x changes no y.') :
              '',
    el('p', {}, `${isLayer ? 'Second check' : 'Check'}: the sum of dx * xhat is `, num(`${path}/check/along_xhat`),
       ' and should be ', num(`${path}/check/expected`),
       ': 0 except for eps, because stretching the row changes no y.'),
  ];
  if (wrong.length) words.push(el('h4', {}, 'Results of common slips'));
  wrong.forEach(
      (slip, k) => words.push(
          el('p', {}, el('span', {class: 'mono'}, slip.formula), ' ', slip.why),
          ...numberList(`${path}/wrong/${k}/dx`, null, `dx by ${slip.formula}`, 12)));
  return words;
}

function trialWords() {
  const path = `${rowPath()}/gradient/trial`, {index, step} = at(path), x = `x[${index.join(', ')}]`;
  const line = (words, name) =>
      el('tr', {}, el('th', {scope: 'row'}, words), el('td', {}, num(`${path}/${name}`, trialNotation(path))));
  return [
    el('p', {}, `${x} is `, num(`${path}/x`), '; it is moved by ', num(`${path}/step`),
       ' up and down. Computed with 34 digits.'),
    el('div', {class: 'scroll', tabindex: 0, role: 'group', 'aria-label': 'the numerical check'},
       el('table', {}, line(`L with ${x} above`, 'above'), line(`L with ${x} below`, 'below'),
          line('their difference, divided by twice the step', 'quotient'),
          line(`dx[${index.join(', ')}], by the formula`, 'dx')))
  ];
}

// L above and below differ only in their last digits, so all digits are shown.
const trialNotation = (path) =>
    Math.abs(numberOf(at(`${path}/above`))) >= 1e-3 && Math.abs(numberOf(at(`${path}/above`))) < 1e7 ?
    {decimals: 12} :
    {power: true, digits: 12};
