// Charts and tables made from rollouts: prompts over steps, verdicts, latencies, alarms.

function wide(title, height, draw) {
  const plot = el('div', { cls: 'plot', role: 'img', 'aria-label': title });
  plot.style.height = `${height}px`;
  return whenSeen(plot, (Plotly) => draw(Plotly, plot, { ...layout({}), height, hovermode: 'closest' }));
}

function groups() {
  const { heat } = drawn.stages[state.stage];
  if (!heat) return fill('groups-here', nothing('This stage recorded no rollouts.'));
  const note = heat.kind === 'prompts'
    ? 'A row is a repeated prompt, the hardest on top.'
    : 'No prompt is repeated in this stage: a row is a rank, from the worst to the best prompt of each step.';
  const rows = heat.rows.map((name) => visible(name).replaceAll('<', '‹')); // plotly reads markup in labels
  const height = Math.min(90 + heat.rows.length * 9, 520);
  fill('groups-here', nothing(note), wide('prompts over steps', height, (Plotly, plot, plain) => {
    const trace = {
      type: 'heatmap', x: heat.steps, y: heat.rows.map((_, at) => at), z: heat.mean, colorscale: scale(), zmin: 0, xgap: heat.steps.length < 80 ? 1 : 0, ygap: heat.rows.length < 40 ? 1 : 0,
      customdata: heat.index, text: rows.map((name) => heat.steps.map(() => name)), hovertemplate: 'step %{x}, group %{customdata}<br>%{text}<br>mean reward %{z:.2f}<extra></extra>',
      colorbar: { thickness: 8, outlinewidth: 0, tickfont: { size: 11, color: paint('--quiet') }, len: 1 },
    };
    const yaxis = { ...plain.yaxis, autorange: 'reversed', showticklabels: heat.kind === 'prompts' && heat.rows.length < 30, tickvals: heat.rows.map((_, at) => at), ticktext: rows, showgrid: false, ticks: '' };
    const hoverlabel = { bgcolor: paint('--panel'), bordercolor: paint('--line'), font: { color: paint('--ink'), family: paint('--font') } };
    const done = Plotly.react(plot, [trace], { ...plain, yaxis, hoverlabel }, { displayModeBar: false, responsive: true });
    plot.removeAllListeners('plotly_click');
    plot.on('plotly_click', ({ points: [one] }) => open({ step: one.x, group: one.customdata, i: null }));
    return done;
  }));
}

function verdicts() {
  const { verdicts: mixes, latency, slowest, reasons } = drawn.stages[state.stage];
  const names = Object.keys(mixes);
  if (!names.length) return fill('verdicts-here', nothing('This stage recorded no verdicts.'));
  fill(
    'verdicts-here',
    el('div', { cls: 'grid' }, names.map((name) => mix(name, mixes[name]))),
    latency && el('h3', { text: 'Latency' }),
    latency && latencies(latency),
    slowest.length ? [el('h3', { text: 'Slowest to judge' }), slow(slowest)] : null,
    reasons.length ? [el('h3', { text: 'Most frequent reasons of verdicts other than right' }), reasonTable(reasons)] : null,
  );
}

function mix(name, { steps, shares, total }) {
  const all = Object.values(total).reduce((a, b) => a + b, 0);
  const key = Object.keys(shares).map((kind) => el('li', {}, el('i', { style: `background:var(${KINDS[kind]})` }), el('span', { text: kind.replace('_', ' ') }), el('b', { text: `${figure((100 * total[kind]) / all)} %` })));
  const plot = wide(name, 190, (Plotly, target, plain) => Plotly.react(
    target,
    Object.entries(shares).map(([kind, y]) => ({ type: 'bar', x: steps, y, marker: { color: paint(KINDS[kind]) }, hoverinfo: 'skip' })),
    { ...plain, barmode: 'stack', bargap: steps.length < 80 ? 0.15 : 0, yaxis: { ...plain.yaxis, range: [0, 1] } },
    { displayModeBar: false, responsive: true },
  ));
  return el('figure', { cls: 'card' }, el('figcaption', {}, el('h4', { text: name }), el('span', { cls: 'unit', text: `share of ${all.toLocaleString('en')} verdicts` }), el('ul', { cls: 'key' }, key)), el('div', { cls: 'frame' }, plot));
}

function latencies({ edges, parts }) {
  const middle = edges.slice(1).map((edge, i) => Math.sqrt(edge * edges[i]));
  const names = Object.keys(parts);
  const plot = wide('latency', 200, (Plotly, target, plain) => Plotly.react(
    target,
    names.map((name, at) => ({ type: 'scatter', mode: 'lines', x: middle, y: parts[name].counts, line: { color: series(at), width: 1.6, shape: 'hvh' }, fill: 'tozeroy', fillcolor: faint(series(at), 0.15), hoverinfo: 'skip' })),
    { ...plain, xaxis: { ...plain.xaxis, type: 'log', exponentformat: 'SI', ticksuffix: 's', dtick: 1 }, yaxis: { ...plain.yaxis, rangemode: 'tozero' } },
    { displayModeBar: false, responsive: true },
  ));
  const head = ['', 'p50', 'p95', 'p99', 'total'];
  const rows = names.map((name, at) => [
    [el('i', { cls: 'swatch', style: `background:var(${SERIES[at]})` }), ` ${name}`],
    ...['p50', 'p95', 'p99'].map((p) => time(parts[name].percentiles[p])),
    time(parts[name].total),
  ]);
  return el('div', { cls: 'two' }, el('figure', { cls: 'card' }, el('figcaption', {}, el('h4', { text: 'Seconds per answer' }), el('span', { cls: 'unit', text: 'all its verifiers, log scale' })), plot), rowsOf(head, rows));
}

const answerLink = (one) => el('a', { href: link({ step: one.step, group: one.group, i: one.i }), text: `step ${one.step}, group ${one.group}, answer ${one.i}` });

function slow(slowest) {
  return rowsOf(['answer', 'problem', 'waited', 'judged in', 'first characters'], slowest.map((one) => [answerLink(one), visible(one.problem), time(one.queue_s), time(one.exec_s), el('span', { cls: 'snippet', text: visible(one.text.slice(0, 100)) })]));
}

function reasonTable(reasons) {
  return rowsOf(['verifier', 'verdict', 'detail', 'answers'], reasons.map((one) => [one.name, one.kind.replace('_', ' '), el('span', { cls: 'snippet', text: visible(one.detail) }), one.count.toLocaleString('en')]));
}

function rewardHacks() {
  const { alarms, flips, rollouts: all } = drawn.stages[state.stage];
  if (!all) return fill('reward-hacks-here', nothing('This stage recorded no rollouts.'));
  const rows = alarms.map((one) => [
    one.name,
    el('span', { cls: one.count ? 'count' : 'quiet', text: one.count.toLocaleString('en') }),
    `${figure((100 * one.count) / all)} %`,
    one.rule,
    el('span', { cls: 'links' }, one.examples.map((example) => answerLink(example))),
  ]);
  fill('reward-hacks-here', nothing(`${all.toLocaleString('en')} answers checked.`), rowsOf(['alarm', 'answers', 'share', 'rule', 'clearest examples'], rows), flips.map(flipped));
}

// Result of `veriloop rescore`: recorded verdicts in rows, new ones in columns.
function flipped(one) {
  const kinds = Object.keys(one.matrix);
  const count = (number) => number.toLocaleString('en');
  const matrix = kinds.map((old) => [old.replace('_', ' '), ...kinds.map((kind) => count(one.matrix[old][kind]))]);
  const verdict = ({ score, status, answer }) => `${status === 'graded' ? figure(score) : status.replace('_', ' ')}${answer === null ? '' : `, read ${visible(answer.slice(0, 40))}`}`;
  const rows = one.largest.map((flip) => [answerLink(flip), visible(flip.problem), verdict(flip.old), verdict(flip.new), el('span', { cls: 'snippet', text: visible((flip.new.detail || '').slice(0, 100)) })]);
  return [
    el('h3', { text: `Verdict flips: ${one.component} by ${one.verifier} ${one.version}` }),
    nothing(`${count(one.rollouts)} answers judged again: ${count(one.up)} rewards up, ${count(one.down)} down; ${count(one.errors)} without a score on one side, which are not flips.`),
    rowsOf(['recorded, now', ...kinds.map((kind) => kind.replace('_', ' '))], matrix),
    rows.length ? rowsOf(['answer', 'problem', 'recorded', 'now', 'detail'], rows) : null,
  ];
}
