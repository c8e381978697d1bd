"""The rows that the live page stores of a long stage."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from veriloop.pipeline.watch import page

SCRIPT = Path(page.__file__).parent / "page" / "growing.js"
ROWS = """
const stage = emptyStage('sft');
for (let step = 0; step < COUNT; step += 1) {
  const columns = { loss: [step] };
  if (step % EVERY === 7) columns.eval_loss = [step];
  grow(stage, { steps: [step], columns });
}
const { steps } = curvesOf(stage);
const found = stage.columns.get('eval_loss').filter((y) => y !== null);
console.log(JSON.stringify({ steps, stored: stage.steps.length, found, every: stage.every }));
"""


def grown(count, every):
    program = SCRIPT.read_text() + ROWS.replace("COUNT", str(count)).replace("EVERY", str(every))
    ran = subprocess.run(["node", "-e", program], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_a_metric_of_few_steps_outlasts_the_thinning_of_a_long_stage():
    told = grown(5000, 1000)
    assert told["found"] == [7, 1007, 2007, 3007, 4007]
    assert told["every"] == 8 and told["steps"][-1] == 4999


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_a_metric_of_every_eleventh_step_takes_bounded_memory():
    told = grown(20_000, 11)
    assert told["stored"] <= 1200 and len(told["found"]) >= 150 and told["steps"][-1] == 19_999
