// Search in the sampled responses and prompts of all stages, with filters.

const SHOWN = 50; // results at most
const query = { text: '', verdict: '', source: '', stage: '', step: '' };
let entries = null; // one per response

function searchable() {
  entries ||= drawn.stages.flatMap(({ name }, stage) => ['train', 'held_out'].flatMap((set) => rollouts(stage)[set].flatMap(
    ({ step, groups }) => groups.flatMap((group) => group.answers.map((answer) => ({
      position: { stage, set, step, group: group.index, i: answer.i },
      name, step: String(step), source: group.source, verdict: verdictOf(answer), text: answer.text,
      lower: `${answer.text}\n${group.prompt}`.toLowerCase(),
    }))))));
  return entries;
}

// The kind of the accuracy verdict, or of the first one.
function verdictOf({ verdicts }) {
  const one = verdicts.find(({ name }) => name === 'accuracy') || verdicts[0];
  if (!one) return 'not judged';
  if (one.status !== 'graded') return one.status.replace('_', ' ');
  return one.score === 1 ? 'right' : one.score === 0 ? 'wrong' : 'partial';
}

function matching() {
  const text = query.text.toLowerCase();
  return searchable().filter((one) => (!text || one.lower.includes(text))
    && (!query.verdict || one.verdict === query.verdict) && (!query.source || one.source === query.source)
    && (!query.stage || one.name === query.stage) && (!query.step || one.step === query.step));
}

function results() {
  if (!Object.values(query).some(Boolean)) return fill('results');
  const all = matching();
  fill(
    'results',
    el('p', { cls: 'quiet small', text: `${all.length.toLocaleString('en')} of ${searchable().length.toLocaleString('en')} sampled responses${all.length > SHOWN ? `, the first ${SHOWN}` : ''}` }),
    el('ol', { cls: 'results' }, all.slice(0, SHOWN).map((one) => el('li', {}, el('button', { type: 'button', onclick: () => reveal(one.position) },
      `${one.name}${one.position.set === 'held_out' ? ', held out' : ''}, step ${one.step}, group ${one.position.group}, answer ${one.position.i}, ${one.verdict} `,
      el('span', { cls: 'snippet quiet', text: visible(around(one)) }))))),
  );
}

// The text around the match; the start of the response if the match is in its prompt.
function around({ text }) {
  const at = query.text ? text.toLowerCase().indexOf(query.text.toLowerCase()) : 0;
  return text.slice(Math.max(at - 30, 0), Math.max(at - 30, 0) + 120);
}

function reveal(position) {
  if (position.stage === state.stage) open(position, true);
  else {
    show(position);
    open({}, true);
  }
}

function filter(key, compare) {
  const values = [...new Set(searchable().map((one) => (key === 'stage' ? one.name : one[key])))].sort(compare);
  return el('label', {}, `${key} `, el('select', { id: `filter-${key}`, onchange: (event) => { query[key] = event.target.value; results(); } },
    el('option', { value: '', text: 'all' }), values.map((value) => el('option', { value, text: visible(value) }))));
}

// Built when first opened, since it reads the samples of every stage.
function searchPanel() {
  const panel = el('details', { id: 'search' }, el('summary', { text: 'Search and filter' }));
  panel.addEventListener('toggle', () => panel.append(
    el('div', { cls: 'tools' },
      el('input', { type: 'search', id: 'search-text', placeholder: 'text in response or prompt', 'aria-label': 'text in response or prompt', oninput: (event) => { query.text = event.target.value; results(); } }),
      filter('verdict'), filter('source'), filter('stage'), filter('step', (a, b) => a - b)),
    el('div', { id: 'results' }),
  ), { once: true });
  return panel;
}
