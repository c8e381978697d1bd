"""The rows that the live page stores of a long stage."""

from pathlib import Path

import pytest

from benchmarks.chromium import Chromium, find_chromium
from veriloop.pipeline.watch import page

SCRIPT = Path(page.__file__).parent / "page" / "growing.js"
ROWS = """
const stage = emptyStage('sft');
for (let step = 0; step < COUNT; step += 1) {
  const columns = { loss: [step] };
  if (step % EVERY === 7) columns.eval_loss = [step];
  grow(stage, { steps: [step], columns });
}
const held_out = stage.columns.get('eval_loss').filter((y) => y !== null);
return { steps: curvesOf(stage).steps, stored: stage.steps.length, held_out, every: stage.every };
"""

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(find_chromium() is None, reason="no Chromium is installed"),
]


@pytest.fixture(scope="module")
def browser():
    with Chromium() as opened:
        opened.open("about:blank")
        yield opened


@pytest.fixture
def grown(browser):
    """Function: a stage of so many steps, with a held-out loss at every n-th."""

    def grow(count, every):
        rows = ROWS.replace("COUNT", str(count)).replace("EVERY", str(every))
        return browser.value(f"(() => {{ {SCRIPT.read_text()} {rows} }})()")

    return grow


def test_a_metric_of_few_steps_outlasts_the_thinning_of_a_long_stage(grown):
    stage = grown(5000, 1000)
    assert stage["held_out"] == [7, 1007, 2007, 3007, 4007]
    assert stage["every"] == 8 and stage["steps"][-1] == 4999


def test_a_metric_of_every_eleventh_step_takes_bounded_memory(grown):
    stage = grown(20_000, 11)
    assert stage["stored"] <= 1200 and len(stage["held_out"]) >= 150
    assert stage["steps"][-1] == 19_999
