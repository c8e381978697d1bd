"""The first minutes of four readers, who type what the pages say in a folder where nothing is yet.

A command that is no longer on its page cannot be typed. `reader.SHORTER` has what is added to the
commands that train.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from urllib.request import urlopen

import pytest

from tests.docs.reader import Reader, blocks, section
from veriloop.pipeline.sampling.ports import reserved_port
from veriloop.sandbox.probe import probe

pytestmark = pytest.mark.slow
CHAT = (  # a template of a published model, as short as it can be
    "{{ bos_token }}{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{{ eos_token }}"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)
PRINT = "print([(verdict.score, verdict.status) for verdict in verdicts])\n"


@pytest.fixture
def reader(tmp_path, long_checkpoint):
    """Has veriloop installed, and models/my-base, a model of their own."""
    here, programs, model = tmp_path / "here", tmp_path / "programs", tmp_path / "model"
    here.mkdir()
    programs.mkdir()
    shutil.copytree(long_checkpoint, model)
    (model / "chat_template.jinja").write_text(CHAT)
    with reserved_port("127.0.0.1") as port:
        yield Reader(here, model, programs, port.getsockname()[1])


def stage(reader, run):
    """The last entry of run.json, and the steps in its metrics."""
    entry = json.loads((reader.here / run / "run.json").read_text())["stages"][-1]
    metrics = (reader.here / run / entry["name"] / "metrics.jsonl").read_text().splitlines()
    return entry, [json.loads(line)["step"] for line in metrics]


def test_a_student_with_a_laptop(reader):
    reader.opens("README.md", "Use it")
    names = [line.split()[0] for line in reader.types("veriloop recipes ls").splitlines()]
    assert "tiny/zero" in names and "tiny/r1" in names
    plan = reader.types("veriloop zero tiny/zero --dry-run")
    assert "run folder" in plan and not (reader.here / "outputs").exists()
    said = reader.types("veriloop zero tiny/zero --rollout.prompts 16")
    entry, steps = stage(reader, "outputs/tiny-zero-1")
    assert entry["status"] == "done" and steps == [1, 2]
    assert entry["inputs"]["recipe"]["rollout"]["prompts"] == 16
    (checkpoint,) = re.findall(r"^checkpoint: (.*)$", said, re.MULTILINE)
    assert (reader.here / checkpoint / "config.json").is_file()
    (reader.here / "models/mine").symlink_to(reader.here / checkpoint)
    examines(reader, reader.command("veriloop doctor --model models/mine"))
    (reader.here / "outputs/tiny-zero-1").rename(reader.here / "outputs/mine")
    (reader.here / "outputs/mine/report.html").unlink()
    assert "report.html" in reader.types("veriloop report outputs/mine")
    assert "<html" in (reader.here / "outputs/mine/report.html").read_text()


def examines(reader, command):
    """The doctor finds no fault in this machine and the model, and names its checks of both."""
    said = reader.runs(command)
    verdicts = dict(re.findall(r"^(\S.*?) {2,}(ok|warn|fail|skipped)\b", said, re.MULTILINE))
    assert {"python", "sandbox", "weights", "log-probs, T=1"} <= verdicts.keys(), said
    assert verdicts["python"] == "ok" and ", 0 fail, " in said.splitlines()[-1]


def write_gsm8k(folder):
    """Rows in the columns of GSM8K, as a folder of the hub has them."""
    folder.mkdir()
    for split, first in (("train", 0), ("test", 100)):
        rows = [{"question": f"Ann has {n} pears and 1 more?", "answer": f"#### {n + 1}"}
                for n in range(first, first + 40)]  # fmt: skip
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_researcher_with_one_gpu(reader):
    write_gsm8k(reader.here / "DIR")
    reader.opens("docs/real.md", "Running a recipe")
    fetch = "hf download Qwen/Qwen2.5-0.5B --local-dir models/Qwen2.5-0.5B"
    reader.types(fetch)
    assert fetch in reader.types("veriloop recipes show real/zero_gsm8k_qwen2.5_0.5b")
    doctor = "veriloop doctor --model models/Qwen2.5-0.5B --sampler vllm --dtype bfloat16"
    examines(reader, reader.command(doctor).replace("vllm", "torch"))
    plan = reader.types("veriloop zero real/zero_gsm8k_qwen2.5_0.5b --dry-run")
    assert "- optimizer moments" in plan
    begin = reader.command(
        "veriloop zero real/zero_gsm8k_qwen2.5_0.5b --output outputs/gsm8k",
        "--steps 12 --start models/Qwen2.5-0.5B --sets.gsm8k.path DIR --evaluation.sources gsm8k "
        "--sampler.dtype float32 --sampler.no-sleep --trainer.compute float32 --trainer.row 512 "
        "--trainer.rows 1",
    )
    metrics = reader.here / "outputs/gsm8k/zero/metrics.jsonl"
    with reader.begins(begin) as shell:
        reader.waits(shell, lambda: metrics.exists() and metrics.read_text())
        os.killpg(shell.pid, signal.SIGINT)
        assert shell.wait(120) == 130, reader.said()
    (resume,) = re.findall(r"go on with: (.*)$", reader.said(), re.MULTILINE)
    reader.runs(resume)
    entry, steps = stage(reader, "outputs/gsm8k")
    assert entry["status"] == "done" and steps == list(range(1, 13))
    (reader.here / "outputs/mine").symlink_to("gsm8k")
    reader.opens("docs/watch.md")
    with reader.begins(reader.command("veriloop watch outputs/mine")) as shell:
        url = reader.waits(shell, lambda: re.match(r"(http://\S+): ", reader.said()))[1]
        assert "<html" in urlopen(url).read().decode()


def test_an_engineer_with_a_model_and_questions(reader):
    reader.opens("docs/own.md")
    reader.file("questions.jsonl", "json")
    judged = "--question '{question}' --answer answer --verifier math_answer --read number"
    assert "Anna has 7 apples" in reader.types(f"veriloop data show questions.jsonl {judged}")
    rows = [{"question": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(60)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (reader.here / "questions.jsonl").write_text(lines)
    reader.types(f"veriloop data check questions.jsonl {judged}")
    reader.file("mine.yaml", "yaml", "stage: zero")
    examines(reader, reader.command("veriloop doctor --recipe mine.yaml --model models/my-base"))
    plan = reader.types("veriloop zero mine.yaml --dry-run")
    assert "32 prompts x 8 responses = 256" in plan and "54 questions to learn from" in plan
    train = "veriloop zero mine.yaml --output outputs/mine"
    reader.types(train)
    reader.types(f"{train} --resume")
    entry, steps = stage(reader, "outputs/mine")
    assert entry["status"] == "done" and steps == [1, 2]
    reader.types("veriloop report outputs/mine")
    assert "reference" in reader.types("veriloop samples outputs/mine --wrong --sort length")
    (load,) = blocks(reader.page, "python")
    ask(
        reader,
        load.replace("step_000100", "step_000002") + "print(model.config.model_type)",
        "llama",
    )


def test_an_engineer_with_a_verifier_trains_and_judges_with_it(reader):
    reader.opens("docs/verifiers.md", "Add one")
    assert "BROKEN" not in reader.pastes("veriloop zero mine/backwards.yaml")
    entry, steps = stage(reader, "outputs/backwards-1")
    assert entry["status"] == "done" and steps == [1, 2]
    plugin = entry["lineage"]["inputs"]["plugins.0"]
    assert plugin["path"] == "mine/backwards.py" and len(plugin["sha256"]) == 64
    versions = json.loads((reader.here / "outputs/backwards-1/zero/versions.json").read_text())
    assert versions["verifiers"]["backwards"].startswith("1+")
    said = reader.pastes("veriloop rescore")
    assert json.loads(said.split("\n")[0])["score"] == 1.0 and "new verdicts: " in said
    reader.types("veriloop verifier new backwards --folder mine", code=2)
    assert "nothing was written" in reader.said()


def test_an_engineer_with_a_verifier_runs_trl_with_it(reader):
    reader.opens("docs/verifiers.md", "Add one")
    said = reader.pastes("python mine/backwards_trl.py models/my-base")
    assert "BROKEN" not in said
    rewards = re.findall(r"'rewards/backwards/mean': '?([\d.]+)", said)
    assert len(rewards) == 2 and all(0 <= float(reward) <= 1 for reward in rewards)
    assert (reader.here / "outputs/backwards-trl/model.safetensors").is_file()


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
def test_an_engineer_with_a_verifier_serves_it(reader):
    reader.opens("docs/verifiers.md", "Add one")
    reply = reader.pastes("veriloop serve").split("\n")[-1]
    assert [verdict["score"] for verdict in json.loads(reply)["verdicts"]] == [1.0, 0.0]


def test_a_team_with_its_own_trainer(reader):
    reader.opens("docs/interop.md", "Verdicts for another trainer")
    rows = [{"gold": "12", "response": rf"\boxed{{{n}}}"} for n in (12, 13)]
    (reader.here / "responses.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    said = reader.types("veriloop verify --verifier math_answer responses.jsonl")
    assert [json.loads(line)["score"] for line in said.splitlines()] == [1.0, 0.0]
    serve = "veriloop serve --port 8080 --verifiers number math_answer think_format --workers 2"
    code = blocks(section("docs/api.md"), "python")
    problem, pool, service, sandbox, losses = code
    with reader.begins(reader.command(serve)) as shell:
        reader.waits(shell, lambda: "Ctrl-C ends it" in reader.said())
        ask(reader, problem + service + PRINT, "[(1.0, 'graded')]")
        reward = "from veriloop.verifiers.adapters import trl\nprint(trl.reward('number')("
        reward += "prompts=['6+6'], completions=['<answer>12</answer>'], solution=['12']))"
        ask(reader, reward, "[1.0]", VERILOOP_SERVICE=f"http://127.0.0.1:{reader.port}")
    ask(reader, problem + pool + "    " + PRINT, "[(1.0, 'graded'), (0.0, 'graded')]")
    ask(reader, losses + "print([round(v, 3) for v in values_M.tolist()])", "[1.105, 1.0, -0.905]")
    if probe().tier:
        ask(reader, sandbox + "print(execution.ended, execution.value)", "ok 9")
    reader.opens("docs/coming_from.md")
    reader.file("mine.yaml", "yaml")
    assert "16 prompts x 8 responses = 128" in reader.runs("veriloop zero mine.yaml --dry-run")


def ask(reader, program, answer, **environment):
    """Has a program print an answer; beside the last text of shell, which may still run."""
    (reader.here / "program.py").write_text(program.replace("8080", reader.port))
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=reader.here, env=reader.environment | environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.strip() == answer, done.stdout + done.stderr
