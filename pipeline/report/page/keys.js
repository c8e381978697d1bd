// Keyboard shortcuts.

const KEYS = {
  j: ['next answer', () => move(1)],
  k: ['previous answer', () => move(-1)],
  J: ['next group', () => moveGroup(1)],
  K: ['previous group', () => moveGroup(-1)],
  ']': ['next step of the sample', () => moveStep(1)],
  '[': ['previous step of the sample', () => moveStep(-1)],
  t: ['next token colouring', () => nextMode()],
  n: ['next token on which sampler and trainer differ', () => jumpOn()],
  '?': ['show these keys', () => $('help').showModal()],
};

const neighbour = (list, at, by) => list[Math.max(0, Math.min(list.length - 1, at + by))];

function move(by) {
  const group = currentGroup();
  if (!group) return;
  const order = ranked(group);
  open({ i: neighbour(order, order.findIndex((one) => one.i === state.i), by).i });
}

function moveGroup(by) {
  const groups = currentStep()?.groups;
  if (groups) open({ group: neighbour(groups, groups.findIndex((one) => one.index === state.group), by).index, i: null });
}

function moveStep(by) {
  const steps = stepsOf();
  if (steps.length) open({ step: neighbour(steps, steps.findIndex((one) => one.step === state.step), by).step, group: null, i: null });
}

function nextMode() {
  const modes = Object.keys(MODES);
  state.mode = modes[(modes.indexOf(state.mode) + 1) % modes.length];
  showTokens();
}

function listen() {
  document.body.append(el('dialog', { id: 'help' },
    el('h3', { text: 'Keys' }),
    el('dl', { cls: 'facts' }, Object.entries(KEYS).map(([key, [name]]) => [el('dt', {}, el('kbd', { text: key })), el('dd', { text: name })])),
    el('form', { method: 'dialog' }, el('button', { text: 'Close' }))));
  document.addEventListener('keydown', (event) => {
    const typing = event.target.matches?.('textarea, select, input:not([type=range])');
    if (typing || event.ctrlKey || event.metaKey || event.altKey || $('help').open) return;
    if (event.key === 'Enter' && event.target.dataset?.i) open({ i: Number(event.target.dataset.i) });
    else if (KEYS[event.key]) {
      event.preventDefault();
      KEYS[event.key][1]();
    }
  });
}
