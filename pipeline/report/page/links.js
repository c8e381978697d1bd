// The page shows one stage. Links, buttons and keys select another one.

function pick() {
  const count = drawn.stages.length;
  fill('picker', count > 1 ? drawn.stages.map((stage, at) => el('button', {
    type: 'button', 'aria-pressed': String(at === state.stage), text: stage.name,
    onclick: () => show({ stage: at, set: 'train', step: null, group: null, i: null }),
  })) : null);
}

// Follow a link into the page: to an answer, a chart or a section.
function follow() {
  const before = state.stage;
  if (!fromHash()) return;
  if (state.stage !== before) show({});
  if (state.chart) {
    const target = document.getElementById(`chart-${state.chart}`);
    if (target) {
      target.closest('details')?.setAttribute('open', '');
      target.scrollIntoView({ block: 'center' });
      for (const card of document.querySelectorAll('.card')) card.classList.toggle('found', card === target);
    }
  } else if (state.step !== null || state.group !== null) open({}, true);
}
