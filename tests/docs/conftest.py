"""A folder in which every file that a page's commands name is there, the smallest that will do."""

import json
import re
import shutil
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from tests.rollouts import graded
from veriloop.data.problem import Problem
from veriloop.pipeline.config.load import read
from veriloop.pipeline.runs.record import StageRecord
from veriloop.stages.commands.verifier import PLUGIN, QUESTIONS, RECIPE
from veriloop.verifiers.verdict import Verdict

ROOT = Path(__file__).parents[2]
CHECKPOINTS = (
    "FOLDER",
    "MODEL",
    "models/my-base",
    "models/mine",
    "models/liking",
    "models/student",
    "models/SmolLM2-15-layers",
    "models/Qwen2.5-0.5B",
    "models/SmolLM2-135M-Instruct",
    "outputs/first/zero/checkpoints/step_000050",
    "outputs/mine/zero/checkpoints/step_000050",
    "outputs/mine/zero/checkpoints/step_000100",
    "outputs/tiny-zero-1/zero/checkpoints/step_000050",
    "outputs/tiny-reward_model-1/reward_model/checkpoints/step_000064",
    "outputs/demo/zero/checkpoints/step_000030",
    "outputs/cold/sft/checkpoints/step_000048",
)
RUNS = ("first", "mine", "other", "whole", "demo", "backwards-1")
ROWS = {"prompt": "What is 1+1?", "completion": "<answer>2</answer>", "label": True}
SUMS = [{"question": f"What is {n}+1?", "answer": f"#### {n + 1}"} for n in (1, 2)]  # as GSM8K
LINES = {
    "responses.jsonl": {"gold": "12", "response": "<answer>12</answer>"},
    "mine.jsonl": ROWS,
    "samples.jsonl": ROWS,
    "general.jsonl": ROWS,
    "exported.jsonl": {  # as `veriloop data export` writes it
        "id": "questions/train/0",
        "prompt": [{"role": "user", "content": "What do 4 pens of 3 euros cost?"}],
        "label": json.dumps(
            {"verifier": "math_answer", "reference": {"answer": "12"}, "facts": {}}
        ),
    },
    "questions.jsonl": {"question": "What do 4 pens of 3 euros cost?", "answer": "12"},
}
WORDED = [  # as SVAMP, of which a share is held out
    {
        "ID": str(n),
        "Body": f"Ann has {n}.",
        "Question": "And 1?",
        "Equation": f"{n} + 1",
        "Answer": n + 1.0,
        "Type": "Addition",
    }
    for n in range(20)
]


def rollout(group, right):
    problem = Problem(
        id=f"sums/rl/{group}", prompt="What is 1+1?", verifier="number", reference={"value": "2"}
    )
    return graded(
        said="<think>1+1</think><answer>2</answer>",
        group=f"40/{group}",
        problem=problem,
        logp=(-0.5, -0.5),
        verdicts={
            "accuracy": Verdict(score=float(right), answer="2"),
            "format": Verdict(score=1.0),
        },
        reward=1.0 + right,
    )


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """A run of one stage with forty steps, the rollouts of the last, and evaluated ones."""
    folder = tmp_path_factory.mktemp("recorded")
    record = StageRecord(folder / "zero", tensorboard=False)
    for step in range(1, 41):
        record.write_metrics(step, {"reward": 1.0 + step / 40, "grad_norm": 1.0})
    graded = [rollout(group, right) for group in range(4) for right in (True, False)]
    record.write_rollouts(40, graded, [0.5, -0.5] * 4)
    record.write_evaluated(40, graded)
    record.close()
    recipe = read("tiny/zero").model_dump(mode="json")
    stage = {"name": "zero", "status": "done", "seconds": 1.0, "before": {}, "after": {}}
    stage |= {"sampler": "torch", "inputs": {"recipe": recipe}, "outputs": {}}
    told = {"name": "run", "stages": [stage], "resumed": []}
    (folder / "run.json").write_text(json.dumps(told))
    return folder


def parity():
    """README's verifier, as it stands there."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (found,) = [block for block in blocks if '"parity"' in block]
    return found


@pytest.fixture(scope="session")
def long_checkpoint(tiny_checkpoint, tmp_path_factory):
    """Folder of a tiny model with as many positions as the recipes of the pages ask for."""
    folder = tmp_path_factory.mktemp("long") / "model"
    shutil.copytree(tiny_checkpoint(), folder)
    config = json.loads((folder / "config.json").read_text())
    config["max_position_embeddings"] = 131_072
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def workplace(tmp_path, monkeypatch, long_checkpoint, recorded):
    """Function: go into a folder with all that commands name; `runs` says whether runs lie there.

    Without them, stages begin where the pages say; outputs/tiny-zero-1 is a run to go on with.
    """

    def enter(*, runs=True):
        for name in ("recipes", "tests", "benchmarks", "requirements"):
            (tmp_path / name).symlink_to(ROOT / name)
        for name in CHECKPOINTS:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).symlink_to(long_checkpoint)
        for name in [f"outputs/{run}" for run in RUNS] if runs else []:
            shutil.copytree(recorded, tmp_path / name, dirs_exist_ok=True)
        shutil.copy(recorded / "run.json", tmp_path / "outputs/tiny-zero-1/run.json")
        for name, row in LINES.items():
            (tmp_path / name).write_text(json.dumps(row) + "\n")
        (tmp_path / "svamp.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in WORDED))
        shutil.copy(ROOT / "recipes/tiny/zero.yaml", tmp_path / "mine.yaml")
        shutil.copytree(ROOT / "tests/sandbox/cases", tmp_path / "my/attacks")
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine/parity.py").write_text(parity())
        for name in ("backwards", "mycheck"):  # as `veriloop verifier new` writes them
            (tmp_path / f"mine/{name}.py").write_text(PLUGIN.format(name=name))
            (tmp_path / f"mine/{name}.yaml").write_text(RECIPE.format(name=name, folder="mine"))
            (tmp_path / f"mine/{name}.jsonl").write_text(QUESTIONS)
        (tmp_path / "token").write_text("secret\n")
        (tmp_path / "rootfs.tar").write_bytes(b"")
        (tmp_path / "DIR").mkdir()
        (tmp_path / "DIR/train.jsonl").write_text("".join(json.dumps(s) + "\n" for s in SUMS))
        for name in ("train.parquet", "test.parquet"):
            parquet.write_table(pyarrow.Table.from_pylist(SUMS), tmp_path / name)
        monkeypatch.chdir(tmp_path)
        return tmp_path

    return enter
