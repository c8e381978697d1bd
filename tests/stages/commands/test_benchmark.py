"""`veriloop evaluate --set` on small files in each set's own columns, from flags to figures."""

import json
import re
from itertools import count

import pytest

from veriloop.pipeline.sampling.sampler import Completion
from veriloop.stages.cli import main
from veriloop.stages.commands import benchmark as set_evaluation
from veriloop.verifiers.verdict import Verdict

HUMANEVAL = {
    "task_id": "HumanEval/0",
    "prompt": 'def twice(n):\n    """Double it."""\n',
    "canonical_solution": "    return 2 * n\n",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n",
    "entry_point": "twice",
}
ROWS = {
    "gsm8k": [
        {"question": f"What is {n}+{n}?", "answer": f"{n}+{n}={2 * n}\n#### {2 * n}"}
        for n in range(5)
    ],
    "math500": [
        {"problem": "What is $1/2$?", "answer": "\\frac{1}{2}", "solution": "", "level": 1,
         "subject": "Algebra", "unique_id": "a/1"},
    ],
    "aime24": [{"problem": "Find $n$.", "answer": "33"}, {"problem": "Find $m$.", "answer": "x"}],
    "aime25": [{"problem": "Find $k$ in $k = 1 + 2$.", "answer": "3"}],
    "humaneval": [HUMANEVAL],
    "humaneval_plus": [HUMANEVAL],
    "mbpp": [
        {"task_id": 601, "text": "Add.", "code": "def add(a, b):\n    return a + b\n",
         "test_list": ["assert add(2, 3) == 5"], "test_setup_code": "",
         "challenge_test_list": []},
    ],
}  # fmt: skip
TWICE = "```python\ndef twice(n):\n    return n + n\n```"
ADD = "```python\ndef add(a, b):\n    return a + b\n```"
BOXES = {  # by words of the question
    "1/2": ["\\boxed{0.5}", "\\boxed{2}", "\\boxed{2.0}", "I do not know"],
    "Find $n$": ["\\boxed{33}", "\\boxed{34}", "\\boxed{34}", "\\boxed{35}"],
    "Find $k$": ["\\boxed{3}"] * 4,
    "twice": [TWICE, "no program", TWICE.replace("n + n", "n"), TWICE],
    "Add.": [ADD] * 4,
}


class Engine:
    """Answers by the question's words, in turn; otherwise with a box of 1. Told to, it dies."""

    name, version, pid = "told", 0, None
    dies_at = None

    def __init__(self, tokenizer):
        self.tokenizer, self.said, self.closed = tokenizer, {}, 0

    def sample(self, prompts, sampling, told=None):
        groups = []
        for place, prompt in enumerate(prompts):
            if len(self.said) == self.dies_at:
                raise KeyboardInterrupt
            groups.append([self._one(tuple(prompt)) for _ in range(sampling.per_prompt)])
            told(place, groups[-1])
        return groups

    def _one(self, prompt):
        question = self.tokenizer.decode(list(prompt))
        kinds = next((kinds for words, kinds in BOXES.items() if words in question), None)
        turn = next(self.said.setdefault(prompt, count()))
        ids = self.tokenizer(kinds[turn % 4] if kinds else "\\boxed{1}", add_special_tokens=False)
        ids = (*ids.input_ids, self.tokenizer.eos_token_id)
        return Completion(ids=ids, logp=(0.0,) * len(ids), finish="stop")

    def close(self):
        self.closed += 1


@pytest.fixture
def files(tmp_path):
    """`NAME=PATH` of a small file in each set's columns."""
    for name, rows in ROWS.items():
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{name}.jsonl").write_text(text)
    return {name: f"{name}={tmp_path / f'{name}.jsonl'}" for name in ROWS}


@pytest.fixture
def opened(monkeypatch):
    """Engines that were opened, which answer as told."""
    from veriloop.pipeline.model.policy import load_tokenizer

    engines = []

    def opens(config, checkpoint, *, max_length, say):
        engines.append(Engine(load_tokenizer(checkpoint)))
        engines[-1].max_length = max_length
        return engines[-1]

    monkeypatch.setattr(set_evaluation, "open_sampler", opens)
    return engines


@pytest.fixture
def ask(tiny_checkpoint, tmp_path, monkeypatch, one_pool):
    """Function: evaluate on these sets; the exit code and what was written."""
    monkeypatch.chdir(tmp_path)
    result = tmp_path / "result.json"

    def run(*words, samples=4):
        small = ["--samples", str(samples), "--max-tokens", "24", "--sampler.engine", "torch"]
        asked = ["evaluate", str(tiny_checkpoint()), *small, "--json", str(result)]
        result.unlink(missing_ok=True)
        code = main([*asked, *words])
        return code, json.loads(result.read_text())["sets"] if result.exists() else {}

    return run


def values(found):
    return {name: figure["value"] for name, figure in found["figures"].items()}


@pytest.mark.slow
def test_every_set_is_asked_judged_and_told_of(ask, files, opened, capsys):
    names = ["math500", "aime24", "aime25", "humaneval", "humaneval_plus", "mbpp"]
    code, found = ask("--k", "1", "2", "4", "--set", *(files[name] for name in names))
    assert code == 0 and list(found) == names
    shares = {"cut off": 0.0, "no answer": 0.0, "not judged": 0.0}
    assert values(found["math500"]) == shares | {
        "pass@1": 0.25, "pass@2": 0.5, "pass@4": 1.0, "no answer": 0.25,
        "maj@2": pytest.approx((1 / 2 + 1 / 2 + 1) / 6), "cons@4": 0.0,  # 2 and 2.0 are two votes
    }  # fmt: skip
    assert values(found["aime24"])["cons@4"] == 0.0
    assert values(found["aime25"]) == shares | {
        "pass@1": 1.0, "pass@2": 1.0, "pass@4": 1.0, "maj@2": 1.0, "cons@4": 1.0
    }  # fmt: skip
    for name in ("humaneval", "humaneval_plus"):
        assert values(found[name]) == shares | {
            "pass@1": 0.5, "pass@2": pytest.approx(5 / 6), "pass@4": 1.0, "no answer": 0.25
        }  # fmt: skip
    assert values(found["mbpp"])["pass@1"] == 1.0
    said = capsys.readouterr().out
    assert "aime24: 1 row left out: the answer is not a number" in said
    assert re.search(r"math500 +cons@4 +0\.000 +0\.000 to 0\.\d+ +1\n", said)
    assert "1 question, 4 answers to each of up to 24" in said
    (engine,) = opened
    assert engine.closed == 1 and engine.max_length > 24


def test_a_killed_evaluation_continues_without_sampling_again(ask, files, opened, monkeypatch):
    monkeypatch.setattr(Engine, "dies_at", 3)
    assert ask("--set", files["gsm8k"])[0] == 130
    monkeypatch.setattr(Engine, "dies_at", None)
    code, found = ask("--set", files["gsm8k"])
    assert code == 0 and found["gsm8k"]["questions"] == 5
    assert [len(engine.said) for engine in opened] == [3, 2]
    assert ask("--set", files["gsm8k"], samples=3)[1]["gsm8k"]["samples"] == 3
    assert len(opened) == 2  # nothing was missing
    _, found = ask("--set", files["gsm8k"], "--limit", "2", samples=5)
    assert len(opened) == 3 and len(opened[-1].said) == found["gsm8k"]["questions"] == 2


@pytest.mark.slow
def test_other_settings_have_answers_of_their_own(ask, files, opened, tmp_path):
    for words in ((), ("--seed", "2"), ("--template", "chat", "--system", "Add.")):
        assert ask("--set", files["aime25"], *words)[0] == 0
    assert len(opened) == 3
    kept = [p for p in (tmp_path / "outputs/evaluations").glob("*") if "verdicts" not in p.name]
    assert len(kept) == 3


def test_each_answer_has_its_verdict_in_a_file_next_to_it(ask, files, opened, tmp_path):
    ask("--set", files["math500"], "--output", str(tmp_path / "kept"))
    (path,) = (tmp_path / "kept").glob("*.verdicts.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["number"] for line in lines] == [0, 1, 2, 3]
    assert [line["score"] for line in lines] == [1.0, 0.0, 0.0, 0.0]
    assert lines[3]["status"] == "no_answer" and lines[0]["question"] == "math500/test/0"


def test_verifiers_that_fail_on_most_answers_end_the_command_and_the_answers_are_kept(
    ask, files, opened, lent_pool, monkeypatch, capsys
):
    failed = Verdict(score=None, status="error", detail="the judge is unreachable")
    with monkeypatch.context() as patched:
        patched.setattr(lent_pool, "judge_all", lambda tasks: [failed for _ in tasks])
        assert ask("--set", files["gsm8k"]) == (1, {})
    assert (
        "gsm8k: verifiers failed on 20 of 20 answers, more than verifier_error_share=0.5 allows. "
        "Commonest reasons: 20 x math_answer: the judge is unreachable"
    ) in capsys.readouterr().err
    assert ask("--set", files["gsm8k"])[0] == 0 and len(opened) == 1  # nothing is sampled again


def test_a_real_engine_answers(ask, files):
    code, found = ask("--set", files["gsm8k"], samples=2)
    assert code == 0
    assert {"pass@1", "pass@2", "cons@2", "cut off"} <= set(values(found["gsm8k"]))
    assert found["gsm8k"]["top_p"] == 0.95 and found["gsm8k"]["engine"] == "torch"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--set", "gsm8"], "no data set 'gsm8'. Did you mean 'gsm8k'?"),
        (["--k", "5", "--set=gsm8k=gsm8k.jsonl"], "--k 5 must be 1 to 4"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_starts(
    ask, files, opened, capsys, words, told
):
    assert ask(*words) == (2, {})
    assert told in capsys.readouterr().err and not opened


def test_a_folder_without_a_checkpoint_is_refused(tmp_path, capsys):
    assert main(["evaluate", str(tmp_path), "--set", "gsm8k"]) == 2
    assert "holds no Hugging Face checkpoint" in capsys.readouterr().err
