"""A verifier in a file of the user: into a training run, another trainer and the service."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.slow


@pytest.fixture
def run(tmp_path):
    """Function: run veriloop, or with `python` another program, in an empty folder."""

    def function(*words, python=False, code=0, **environment):
        program = [sys.executable, *([] if python else ["-m", "veriloop.stages.cli"])]
        done = subprocess.run(
            [*program, *map(str, words)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
            capture_output=True,
            text=True,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    return function


def test_a_new_verifier_trains_as_it_is_written_and_resumes(run, tmp_path, tiny_checkpoint):
    run("verifier", "new", "backwards", "--folder", "mine")
    words = ["zero", "mine/backwards.yaml", "--start", tiny_checkpoint(), "--output", "out"]
    words += ["--sampler.engine", "torch", "--rollout.max-tokens", "8", "--evaluation.problems", 2]
    words += ["--steps", 2]
    run(*words)
    stage = tmp_path / "out/zero"
    versions = json.loads((stage / "versions.json").read_text())["verifiers"]
    assert versions["backwards"].startswith("1+")
    manifest = json.loads((tmp_path / "out/run.json").read_text())
    (entry,) = [stage for stage in manifest["stages"] if stage["name"] == "zero"]
    plugin = entry["lineage"]["inputs"]["plugins.0"]
    assert plugin["path"] == "mine/backwards.py" and len(plugin["sha256"]) == 64
    assert len((stage / "metrics.jsonl").read_text().splitlines()) == 2
    run(*words, "--resume")  # a finished run stays as it is


def test_the_flag_adds_a_plugin_to_a_recipe_that_names_its_verifier(run, tmp_path):
    run("verifier", "new", "backwards", "--folder", "mine")
    recipe = (tmp_path / "mine/backwards.yaml").read_text().splitlines(keepends=True)
    without = "".join(line for line in recipe if not line.startswith("plugins"))
    (tmp_path / "mine/bare.yaml").write_text(without)
    words = ["zero", "mine/bare.yaml", "--dry-run"]
    run(*words, code=2)
    assert "- mine/backwards.py" in run(*words, "--plugin", "mine/backwards.py")
    assert "- mine/backwards.py" in run(*words, "--plugin=mine/backwards.py")


def test_trls_reward_and_the_service_judge_with_it(run, tmp_path):
    run("verifier", "new", "backwards", "--folder", "mine")
    (tmp_path / "reward.py").write_text(
        "from veriloop.verifiers.adapters import trl\n"
        "if __name__ == '__main__':\n"
        "    reward = trl.reward('backwards')\n"
        "    texts = ['<answer>cba</answer>', '<answer>abc</answer>']\n"
        "    print(reward(prompts=['', ''], completions=texts, solution=['abc', 'abc']))\n"
    )
    words = {"VERILOOP_PLUGINS": "mine/backwards.py"}
    assert run("reward.py", python=True, **words) == "[1.0, 0.0]\n"
    (tmp_path / "rows.jsonl").write_text('{"gold": "abc", "response": "<answer>cba</answer>"}\n')
    (tmp_path / "serve.py").write_text(
        "import json, sys\n"
        "from urllib.request import Request, urlopen\n"
        "from veriloop.verifiers.service.server import RewardService, Settings\n"
        "settings = Settings(port=0, verifiers=['backwards'], plugins=['mine/backwards.py'])\n"
        "if __name__ == '__main__':\n"
        "    with RewardService(settings) as service:\n"
        "        service.warm()\n"
        "        row = json.loads(open('rows.jsonl').read())\n"
        "        body = json.dumps({'items': [{'verifier': 'backwards', **row}]}).encode()\n"
        "        headers = {'Content-Type': 'application/json'}\n"
        "        reply = urlopen(Request(service.url + '/v1/verify', body, headers))\n"
        "        print(json.load(reply)['verdicts'][0]['score'])\n"
    )
    assert run("serve.py", python=True) == "1.0\n"


def test_what_a_plugin_prints_stays_out_of_the_verdicts(run, tmp_path):
    run("verifier", "new", "backwards", "--folder", "mine")
    path = tmp_path / "mine/backwards.py"
    noisy = path.read_text().replace(
        "    backwards = problem", "    print('noise')\n    backwards = problem"
    )
    path.write_text(f"print('loud')\n{noisy}")
    (tmp_path / "rows.jsonl").write_text('{"gold": "abc", "response": "<answer>cba</answer>"}\n')
    words = ["verify", "rows.jsonl", "--verifier", "backwards", "--plugin", "mine/backwards.py"]
    (line,) = run(*words).splitlines()
    assert json.loads(line)["score"] == 1.0
