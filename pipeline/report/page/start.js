// Draw everything for one stage; initialise the page.

function show(position) {
  Object.assign(state, position);
  pick();
  curves();
  groups();
  verdicts();
  rewardHacks();
  browse();
}

const first = drawn.stages.findIndex((stage) => stage.rollouts);
state.stage = first >= 0 ? first : Math.max(drawn.stages.findIndex((s) => s.curves.groups.length), 0);
fromHash();
listen();
$('theme').addEventListener('click', nextTheme);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
addEventListener('hashchange', follow);
if (drawn.stages.length) {
  $('rollouts-here').before(searchPanel());
  show({});
  follow();
}
document.documentElement.dataset.ready = 'yes';
