// An answer token by token, coloured by what the update used for each token.

const TAU = 0.1; // nats; tokens with a larger difference between sampler and trainer are marked
const MODES = { advantage: 'advantage', off: 'trainer − sampler', entropy: 'entropy', none: 'plain' };

// Invisible characters and direction marks, shown as visible symbols.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
const visible = (text) => (text ?? '').replace(UNSEEN, (c) => {
  const code = c.codePointAt(0);
  return code < 32 ? String.fromCodePoint(0x2400 + code) : `⟨${code.toString(16).padStart(4, '0')}⟩`;
});

function tokenText(tokens, at) {
  return tokens.pieces ? (currentStep().pieces || rollouts().pieces)[tokens.pieces[at]] : ` ${tokens.ids[at]}`;
}

const count = (tokens) => (tokens.pieces || tokens.ids).length;
const advantageAt = (tokens, at) => (Array.isArray(tokens.advantage) ? tokens.advantage[at] : tokens.advantage);

function valueAt(tokens, at) {
  if (state.mode === 'advantage') return advantageAt(tokens, at) ?? 0;
  if (state.mode === 'off') return (tokens.off?.[at] ?? 0) / 1e4;
  return state.mode === 'entropy' ? (tokens.entropy?.[at] ?? 0) / 1e3 : 0;
}

function largest(answers) {
  let most = 1e-9;
  for (const { tokens } of answers) {
    if (tokens) for (let at = 0; at < count(tokens); at += 1) most = Math.max(most, Math.abs(valueAt(tokens, at)));
  }
  return most;
}

function background(value, most) {
  if (state.mode === 'none' || value === 0) return null;
  const name = state.mode === 'entropy' ? '--heat2' : value < 0 ? '--down' : '--up';
  return faint(paint(name), (0.6 * Math.min(Math.abs(value) / most, 1) ** 0.6).toFixed(3));
}

const scaled = (value, scale) => (value === null ? null : value / scale); // null: not finite

function describe(tokens, at, clipped) {
  const lines = [`token ${at}, ${tokens.pieces ? JSON.stringify(visible(tokenText(tokens, at))) : `id ${tokens.ids[at]}`}`];
  lines.push(`log-prob as sampled ${figure(scaled(tokens.logp[at], 1e3))}`);
  if (tokens.off) {
    lines.push(`trainer − sampler ${figure(scaled(tokens.off[at], 1e4))}`, `entropy ${figure(scaled(tokens.entropy[at], 1e3))}`, `advantage ${figure(advantageAt(tokens, at))}`);
  } else lines.push('not trained on, or its update was not recorded');
  if (clipped) lines.push(clipped < 0 ? 'clipped, with a negative advantage' : 'clipped, with a positive advantage');
  return lines.join('\n');
}

function tokenView(answer, group) {
  const { tokens } = answer;
  if (!tokens) return el('pre', { cls: 'text', dir: 'ltr', text: visible(answer.text) });
  const clipped = new Map(tokens.clipped || []);
  const most = largest(group.answers);
  const spans = Array.from({ length: count(tokens) }, (_, at) => {
    const colour = background(valueAt(tokens, at), most);
    const marks = ['token', clipped.has(at) ? 'clipped' : '', Math.abs((tokens.off?.[at] ?? 0) / 1e4) > TAU ? 'off' : ''];
    return el('span', { cls: marks.join(' ').trim(), 'data-at': at, style: colour && `background:${colour}`, text: visible(tokenText(tokens, at)) });
  });
  const view = el('pre', { cls: 'text tokens', dir: 'ltr' }, spans);
  view.addEventListener('mouseover', (event) => {
    const at = event.target.dataset?.at;
    if (at !== undefined) hover(event.target, describe(tokens, Number(at), clipped.get(Number(at))));
  });
  view.addEventListener('mouseleave', () => hover(null));
  if (answer.length > count(tokens)) view.append(el('span', { cls: 'quiet', text: ` … ${(answer.length - count(tokens)).toLocaleString('en')} more tokens` }));
  return view;
}

function hover(target, text) {
  const tip = $('tip') || document.body.appendChild(el('div', { id: 'tip', role: 'tooltip' }));
  tip.hidden = !target;
  if (!target) return;
  tip.textContent = text;
  const box = target.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(box.left, innerWidth - tip.offsetWidth - 12))}px`;
  tip.style.top = `${box.bottom + 8 + tip.offsetHeight > innerHeight ? box.top - tip.offsetHeight - 6 : box.bottom + 6}px`;
}

function tokenTools(answer, group) {
  const { tokens } = answer;
  if (!tokens) return el('p', { cls: 'quiet', text: 'The tokens of this answer are not on the page, since its group is long.' });
  const modes = Object.entries(MODES).filter(([mode]) => tokens.off || mode === 'none');
  if (!tokens.off) return el('p', { cls: 'quiet', text: 'Updates on these tokens are not recorded: they were not trained on, or by an earlier version.' });
  const buttons = modes.map(([mode, name]) => el('button', {
    type: 'button', 'aria-pressed': String(state.mode === mode), text: name,
    onclick: () => { state.mode = mode; showTokens(); },
  }));
  const far = tokens.off.filter((off) => Math.abs(off / 1e4) > TAU).length;
  const jump = el('button', { type: 'button', id: 'jump', disabled: !far, text: `next of ${far} with |Δ| > ${TAU}`, onclick: jumpOn });
  const clips = (tokens.clipped || []).length;
  const strongest = state.mode === 'none' ? '' : `, strongest colour: ${figure(largest(group.answers))}`;
  return [el('span', { cls: 'pills' }, buttons), jump, el('span', { cls: 'quiet', text: `${clips} clipped${strongest}` })];
}

let jumped = -1;
function jumpOn() {
  const marked = [...document.querySelectorAll('.tokens .off')];
  if (!marked.length) return;
  jumped = (jumped + 1) % marked.length;
  marked.forEach((one, at) => one.classList.toggle('here', at === jumped));
  marked[jumped].scrollIntoView({ block: 'center' });
}

function showTokens() {
  const [group, answer] = [currentGroup(), currentAnswer()];
  if (!answer || !$('token-view')) return;
  jumped = -1;
  hover(null);
  fill('token-tools', tokenTools(answer, group));
  fill('token-view', tokenView(answer, group));
}
