// The metrics of a stage as they arrive, thinned so that long runs need bounded memory.

const POINTS = 600; // per curve; up to twice as many are stored

const emptyStage = (name) => ({ name, others: [], layout: [], steps: [], columns: new Map(), seen: 0, every: 1, last: null, curves: { steps: [], every: 1, groups: [] }, rollouts: [] });

// Add rows, and replace the chart layout if it has changed.
function grow(stage, { steps, columns, groups }) {
  if (groups) stage.layout = groups;
  const added = new Map(Object.entries(columns));
  for (const name of added.keys()) {
    if (!stage.columns.has(name)) stage.columns.set(name, stage.steps.map(() => null));
  }
  steps.forEach((step, at) => addRow(stage, step, (name) => added.get(name)?.[at] ?? null));
}

function addRow(stage, step, valueOf) {
  stage.last = { step, kept: stage.seen % stage.every === 0, values: new Map() };
  for (const name of stage.columns.keys()) stage.last.values.set(name, valueOf(name));
  stage.seen += 1;
  if (!stage.last.kept) return;
  stage.steps.push(step);
  for (const [name, value] of stage.last.values) stage.columns.get(name).push(value);
  if (stage.steps.length <= 2 * POINTS) return;
  const half = (values) => values.filter((_, at) => at % 2 === 0);
  stage.steps = half(stage.steps);
  for (const [name, values] of stage.columns) stage.columns.set(name, half(values));
  stage.every *= 2;
  stage.last.kept = (stage.seen - 1) % stage.every === 0;
}

// The curves of a stage in the format of the report. New arrays, since plotly compares references.
function curvesOf(stage) {
  const { last } = stage;
  const end = last && !last.kept;
  const y = (name) => [...(stage.columns.get(name) || []), ...(end ? [last.values.get(name) ?? null] : [])];
  const filled = (s) => (s.x ? s : { ...s, y: y(s.name), ...(s.spread ? { band: y(s.spread) } : {}) });
  return {
    steps: [...stage.steps, ...(end ? [last.step] : [])],
    every: stage.every,
    groups: stage.layout.map((group) => ({ ...group, charts: group.charts.map((c) => ({ ...c, series: c.series.map(filled) })) })),
  };
}
