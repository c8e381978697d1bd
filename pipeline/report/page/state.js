// The data of the page, its state, and helpers that create elements.
// Text written by a model reaches the page only as textContent.

const $ = (id) => document.getElementById(id);
const drawn = JSON.parse($('drawn').textContent);
const state = { stage: 0, set: 'train', step: null, group: null, i: null, mode: 'advantage', chart: null };
const parsed = new Map(); // rollouts by stage

function el(name, attributes, ...inside) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === 'text') element.textContent = value;
    else if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else if (key === 'style') element.style.cssText = value;
    else element.setAttribute(key === 'cls' ? 'class' : key, value === true ? '' : value);
  }
  element.append(...inside.flat(2).filter((one) => one !== null && one !== undefined && one !== false));
  return element;
}

function fill(id, ...inside) {
  const element = typeof id === 'string' ? $(id) : id;
  element.replaceChildren(...inside.flat(2).filter(Boolean));
  return element;
}

function rollouts(stage = state.stage) {
  if (!parsed.has(stage)) {
    const script = $(`rollouts-${stage}`);
    const sample = script ? JSON.parse(script.textContent) : {};
    parsed.set(stage, { train: sample.train || [], held_out: sample.held_out || [], pieces: sample.pieces || [] });
  }
  return parsed.get(stage);
}

const stepsOf = (set = state.set) => rollouts()[set];
const currentStep = () => stepsOf().find((one) => one.step === state.step);
const currentGroup = () => currentStep()?.groups.find((one) => one.index === state.group);
const ranked = (group) =>
  [...group.answers].sort((a, b) => (b.reward ?? -1e9) - (a.reward ?? -1e9) || a.i - b.i);
const currentAnswer = () => currentGroup()?.answers.find((one) => one.i === state.i);

// Select the nearest existing step, group and answer, since a link may point to an answer that the
// sample lacks. Returns notes on what was missing.
function settle() {
  const notes = [];
  if (!stepsOf().length) state.set = stepsOf('train').length ? 'train' : 'held_out';
  const steps = stepsOf();
  if (!steps.length) return notes;
  if (!currentStep()) {
    const target = state.step ?? steps[steps.length - 1].step;
    const near = steps.reduce((a, b) => (Math.abs(b.step - target) < Math.abs(a.step - target) ? b : a));
    if (state.step !== null) notes.push(`step ${target} is not in the sample; this is step ${near.step}`);
    state.step = near.step;
  }
  if (!currentGroup()) {
    if (state.group !== null) notes.push(`group ${state.group} is not in the sample`);
    state.group = (currentStep().groups.find((one) => one.why.startsWith('most divided')) || currentStep().groups[0]).index;
    state.i = null;
  }
  if (!currentAnswer()) {
    if (state.i !== null) notes.push(`answer ${state.i} is not in the sample`);
    state.i = ranked(currentGroup())[0].i;
  }
  return notes;
}

function fromHash() {
  const query = new URLSearchParams(location.hash.slice(1));
  if (![...query.keys()].some((key) => ['stage', 'step', 'group', 'i', 'chart', 'set'].includes(key))) return false;
  const named = drawn.stages.findIndex((one) => one.name === query.get('stage'));
  if (named >= 0) state.stage = named;
  const number = (key) => (/^\d{1,12}$/.test(query.get(key) || '') ? Number(query.get(key)) : null);
  state.set = query.get('set') === 'held_out' ? 'held_out' : 'train';
  state.step = number('step');
  state.group = number('group');
  state.i = number('i');
  state.chart = query.get('chart');
  return true;
}

function link(position) {
  const query = { stage: drawn.stages[state.stage].name, ...position };
  return `#${new URLSearchParams(Object.entries(query).filter(([, value]) => value !== null))}`;
}

const here = () =>
  link({ ...(state.set === 'held_out' ? { set: 'held_out' } : {}), step: state.step, group: state.group, i: state.i });
