// Colours of the current theme, number formats, and basic elements.

const SERIES = ['--s1', '--s2', '--s3', '--s4', '--s5', '--s6', '--s7', '--s8'];
const KINDS = { right: '--right', partial: '--partial', wrong: '--wrong', no_answer: '--s5', timeout: '--watch', error: '--bad' };

const paint = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const series = (at) => paint(SERIES[at % SERIES.length]);

function faint(colour, alpha) {
  const parts = /^#(..)(..)(..)$/.exec(colour);
  if (!parts) return colour;
  return `rgba(${parts.slice(1).map((two) => parseInt(two, 16)).join(',')},${alpha})`;
}

function figure(value) {
  if (value === null || value === undefined) return '–';
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(1);
  return size >= 1000 ? Math.round(value).toLocaleString('en') : String(Number(value.toPrecision(3)));
}

function time(value) {
  if (value === null || value === undefined) return '–';
  if (value < 1e-3) return `${figure(value * 1e6)} µs`;
  return value < 1 ? `${figure(value * 1e3)} ms` : `${figure(value)} s`;
}

// Switch between the system's theme and the opposite one.
function nextTheme() {
  const { dataset } = document.documentElement;
  if (dataset.theme) delete dataset.theme;
  else dataset.theme = matchMedia('(prefers-color-scheme: dark)').matches ? 'light' : 'dark';
  redraw();
}

function scale() {
  return [[0, paint('--heat0')], [0.5, paint('--heat1')], [1, paint('--heat2')]];
}

const nothing = (text) => el('p', { cls: 'quiet', text });
const lacking = (what) => nothing(drawn.stages[state.stage].status === 'running' ? `No ${what} yet: the stage is running.` : `This stage recorded no ${what}.`);

function rowsOf(head, rows) {
  const cell = (inside, at) => el(at ? 'td' : 'th', at ? { 'data-column': head[at] } : { scope: 'row' }, inside);
  return el('div', { cls: 'scroll' }, el('table', {}, el('thead', {}, el('tr', {}, head.map((h) => el('th', { scope: 'col', text: h })))), el('tbody', {}, rows.map((row) => el('tr', {}, row.map(cell))))));
}
