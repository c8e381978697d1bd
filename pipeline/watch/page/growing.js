// The metrics of a stage as they arrive, thinned so that long runs need bounded memory.

const POINTS = 600; // per curve; up to twice as many rows are stored

const emptyStage = (name) => ({ name, others: [], layout: [], steps: [], places: [], columns: new Map(), counts: new Map(), seen: 0, every: 1, last: null, curves: { steps: [], every: 1, groups: [] }, rollouts: [] });

// Add rows, and replace the chart layout if it has changed.
function grow(stage, { steps, columns, groups }) {
  if (groups) stage.layout = groups;
  const added = new Map(Object.entries(columns));
  for (const name of added.keys()) {
    if (!stage.columns.has(name)) stage.columns.set(name, stage.steps.map(() => null));
  }
  steps.forEach((step, at) => addRow(stage, step, (name) => added.get(name)?.[at] ?? null));
}

// Every n-th row is stored, and each with a metric that most rows lack, such as a held-out loss.
function addRow(stage, step, valueOf) {
  const place = stage.seen;
  const values = new Map([...stage.columns.keys()].map((name) => [name, valueOf(name)]));
  stage.seen += 1;
  for (const [name, value] of values) if (value !== null) stage.counts.set(name, (stage.counts.get(name) || 0) + 1);
  stage.last = { step, values, kept: place % stage.every === 0 || isSparse(stage, (name) => values.get(name)) };
  if (!stage.last.kept) return;
  stage.steps.push(step);
  stage.places.push(place);
  for (const [name, value] of values) stage.columns.get(name).push(value);
  if (stage.steps.length > 2 * POINTS) thin(stage);
  stage.last.kept = stage.places[stage.places.length - 1] === place;
}

const isSparse = (stage, valueOf) => [...stage.columns.keys()].some((name) => valueOf(name) !== null && 2 * stage.counts.get(name) < stage.seen);

// Leave every n-th row of all, and of those with a sparse metric at most half of POINTS.
function thin(stage) {
  const regular = () => stage.places.filter((place) => place % stage.every === 0);
  while (regular().length > POINTS) stage.every *= 2;
  const sparse = stage.places.filter((_, at) => isSparse(stage, (name) => stage.columns.get(name)[at]));
  const stride = Math.ceil((2 * sparse.length) / POINTS);
  const left = new Set([...regular(), ...sparse.filter((_, at) => at % stride === 0)]);
  const filtered = (values) => values.filter((_, at) => left.has(stage.places[at]));
  stage.steps = filtered(stage.steps);
  for (const [name, values] of stage.columns) stage.columns.set(name, filtered(values));
  stage.places = filtered(stage.places);
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
