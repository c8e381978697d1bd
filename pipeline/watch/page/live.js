// Apply events from the server to the page, and redraw at most a few times per second.

const STEPS_KEPT = 8; // steps with rollouts in memory
const DRAW_MS = 150;
const LATE_S = 60; // a run is marked as late after this time and five steps without a change
let run = null; // summary of run.json
let connected = false;
let changedAt = null; // last change of the run's files, on this page's clock
let chosen = false; // whether the user has picked a stage
let timer = 0;
const dirty = { stages: false, layout: false, curves: false, rollouts: false };
const problems = new Map();

const stageOf = (name) => drawn.stages.find((stage) => stage.name === name);
const shownStage = () => drawn.stages[state.stage];
const following = () => !/[#&]step=/.test(location.hash);

const HANDLERS = {
  run(summary) {
    const before = shownStage()?.name;
    run = summary;
    drawn.name = summary.name;
    const status = shownStage()?.status;
    drawn.stages = summary.stages.map((one) => Object.assign(stageOf(one.name) || emptyStage(one.name), { status: one.status }));
    state.stage = Math.max(drawn.stages.findIndex((stage) => stage.name === before), 0);
    if (before === undefined) chosen = fromHash();
    dirty.stages = true;
    dirty.layout ||= shownStage()?.name !== before || shownStage()?.status !== status;
    dirty.rollouts ||= dirty.layout;
  },
  curves(rows) {
    const stage = stageOf(rows.stage);
    if (!stage) return;
    const { every } = stage;
    grow(stage, rows);
    if (stage !== shownStage()) return;
    dirty.layout ||= Boolean(rows.groups) || stage.every !== every;
    dirty.curves = true;
  },
  rollouts({ stage: name, sample }) {
    const stage = stageOf(name);
    if (!stage) return;
    const others = stage.rollouts.filter((one) => one.step !== sample.step);
    stage.rollouts = [...others, sample].sort((a, b) => a.step - b.step);
    const spare = stage.rollouts.filter((one) => following() || stage !== shownStage() || one.step !== state.step);
    const gone = new Set(spare.slice(0, Math.max(stage.rollouts.length - STEPS_KEPT, 0)));
    stage.rollouts = stage.rollouts.filter((one) => !gone.has(one));
    dirty.rollouts ||= stage === shownStage();
  },
  reset({ stage: name }) {
    if (name === null) problems.clear();
    problems.delete(name);
    if (name === null) drawn.stages = [];
    else drawn.stages = drawn.stages.map((stage) => (stage.name === name ? Object.assign(emptyStage(name), { status: stage.status }) : stage));
    Object.assign(dirty, { stages: true, layout: true, rollouts: true });
  },
  trouble({ stage, messages }) {
    problems.set(stage, messages.map((message) => (stage ? `${stage}: ${message}` : message)));
  },
  pulse(seconds) {
    changedAt = performance.now() - 1000 * seconds;
  },
};

function listenToRun() {
  const source = new EventSource('/events');
  for (const [name, handle] of Object.entries(HANDLERS)) {
    source.addEventListener(name, (event) => {
      handle(JSON.parse(event.data));
      scheduleRefresh();
    });
  }
  source.addEventListener('open', () => { connected = true; scheduleRefresh(); });
  source.addEventListener('error', () => { connected = false; scheduleRefresh(); });
}

function scheduleRefresh() {
  timer ||= setTimeout(() => {
    timer = 0;
    refresh();
  }, DRAW_MS);
}

function refresh() {
  for (const [at, stage] of drawn.stages.entries()) parsed.set(at, { train: stage.rollouts, held_out: [], pieces: [] });
  if (!chosen) selectStage();
  if (dirty.stages) stages();
  if (shownStage()) {
    if (dirty.layout) drawAll();
    else if (dirty.curves) updateCharts();
    if (dirty.rollouts) browseNewest();
  } else for (const id of ['curves-here', 'rollouts-here', 'newest']) fill(id);
  Object.assign(dirty, { stages: false, layout: false, curves: false, rollouts: false });
  showStatus();
}

// Select the running stage; of a run that has ended, one that has something to show.
function selectStage() {
  const at = drawn.stages.findIndex((stage) => stage.name === run?.opens);
  if (at < 0 || at === state.stage) return;
  Object.assign(state, { stage: at, step: null, group: null, i: null });
  Object.assign(dirty, { stages: true, layout: true, rollouts: true });
}

function stages() {
  $('name').textContent = visible(drawn.name);
  document.title = `${visible(drawn.name)} – veriloop watch`;
  if (run) fill('stages-here', run.stages.length ? rowsOf(run.heads, run.stages.map((one) => one.cells.map(visible))) : nothing('No stage has begun yet.'));
  pick();
}

function drawAll() {
  shownStage().curves = curvesOf(shownStage());
  curves();
}

function updateCharts() {
  const stage = shownStage();
  stage.curves = curvesOf(stage);
  const fresh = new Map(stage.curves.groups.flatMap((group) => group.charts).map((chart) => [chart.id, chart]));
  for (const one of cards) {
    one.chart = fresh.get(one.chart.id) || one.chart;
    one.steps = stage.curves.steps;
    values(one, null);
    near.observe(one.plot); // redrawn now, or when it scrolls into view
  }
}

function browseNewest() {
  const before = state.step;
  if (following()) Object.assign(state, { step: null, group: null, i: null });
  else fromHash(); // the opened answer may have arrived only now
  if (state.step !== before || !currentStep() || !$('rollouts-here').childElementCount) browse();
  const newest = shownStage().rollouts.at(-1)?.step;
  if (newest === undefined) return fill('newest');
  return fill('newest', following()
    ? el('span', { cls: 'quiet', text: 'showing the newest step' })
    : el('button', { type: 'button', id: 'follow', text: `show the newest: step ${newest}`, onclick: followNewest }));
}

function followNewest() {
  history.replaceState(null, '', location.pathname);
  chosen = false;
  dirty.rollouts = true;
  refresh();
}

// Show a stage. Called by buttons and links.
function show(position) {
  Object.assign(state, position);
  chosen = true;
  Object.assign(dirty, { stages: true, layout: true, rollouts: true });
  if ('step' in position && position.step === null) history.replaceState(null, '', link({}));
  refresh();
}

const span = (s) => (s < 120 ? `${Math.floor(s)} s` : s < 7200 ? `${Math.floor(s / 60)} min` : `${Math.floor(s / 3600)} h`);

// The status line: progress or outcome, failures, and the time since the last change.
function showStatus() {
  const quiet = changedAt === null ? 0 : (performance.now() - changedAt) / 1000;
  const running = (run?.stages || []).filter((one) => one.status === 'running');
  const parts = running.length ? running.map(progress) : [run?.stages.length ? run.ended : 'nothing recorded yet'];
  for (const one of run?.stages || []) if (one.failure) parts.push(`${one.name}: ${one.failure}`);
  if (run && quiet >= 5) parts.push(`nothing new for ${span(quiet)}`);
  if (!connected) parts.unshift('no connection to veriloop watch, reconnecting');
  const pace = Math.max(...running.map((one) => stageOf(one.name)?.last?.values.get('step_time') || 0), 0);
  $('state').textContent = visible(parts.join('; '));
  $('state').classList.toggle('late', !connected || (running.length > 0 && quiet > Math.max(LATE_S, 5 * pace)));
  const messages = [...problems.values()].flat();
  $('trouble').hidden = !messages.length;
  $('trouble').textContent = visible(messages.join('; ').slice(0, 2000));
}

function progress({ name, steps }) {
  const last = stageOf(name)?.last;
  if (!last) return `${name} is running`;
  const of = steps ? ` of ${steps}` : '';
  const left = steps && last.values.get('step_time') ? (steps - last.step) * last.values.get('step_time') : 0;
  return `${name} is running, step ${last.step}${of}${left > 0 ? `, about ${span(left)} left` : ''}`;
}

KEYS.f = ['show the newest step', followNewest];
listen();
$('theme').addEventListener('click', nextTheme);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
addEventListener('hashchange', follow);
setInterval(showStatus, 1000);
listenToRun();
document.documentElement.dataset.ready = 'yes';
