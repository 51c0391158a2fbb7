// Sentences of the steps: what is to be seen at each; checks, trials, formulas that are not right.
'use strict';

const kTitles = {
  x: 'The row as it is given',
  dy: 'The gradient of y, as it is given',
  own: `What evenorm computes, in ${data.dtype}`,
  'own-dx': `The gradient of x that evenorm computes, in ${data.dtype}`,
  trial: 'The gradient by trying it out',
};

// For people who have never met the operation.
const kWhy = {
  x: () => 'Each number of the row is a dot on the line; the bars below count how many dots lie where.',
  mean: () => 'The mean is the point at which the line would balance if every dot weighed the same.',
  deviation: () =>
      'Taking off the mean moves all dots by the same distance. How far they are from each other stays; their middle is 0 now.',
  'var': () =>
      'How far are the dots from their middle? Squares count a distance to the left like one to the right. Their mean is the variance: divided by ' +
      'how many numbers there are, since these are all of them and not a sample of more.',
  std: () =>
      'The root brings the squares back to the unit of x: a usual distance from the middle. The strip reaches that far to both sides.',
  mean_square: () =>
      'RMS norm leaves the mean where it is and asks only how large the numbers are: the mean of their squares.',
  rms: () =>
      'The root brings the squares back to the unit of x: a usual size. The strip reaches that far to both sides of 0.',
  sigma: () => `eps is added before the root. It counts only where the ${
      isLayer ? 'variance' : 'mean square'} is not much larger than eps, and it keeps a row of ${
      isLayer ? 'equal numbers' : 'zeros'} from being divided by 0.`,
  xhat: () =>
      [isLayer ? 'The mean is 0 now. ' : 'The middle stays where it was, in proportion. ',
       isLayer ? 'The variance is ' : 'The mean of the squares is ', num(`${rowPath()}/check/expected`),
       ': 1, or less where eps counts. Whatever size the row had, its pattern alone is left.'],
  y: () =>
      ['gamma stretches ', data.bias === null && !isLayer ? '' : 'and beta shifts ',
       'each place of the row, and does the same in every row. ',
       'Both are learned, so the network can choose the size and the middle of each feature. What is a row\'s own, its size and middle, does not come back. ',
       data.weight === null ? 'Not given here: gamma is 1. ' : '',
       data.bias === null && isLayer ? 'Not given here: beta is 0.' : ''],
  own: () => `This is what the library computes: not the exact numbers, but the nearest that ${
      data.dtype} holds, or close to it.`,
  dy: () =>
      'Now backwards. The loss is the one number that training makes small. dy, the gradient of y, says how fast the loss grows when each y grows a little. It comes from the layers after this one.',
  g: () => 'If xhat grows a little, y grows gamma times as much. So the gradient of xhat is g = dy * gamma.',
  mean_g: () =>
      'Adding one number to all x changes no y. So the part that all g share cannot reach x: their mean, the level line, is taken off.',
  mean_g_xhat: () => isLayer ?
      'Stretching the row about its mean changes no y (but for eps). So the part of g that follows xhat, the slanted line, cannot reach x either.' :
      'Stretching the row changes no y (but for eps). So the part of g that follows xhat, the slanted line, cannot reach x.',
  dx: () =>
      'What is left of g is how far each dot lies above (+) or below (−) the line. Divided by sigma, that is the gradient of x.',
  dgamma: () =>
      'If gamma grows a little, y grows xhat times as much. So this row\'s part is dy * xhat; the parts of all rows are added.',
  dbeta: () =>
      'If beta grows a little, y grows as much. So this row\'s part is dy itself; the parts of all rows are added.',
  'own-dx': () => 'The gradient that the library computes, with checks that anybody can make.',
  trial: () =>
      'Is the formula right? Move one number a little up and a little down, and look at what becomes of the loss L = sum of dy * y.',
};

function ownWords() {
  const path = rowPath(), square = isLayer ? 'var' : 'mean_square';
  return [
    el('p', {}, 'The largest difference from the exact numbers is ', num(`${path}/largest_difference`), '.'),
    el('p', {}, 'Checked on the normalised row, before gamma and beta: ',
       isLayer ? ['its mean is ', num(`${path}/check/mean`), ' (should be 0), '] : [],
       `its ${isLayer ? 'variance' : 'mean square'} is `, num(`${path}/check/${square}`), ', and should be ',
       num(`${path}/check/expected`), `: ${isLayer ? 'var / (var + eps)' : 'mean_square / (mean_square + eps)'}.`),
    el('p', {}, 'Kept for computing gradients: ', isLayer ? ['mean ', num(`${path}/mean`), ' and '] : [],
       'rstd = 1 / sigma = ', num(`${path}/rstd`), '.'),
  ];
}

function ownGradientWords() {
  const path = `${rowPath()}/gradient`, wrong = at(`${path}/wrong`);
  const words = [
    el('p', {}, 'The largest difference from the exact gradient is ', num(`${path}/largest_difference`), '.'),
    isLayer ? el('p', {}, 'First check: the sum of dx is ', num(`${path}/check/sum`),
                 ', and should be 0, since adding the same to all x changes nothing.') :
              '',
    el('p', {}, `${isLayer ? 'Second check' : 'Check'}: the sum of dx * xhat is `, num(`${path}/check/along_xhat`),
       ', and should be ', num(`${path}/check/expected`), ': 0 but for eps, since stretching the row changes nothing.'),
  ];
  if (wrong.length) words.push(el('h4', {}, 'What slips would give instead'));
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
       ' up and down. Calculated with 34 digits.'),
    el('div', {class: 'scroll', tabindex: 0, role: 'group', 'aria-label': 'the trial'},
       el('table', {}, line(`L with ${x} above`, 'above'), line(`L with ${x} below`, 'below'),
          line('their difference, divided by twice the step', 'quotient'),
          line(`dx[${index.join(', ')}], by the formula`, 'dx')))
  ];
}

// L above and below differ late: with all the digits that there are.
const trialNotation = (path) =>
    Math.abs(numberOf(at(`${path}/above`))) >= 1e-3 && Math.abs(numberOf(at(`${path}/above`))) < 1e7 ?
    {decimals: 12} :
    {power: true, digits: 12};
