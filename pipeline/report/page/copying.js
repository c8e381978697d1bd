// Copies from the page: a pytest case, a prompt, a link, the rows of a group.

function python(text) {
  return JSON.stringify(text); // a JSON string is also a Python string literal
}

// A test that the problem's verifier still gives this answer the recorded verdict.
function pytestCase(group, answer) {
  const verdict = answer.verdicts.find((one) => one.name === 'accuracy');
  const name = `${group.problem}_step_${state.step}_answer_${answer.i}`.replace(/\W+/g, '_').toLowerCase();
  return `"""One recorded answer and its verdict."""

import json

from veriloop.data.problem import Problem
from veriloop.verifiers.registry import judge

RESPONSE = ${python(answer.text)}


def test_${name}():
    problem = Problem(
        id=${python(group.problem)},
        prompt=${python(group.prompt)},
        verifier=${python(group.verifier)},
        reference=json.loads(${python(group.reference)}),
        facts=json.loads(${python(group.facts || '{}')}),
    )
    verdict = judge(problem, RESPONSE)
    assert (verdict.status, verdict.score) == (${python(verdict.status)}, ${verdict.score ?? 'None'})
`;
}

const whole = (text) => !/\n\[… [\d,]+ characters …\]\n/.test(text);

async function copy(button, text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.body.appendChild(el('textarea', {})); // pages from disk may lack a clipboard
    area.value = text;
    area.select();
    document.execCommand('copy');
    area.remove();
  }
  const before = button.textContent;
  button.textContent = 'copied';
  setTimeout(() => { button.textContent = before; }, 1200);
}

function download(name, rows) {
  const lines = rows.map((row) => `${JSON.stringify(row)}\n`).join('');
  const address = URL.createObjectURL(new Blob([lines], { type: 'application/jsonl' }));
  el('a', { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

function copies(group, answer) {
  const button = (text, id, content) => el('button', { type: 'button', id, text, onclick: (event) => copy(event.target, content()) });
  const judged = answer.verdicts.some((one) => one.name === 'accuracy');
  const test = judged && whole(answer.text) && whole(group.prompt);
  const { answers, ...about } = group;
  return el(
    'p',
    { cls: 'tools' },
    test ? button('Copy as pytest case', 'copy-test', () => pytestCase(group, answer)) : el('span', { cls: 'quiet', text: 'no test to copy: the answer is too long or was not judged' }),
    button('Copy prompt', 'copy-prompt', () => group.prompt),
    button('Copy answer', 'copy-answer', () => answer.text),
    button('Copy link', 'copy-link', () => location.href),
    el('button', { type: 'button', text: 'Group as JSONL', onclick: () => download(`step-${state.step}-group-${group.index}.jsonl`, answers.map((one) => ({ step: state.step, ...about, ...one }))) }),
  );
}
