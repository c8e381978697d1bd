// The data of the page, the one state it is in, and the elements that show it.
// Whatever a model wrote reaches the page as textContent and in no other way.

const $ = (id) => document.getElementById(id);
const drawn = JSON.parse($('drawn').textContent);
const state = { stage: 0, set: 'train', step: null, group: null, i: null, mode: 'advantage', chart: null };
const kept = new Map(); // rollouts that have been read, by stage

function el(name, attributes, ...inside) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === 'text') made.textContent = value;
    else if (key.startsWith('on')) made.addEventListener(key.slice(2), value);
    else if (key === 'style') made.style.cssText = value;
    else made.setAttribute(key === 'cls' ? 'class' : key, value === true ? '' : value);
  }
  made.append(...inside.flat(2).filter((one) => one !== null && one !== undefined && one !== false));
  return made;
}

function fill(id, ...inside) {
  const here = typeof id === 'string' ? $(id) : id;
  here.replaceChildren(...inside.flat(2).filter(Boolean));
  return here;
}

function rollouts(stage = state.stage) {
  if (!kept.has(stage)) {
    const held = $(`rollouts-${stage}`);
    const told = held ? JSON.parse(held.textContent) : {};
    kept.set(stage, { train: told.train || [], held_out: told.held_out || [], pieces: told.pieces || [] });
  }
  return kept.get(stage);
}

const stepsOf = (set = state.set) => rollouts()[set];
const currentStep = () => stepsOf().find((one) => one.step === state.step);
const currentGroup = () => currentStep()?.groups.find((one) => one.place === state.group);
const ranked = (group) =>
  [...group.answers].sort((a, b) => (b.reward ?? -1e9) - (a.reward ?? -1e9) || a.i - b.i);
const currentAnswer = () => currentGroup()?.answers.find((one) => one.i === state.i);

// What lies nearest to what was asked, so that a link to an answer that the sample lacks leads
// somewhere; says what was missed.
function settle() {
  const told = [];
  if (!stepsOf().length) state.set = stepsOf('train').length ? 'train' : 'held_out';
  const steps = stepsOf();
  if (!steps.length) return told;
  if (!currentStep()) {
    const asked = state.step ?? steps[steps.length - 1].step;
    const near = steps.reduce((a, b) => (Math.abs(b.step - asked) < Math.abs(a.step - asked) ? b : a));
    if (state.step !== null) told.push(`step ${asked} is not in the sample; this is step ${near.step}`);
    state.step = near.step;
  }
  if (!currentGroup()) {
    if (state.group !== null) told.push(`group ${state.group} is not in the sample`);
    state.group = (currentStep().groups.find((one) => one.why.startsWith('most divided')) || currentStep().groups[0]).place;
    state.i = null;
  }
  if (!currentAnswer()) {
    if (state.i !== null) told.push(`answer ${state.i} is not in the sample`);
    state.i = ranked(currentGroup())[0].i;
  }
  return told;
}

function fromHash() {
  const asked = new URLSearchParams(location.hash.slice(1));
  if (![...asked.keys()].some((key) => ['stage', 'step', 'group', 'i', 'chart', 'set'].includes(key))) return false;
  const named = drawn.stages.findIndex((one) => one.name === asked.get('stage'));
  if (named >= 0) state.stage = named;
  const number = (key) => (/^\d{1,12}$/.test(asked.get(key) || '') ? Number(asked.get(key)) : null);
  state.set = asked.get('set') === 'held_out' ? 'held_out' : 'train';
  state.step = number('step');
  state.group = number('group');
  state.i = number('i');
  state.chart = asked.get('chart');
  return true;
}

function link(place) {
  const told = { stage: drawn.stages[state.stage].name, ...place };
  return `#${new URLSearchParams(Object.entries(told).filter(([, value]) => value !== null))}`;
}

const here = () =>
  link({ ...(state.set === 'held_out' ? { set: 'held_out' } : {}), step: state.step, group: state.group, i: state.i });
