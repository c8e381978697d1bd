"""lm_eval is told what to ask and where; a stand-in says what it was told, and one test runs it."""

import json
import os
import sys

import pytest
import yaml

from data.template import R1_ZERO
from stages import lm_eval
from stages.command import main

STAND_IN = """
import json, os, sys, urllib.request
from pathlib import Path
import yaml
assert sys.argv[1:4] == ["-m", "lm_eval", "run"] or sys.exit(5)
config = yaml.safe_load(Path(sys.argv[5]).read_text())
if "--fail" in sys.argv:
    sys.exit(3)
body = {"prompt": ["1+2="], "max_tokens": 3, "temperature": 0, "model": "m"}
request = urllib.request.Request(config["model_args"]["base_url"], json.dumps(body).encode())
answer = json.load(urllib.request.urlopen(request, timeout=30))
found = {"results": {task: {"alias": task, "acc,none": 0.25, "acc_stderr,none": 0.1, "n,none": 4}
                     for task in config["tasks"]}, "said": answer, "more": sys.argv[6:]}
folder = Path(config["output_path"]) / "model"
folder.mkdir(parents=True, exist_ok=True)
(folder / f"results_{os.getpid()}.json").write_text(json.dumps(found))
"""
GENERATE = """
task: tiny_sums
dataset_path: json
dataset_kwargs: {{data_files: {{test: {rows}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{text}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["|"], do_sample: false, max_gen_toks: 8, skip_special_tokens: false}}
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
"""
CHOOSE = """
task: tiny_choice
dataset_path: json
dataset_kwargs: {{data_files: {{test: {rows}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}="
doc_to_choice: ["1", "2", "3"]
doc_to_target: 0
target_delimiter: ""
metric_list: [{{metric: acc, aggregation: mean, higher_is_better: true}}]
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """An interpreter that runs the stand-in, whatever it is asked to run."""
    script, python = tmp_path / "stand_in.py", tmp_path / "python"
    script.write_text(STAND_IN)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {script} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(lm_eval, "PYTHON", python)


@pytest.fixture
def words(tiny_checkpoint, tmp_path):
    """Function: `veriloop evaluate CHECKPOINT --lm-eval a b` with more flags."""

    def made(*more):
        flags = ["--sampler.engine", "torch", "--output", str(tmp_path / "out")]
        return ["evaluate", str(tiny_checkpoint()), "--lm-eval", "a", "b", *flags, *more]

    return made


@pytest.mark.slow
@pytest.mark.usefixtures("stand_in")
def test_it_is_told_the_tasks_and_asks_the_checkpoint(words, tmp_path, capsys, tiny_checkpoint):
    result = tmp_path / "result.json"
    assert main(words("--batch", "5", "--json", str(result), "--", "--num_fewshot", "2")) == 0
    config = yaml.safe_load((tmp_path / "out/config.yaml").read_text())
    told = config["model_args"]
    assert (config["model"], config["tasks"]) == ("local-completions", ["a", "b"])
    assert config["batch_size"] == 5 and told["max_length"] == 1024
    assert told["tokenizer"] == told["model"] == str(tiny_checkpoint())
    assert told["add_bos_token"] is True  # the tokenizer begins every text with one
    found = json.loads(result.read_text())
    assert found["more"] == ["--num_fewshot", "2"]
    assert found["said"]["choices"][0]["finish_reason"] == "length"
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["a", "acc", "none", "0.2500", "0.1000"] in rows and ["b", "n", "none", "4"] in rows
    again = words("--max-length", "64", "--", "--apply_chat_template")
    assert main(again) == 0  # beside the results that are there
    told = yaml.safe_load((tmp_path / "out/config.yaml").read_text())["model_args"]
    assert told["max_length"] == 64
    assert told["add_bos_token"] is False  # the template writes one


@pytest.mark.slow
@pytest.mark.usefixtures("stand_in")
def test_a_run_that_fails_is_a_failure(words, capsys):
    assert main(words("--", "--fail")) == 1
    assert "lm_eval ended with exit code 3 and 0 files of results" in capsys.readouterr().err


def test_without_its_environment_the_script_that_makes_it_is_named(
    words, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(lm_eval, "PYTHON", tmp_path / "absent")
    assert main(words()) == 2
    assert "`sh requirements/lm-eval.sh` makes" in capsys.readouterr().err


def test_a_folder_without_a_checkpoint_is_refused(tmp_path, capsys):
    assert main(["evaluate", str(tmp_path), "--lm-eval", "a"]) == 2
    assert "holds no Hugging Face checkpoint" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.lm_eval
@pytest.mark.skipif(not lm_eval.PYTHON.exists(), reason="sh requirements/lm-eval.sh makes it")
def test_lm_eval_itself_generates_and_scores(tiny_checkpoint, tmp_path, monkeypatch, capfd):
    """Of what it is to find, half is what the model says by itself, and all that it likes most."""
    from pipeline.completions import CompletionRequest, Completions

    model = Completions(tiny_checkpoint(), 8)

    def said(prompt, **more):
        asked = CompletionRequest(prompt=prompt, temperature=0.0, **more)
        return model.answer(asked)["choices"][0]

    questions = [f"{n}+{n}" for n in range(1, 7)]
    prompts = [R1_ZERO.format(prompt=one) for one in questions]
    answers = [said(p, max_tokens=8, skip_special_tokens=False)["text"] for p in prompts]
    rows = [
        {"question": question, "answer": answer if n % 2 else "something else"}
        for n, (question, answer) in enumerate(zip(questions, answers, strict=True))
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    text = R1_ZERO.format(prompt="{{question}}")
    for name, task in (("sums", GENERATE), ("choice", CHOOSE)):
        filled = task.format(rows=tmp_path / "rows.jsonl", text=text)
        (tasks / f"{name}.yaml").write_text(filled)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    result = tmp_path / "result.json"
    words = ["evaluate", str(tiny_checkpoint()), "--lm-eval", "tiny_sums", "tiny_choice"]
    words += ["--sampler.engine", "torch", "--output", str(tmp_path / "out"), "--json", str(result)]
    assert main([*words, "--", "--include_path", str(tasks)]) == 0, capfd.readouterr().err
    found = json.loads(result.read_text())["results"]
    assert found["tiny_sums"]["exact_match,none"] == 0.5

    def liking(question, choice):
        scored = said(f"{question}={choice}", echo=True, logprobs=1, max_tokens=0)
        return scored["logprobs"]["token_logprobs"][-1]

    first = [max("123", key=lambda c, q=q: liking(q, c)) == "1" for q in questions]
    assert found["tiny_choice"]["acc,none"] == pytest.approx(sum(first) / len(first))
    assert os.listdir(tmp_path / "out")
