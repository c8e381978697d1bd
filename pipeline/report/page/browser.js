// The rollout browser: a step, a group of answers to one prompt, one answer in full.

function browse() {
  const notes = settle();
  const steps = stepsOf();
  if (!steps.length) return fill('rollouts-here', lacking('rollouts'));
  const [group, answer] = [currentGroup(), currentAnswer()];
  fill(
    'rollouts-here',
    notes.length ? el('p', { cls: 'missed', text: `${notes.join('; ')}.` }) : null,
    el('div', { cls: 'tools' }, sets(), stepper(steps), el('span', { cls: 'quiet', text: 'j k answers · J K groups · [ ] steps' })),
    el('div', { cls: 'pills groups' }, currentStep().groups.map(groupPill)),
    promptOf(group),
    el('ol', { cls: 'answers' }, ranked(group).map((one) => answerCard(one))),
    detail(group, answer),
    thenAndNow(group),
  );
  showTokens();
  const chosen = document.querySelector('.answers [aria-current]');
  if (chosen) chosen.parentElement.scrollLeft = chosen.offsetLeft - chosen.parentElement.offsetLeft - 40;
}

function sets() {
  const both = ['train', 'held_out'].filter((set) => stepsOf(set).length);
  if (both.length < 2) return null;
  return el('span', { cls: 'pills' }, both.map((set) => el('button', {
    type: 'button', 'aria-pressed': String(state.set === set), text: set === 'train' ? 'training' : 'held out',
    onclick: () => open({ set, step: null, group: null, i: null }),
  })));
}

function stepper(steps) {
  const at = steps.findIndex((one) => one.step === state.step);
  const slide = el('input', { type: 'range', min: 0, max: steps.length - 1, value: at, id: 'step', 'aria-label': 'step', oninput: (event) => open({ step: steps[event.target.value].step, group: null, i: null }) });
  return el('label', {}, `Step ${state.step} `, slide, el('span', { cls: 'quiet', text: ` ${at + 1} of ${steps.length} in the sample` }));
}

function groupPill(group) {
  const mean = group.mean === null ? 'no reward' : figure(group.mean);
  return el('button', { type: 'button', 'aria-pressed': String(group.index === state.group), title: visible(group.problem), onclick: () => open({ group: group.index, i: null }) },
    el('b', { text: String(group.index) }), ` ${group.why} `, el('span', { cls: 'quiet', text: mean }));
}

function promptOf(group) {
  const reference = group.reference && group.reference !== '{}' ? group.reference : '–';
  return el('div', { cls: 'asked' },
    el('div', {}, el('h4', { text: 'Prompt' }), el('pre', { cls: 'text', dir: 'ltr', text: visible(group.prompt) })),
    el('dl', { cls: 'facts' },
      pair('problem', group.problem), pair('source', group.source), pair('verifier', group.verifier),
      pair('reference', reference.slice(0, 400)),
      pair('mean reward', `${figure(group.mean)} ± ${figure(group.spread)}, ${group.n} answers`)));
}

const pair = (name, text) => [el('dt', { text: name }), el('dd', { text: visible(text) })];
const badge = (one) => el('span', { cls: `badge ${one.status === 'graded' ? (one.score === 1 ? 'right' : one.score === 0 ? 'wrong' : 'partial') : one.status}`, title: one.name, text: `${one.name} ${one.status === 'graded' ? figure(one.score) : one.status.replace('_', ' ')}` });

function answerCard(answer) {
  const chosen = answer.i === state.i;
  return el('li', { 'aria-current': chosen ? 'true' : null, tabindex: 0, 'data-i': answer.i, onclick: () => open({ i: answer.i }) },
    el('p', { cls: 'sum' }, el('b', { text: answer.reward === null ? 'not judged' : figure(answer.reward) }), el('span', { cls: 'quiet', text: `advantage ${figure(answer.advantage)}` })),
    el('p', { cls: 'badges' }, answer.verdicts.map(badge)),
    el('pre', { cls: 'preview', dir: 'ltr', text: visible(answer.text.slice(0, 420)) }),
    el('p', { cls: 'quiet small foot', text: `#${answer.i}, ${answer.length.toLocaleString('en')} tokens, ${answer.finish === 'length' ? 'cut off' : 'ended'}` }));
}

function detail(group, answer) {
  const rows = answer.verdicts.map((one) => [
    one.name, one.status.replace('_', ' '), figure(one.score), el('span', { cls: 'snippet', text: visible(one.answer) || '–' }),
    el('span', { cls: 'snippet', text: visible(one.detail) || '–' }),
    one.parts ? Object.entries(one.parts).map(([name, value]) => `${name} ${figure(value)}`).join(', ') : '–',
  ]);
  return el('article', { cls: 'detail' },
    el('h4', { text: `Answer ${answer.i}: reward ${figure(answer.reward)}, advantage ${figure(answer.advantage)}` }),
    el('div', { id: 'token-tools', cls: 'tools' }),
    el('div', { id: 'token-view' }),
    rowsOf(['verifier', 'status', 'score', 'answer it read', 'detail', 'parts'], rows),
    answer.steps ? el('p', { cls: 'small', text: `scores of steps: ${answer.steps.map(([end, score]) => `${figure(score)} (to character ${end})`).join(', ') || 'no steps'}` }) : null,
    el('p', { cls: 'quiet small', text: `waited ${time(answer.queue_s)}, judged in ${time(answer.exec_s)}` }),
    copies(group, answer));
}

// The answers to the same prompt at its first and its last step.
function thenAndNow(group) {
  const occurrences = stepsOf().flatMap(({ step, groups }) => groups.filter((one) => one.problem === group.problem && one.prompt === group.prompt).map((one) => ({ step, group: one })));
  if (occurrences.length < 2) return stepsOf('held_out').length && state.set === 'train' ? el('p', { cls: 'quiet small once', text: 'This prompt occurs once in the sample; held-out prompts occur before and after training.' }) : null;
  const side = (at, name) => el('div', {},
    el('h5', {}, `${name}, step ${at.step} `, el('span', { cls: 'quiet', text: `mean reward ${figure(at.group.mean)}` })),
    ranked(at.group).slice(0, 3).map((one) => el('div', { cls: 'then' }, el('p', { cls: 'badges' }, one.verdicts.map(badge)), el('pre', { cls: 'text', dir: 'ltr', text: visible(one.text) }))));
  return el('div', { cls: 'then-and-now' }, el('h4', { text: `The same prompt at its first and last step, of ${occurrences.length} steps in the sample` }), el('div', { cls: 'two even' }, side(occurrences[0], 'First'), side(occurrences[occurrences.length - 1], 'Last')));
}

function open(position, scroll = false) {
  Object.assign(state, position);
  const focused = $('rollouts').contains(document.activeElement) && document.activeElement.id;
  browse();
  if (focused && $(focused)) $(focused).focus();
  if (stepsOf().length) history.replaceState(null, '', here());
  if (scroll || !inView($('rollouts-here'))) $('rollouts').scrollIntoView();
}

const inView = (one) => one.getBoundingClientRect().top < innerHeight && one.getBoundingClientRect().bottom > 0;
