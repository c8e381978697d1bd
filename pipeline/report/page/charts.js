// Small charts of one stage, drawn when they scroll into view. All of them mark the same step.

const cards = []; // {chart, here, plot, cursor, values, drawn, steps, others}
let smooth = 0;
const EVENTS = { reference: '--s4', evaluation: '--s3', resume: '--bad', ahead: '--s5' }; // colours
const hidden = new Set(); // kinds of event that are not marked
const hiddenRuns = new Set(); // indices of runs whose curves are not drawn
// With one other run its curves are dashed. Several runs are told apart by colour, so then each chart has one metric.
const several = () => drawn.others.length > 1;

const near = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      near.unobserve(target);
      target.draw();
    }
  },
  { rootMargin: '400px' },
);

// Draw `target` when it scrolls into view, and again whenever the theme changes.
function whenSeen(target, draw) {
  target.draw = () => {
    target.wasDrawn = true;
    return plotly().then((Plotly) => target.isConnected && draw(Plotly));
  };
  near.observe(target);
  return target;
}

function redraw() {
  for (const plot of document.querySelectorAll('.plot')) if (plot.wasDrawn) plot.draw();
  if (currentAnswer()) showTokens();
}

function curves() {
  cards.length = 0;
  const { curves: mine, others } = drawn.stages[state.stage];
  if (!mine.groups.length) return fill('curves-here', lacking('metrics'));
  const theirs = others.map((other) => other && { steps: other.steps, byName: new Map(other.groups.flatMap((g) => g.charts).flatMap((c) => c.series).map((s) => [s.name, s])) });
  const parts = mine.groups.map((group) => {
    const charts = several() ? group.charts.flatMap(single) : group.charts;
    const grid = el('div', { cls: 'grid' }, charts.map((c) => card(c, mine.steps, theirs)));
    const last = group.name === 'Everything else';
    return last
      ? el('details', { cls: 'rest' }, el('summary', { text: `${group.name} (${charts.length})` }), grid)
      : [el('h3', { text: group.name }), grid];
  });
  const thin = mine.every > 1 ? el('span', { cls: 'quiet', text: `every ${mine.every}th step is shown` }) : null;
  fill('curves-here', el('div', { cls: 'tools' }, smoother(), otherRuns(), thin, eventKey(mine.events || [])), parts);
}

// A chart per metric; the first keeps the id, to which links lead. A limit belongs to the whole stack.
function single(chart) {
  if (chart.series.length === 1 && chart.style !== 'stack') return [chart];
  const plain = chart.style === 'stack' ? { style: 'lines', limit: null } : {};
  return chart.series.map((s, at) => ({ ...chart, ...plain, id: at ? `${chart.id}-${s.name}` : chart.id, title: `${chart.title}: ${s.label}`, series: [s] }));
}

function smoother() {
  const output = el('output', { text: 'off' });
  const slide = el('input', {
    type: 'range', min: 0, max: 0.95, step: 0.05, value: smooth, id: 'smooth',
    oninput: (event) => {
      smooth = Number(event.target.value);
      output.textContent = smooth ? smooth.toFixed(2) : 'off';
      for (const one of cards) if (one.plot.wasDrawn) one.plot.draw();
    },
  });
  return el('label', {}, 'Smoothing ', slide, ' ', output);
}

// An item of a legend whose box adds a key to a set of what is hidden.
function toggle(set, key, attributes, colour, text) {
  return el('li', {}, el('label', {},
    el('input', {
      type: 'checkbox', checked: !set.has(key), ...attributes,
      onchange: (event) => {
        if (event.target.checked) set.delete(key);
        else set.add(key);
        for (const one of cards) if (one.plot.wasDrawn) one.plot.draw();
      },
    }),
    el('i', { style: `background:var(${colour})` }), text));
}

// The legend of the marked events; a box hides a kind.
function eventKey(kinds) {
  if (!kinds.length) return null;
  return el('ul', { cls: 'key events' }, kinds.map((kind) => toggle(
    hidden, kind.id, { 'data-event': kind.id }, EVENTS[kind.id], `${kind.label} (${kind.spans.length})`)));
}

// A line for an event at one step, a shaded band for a span of steps.
function marked(kind) {
  const colour = paint(EVENTS[kind.id]);
  return kind.spans.map(([x0, x1]) => ({
    type: x0 === x1 ? 'line' : 'rect', name: kind.id, layer: 'below', yref: 'paper', x0, x1, y0: 0, y1: 1,
    line: { color: x0 === x1 ? faint(colour, 0.75) : 'rgba(0,0,0,0)', width: 1, dash: 'dash' }, fillcolor: faint(colour, 0.12),
  }));
}

function otherRuns() {
  if (!drawn.others.length) return null;
  if (!several()) return el('span', { cls: 'quiet', text: `dashed: ${drawn.others[0]}` });
  return el('ul', { cls: 'key events' }, [drawn.name, ...drawn.others].map((name, run) => toggle(
    hiddenRuns, run, { 'data-run': run }, SERIES[run % SERIES.length], visible(name))));
}

// The curves of a chart: {s, x, run, colour, label}; those with a label are in its legend.
function linesOf({ chart, steps, others }) {
  const own = chart.series.map((s, at) => ({
    s, x: s.x || steps, run: 0, colour: SERIES[at % SERIES.length],
    label: several() ? drawn.name : chart.series.length > 1 ? s.label : '',
  }));
  if (chart.style === 'stack') return own;
  const theirs = others.flatMap((other, at) => chart.series.flatMap((mine, i) => {
    const s = other?.byName.get(mine.name);
    const colour = SERIES[(several() ? at + 1 : i) % SERIES.length];
    return s ? [{ s, x: s.x || other.steps, run: at + 1, colour, label: several() ? drawn.others[at] : null }] : [];
  }));
  return [...own, ...theirs];
}

const inLegend = (one) => linesOf(one).filter(({ label }) => label !== null);

function card(chart, steps, others) {
  const one = { chart, steps, others, values: [] };
  const legend = inLegend(one).map(({ label, colour }) => {
    const value = el('b', {});
    one.values.push(value);
    return el('li', {}, el('i', { style: `background:var(${colour})` }), label && el('span', { text: visible(label) }), value);
  });
  one.cursor = el('div', { cls: 'cursor' });
  one.plot = whenSeen(el('div', { cls: 'plot', role: 'img', 'aria-label': chart.title }), (Plotly) => draw(Plotly, one));
  one.here = el(
    'figure',
    { cls: 'card', id: `chart-${chart.id}` },
    el('figcaption', {}, el('h4', { text: chart.title }), chart.unit && el('span', { cls: 'unit', text: chart.unit }), el('ul', { cls: 'key' }, legend)),
    el('div', { cls: 'frame' }, one.plot, one.cursor),
    chart.good && el('p', { cls: 'good', text: chart.good }),
  );
  cards.push(one);
  values(one, null);
  return one.here;
}

function draw(Plotly, one) {
  const shown = linesOf(one).filter(({ run }) => !hiddenRuns.has(run));
  const traces = shown.flatMap((line) => (line.label === null ? [dashed(line)] : traced(line, one.chart)));
  const plain = layout(one.chart);
  const kinds = drawn.stages[state.stage].curves.events || [];
  plain.shapes.push(...kinds.filter((kind) => !hidden.has(kind.id)).flatMap(marked));
  const done = Plotly.react(one.plot, traces, plain, { displayModeBar: false, responsive: true });
  if (!one.heard) {
    one.heard = true;
    one.plot.on('plotly_hover', (event) => point(event.points[0].x));
    one.plot.on('plotly_unhover', () => point(null));
  }
  return done;
}

function smoothed(values) {
  let level = null;
  return values.map((v) => (v === null ? null : (level = level === null ? v : smooth * level + (1 - smooth) * v)));
}

function traced({ s, x, run, colour: name }, chart) {
  const colour = paint(name);
  const plain = { x, type: 'scatter', hoverinfo: 'none', name: s.label, connectgaps: true };
  const mode = x.length < 14 ? 'lines+markers' : 'lines';
  const line = { color: colour, width: 1.8 };
  if (chart.style === 'stack') {
    return [{ ...plain, y: s.y, mode: 'lines', stackgroup: 'all', line: { color: colour, width: 0.6 }, fillcolor: faint(colour, 0.55) }];
  }
  if (s.low) {
    const up = s.y.map((y, i) => s.high[i] - y);
    const down = s.y.map((y, i) => y - s.low[i]);
    const bars = { type: 'data', symmetric: false, array: up, arrayminus: down, thickness: 1.2, width: 3, color: colour };
    return [{ ...plain, y: s.y, mode: 'lines+markers', line, marker: { size: 6, color: colour }, error_y: bars }];
  }
  const traces = [];
  if (s.band && !run) {
    const edge = { ...plain, mode: 'lines', line: { width: 0 }, showlegend: false };
    traces.push({ ...edge, y: s.y.map((y, i) => y - s.band[i]) });
    traces.push({ ...edge, y: s.y.map((y, i) => y + s.band[i]), fill: 'tonexty', fillcolor: faint(colour, 0.1) });
  }
  if (smooth) traces.push({ ...plain, y: s.y, mode: 'lines', line: { color: faint(colour, 0.25), width: 1 } });
  traces.push({ ...plain, y: smooth ? smoothed(s.y) : s.y, mode, line, marker: { size: 4, color: colour } });
  return traces;
}

function dashed({ s, x, colour }) {
  const y = smooth ? smoothed(s.y) : s.y;
  const line = { color: faint(paint(colour), 0.7), width: 1.4, dash: 'dot' };
  return { x, y, type: 'scatter', mode: 'lines', line, hoverinfo: 'skip', connectgaps: true };
}

function layout(chart) {
  const ink = paint('--quiet');
  const axis = { gridcolor: paint('--line'), zeroline: false, linecolor: paint('--line'), tickfont: { size: 11, color: ink }, automargin: true };
  return {
    height: 190,
    margin: { l: 8, r: 8, t: 6, b: 8 },
    paper_bgcolor: 'rgba(0,0,0,0)',
    plot_bgcolor: 'rgba(0,0,0,0)',
    font: { family: paint('--font'), color: ink },
    showlegend: false,
    hovermode: 'x',
    dragmode: false,
    xaxis: { ...axis, showgrid: false, nticks: 6, fixedrange: true },
    yaxis: {
      ...axis, nticks: 5, fixedrange: true, type: chart.style === 'log' ? 'log' : 'linear',
      ...(chart.style === 'log' ? { exponentformat: 'power', dtick: 1 } : {}),
      ...(chart.top ? { range: [0, chart.top] } : {}),
      ...(allZero(chart) ? { range: [0, 1] } : {}),
    },
    shapes: chart.limit ? [{ type: 'line', xref: 'paper', x0: 0, x1: 1, y0: chart.limit, y1: chart.limit, line: { color: ink, width: 1, dash: 'dot' } }] : [],
  };
}

// A constant 0 gets the range 0 to 1; plotly would choose a misleading scale.
const allZero = (chart) => chart.series?.every((s) => s.y.every((y) => !y));

// Mark one step in every chart of the stage and show its values; null: the last step.
function point(step) {
  for (const one of cards) {
    values(one, step);
    const axis = one.plot._fullLayout?.xaxis;
    if (!axis) continue;
    one.cursor.hidden = step === null;
    if (step !== null) one.cursor.style.left = `${axis._offset + axis.d2p(step)}px`;
  }
}

function values(one, step) {
  inLegend(one).forEach(({ s, x }, at) => {
    let last = step === null ? x.length - 1 : x.findLastIndex((one) => one <= step);
    while (last > 0 && s.y[last] === null) last -= 1;
    one.values[at].textContent = last < 0 ? '' : figure(s.y[last]);
  });
}
