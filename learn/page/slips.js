// The page of slips: each as it is written, its result beside the right one, and how it arises.
'use strict';

function buildSlips() {
  const quoted = data.slips.filter((slip) => slip.quoted).length;
  document.title = 'Slips that explanations of layer norm make';
  document.getElementById('top').append(
      el('h1', {}, 'Slips that explanations of layer norm make'),
      el('p', {},
         `${data.slips.length} of them. The first ${
             quoted} are quoted from texts that teach it; the others are easily made when its backward pass is derived or programmed. ` +
             'In each, compare the two lines with a background: they reveal the slip. Every number that is not quoted was computed by evenorm. eps is ',
         num('eps', kShortest), '.'),
      el('nav', {'aria-label': 'slips'},
         el('ul', {}, data.slips.map((slip) => el('li', {}, el('a', {href: `#slip-${slip.name}`}, slip.title))))));
  document.getElementById('main').append(...data.slips.map(
      (slip, k) =>
          el('section', {id: `slip-${slip.name}`, 'aria-labelledby': `title-${slip.name}`},
             el('h2', {id: `title-${slip.name}`}, `${k + 1}. ${slip.title}`),
             el('p', {class: 'quiet'}, slip.quoted ? 'As it is written:' : 'As it is easily made:'),
             el('blockquote', {class: 'mono'}, slip.written),
             el('div', {class: 'beside'}, figuresOf(slip, k, 'wrong', 'What this gives'),
                figuresOf(slip, k, 'right', 'What is right')),
             el('figure', {'data-slip': k}), el('p', {}, el('b', {}, 'How it arises. '), slip.how))));
}

function figuresOf(slip, k, side, heading) {
  return el('div', {class: side}, el('h3', {}, heading), slip[side].map((figure, j) => {
    const path = `slips/${k}/${side}/${j}/values`, notation = notationOf(listAt(path)),
          numbers = figure.values.map((_, i) => [i ? ', ' : '', num(`${path}/${i}`, notation)]);
    return el(
        'p', {class: slip.telling[side] === j ? 'figure-line telling' : 'figure-line'}, `${figure.label}: `,
        figure.formula ? el('span', {class: 'quiet'}, `${figure.formula} = `) : '',
        numbers.length > 1 ? ['[', numbers, ']'] : numbers);
  }));
}

// Draws the figures that reveal a slip on lines: crosses above for the wrong ones, dots below for the right ones.
function drawSlips() {
  data.slips.forEach((slip, k) => {
    const figure = document.querySelector(`[data-slip="${k}"]`),
          values = (side) => flat(slip[side][slip.telling[side]].values);
    const wrong = values('wrong'), right = values('right'), width = widthOf(figure),
          domain = domainOf([...wrong, ...right]), scale = linear(domain, [90, width - 20]);
    const line = svg('svg', {
      width,
      height: 112,
      viewBox: `0 0 ${width} 112`,
      role: 'img',
      'aria-label': `${slip.title}: wrong beside right on a line`
    });
    [[wrong, 24, 'wrong'], [right, 60, 'right']].forEach(([list, y, side]) => {
      line.append(
          text(4, y + 5, {style: `fill: ${css(side === 'wrong' ? '--warm' : '--good')}`}, side),
          svg('line', {class: 'grid', x1: 90, x2: width - 20, y1: y, y2: y}));
      list.forEach((v, i) => {
        if (!Number.isFinite(v)) return;
        if (list === wrong && right.length === wrong.length && Number.isFinite(right[i]))
          line.append(
              svg('line',
                  {class: 'residual', x1: scale(v), x2: scale(right[i]), y1: 24, y2: 60, 'stroke-dasharray': '3 3'}));
        line.append(
            side === 'wrong' ? svg('path', {
              d: 'M-6,-6L6,6M-6,6L6,-6',
              transform: `translate(${scale(v)} ${y})`,
              style: `stroke: ${css('--warm')}; stroke-width: 3`
            }) :
                               svg('circle', {cx: scale(v), cy: y, r: 6, style: `fill: ${css('--good')}`}));
      });
    });
    line.append(axis(domain, scale, 84, width));
    figure.replaceChildren(line);
  });
}
