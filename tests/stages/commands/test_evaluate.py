"""`veriloop evaluate` on a checkpoint, and its refusals."""

import json
import re

import httpx2
import pytest

from veriloop.data.template import INSTRUCTION
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.rollouts.grade import VerifierFailuresError
from veriloop.stages.commands import evaluate
from veriloop.verifiers.service.server import RewardService, Settings
from veriloop.verifiers.verdict import Verdict


@pytest.fixture
def words(tiny_checkpoint):
    small = ["--problems", "4", "--samples", "2", "--max-tokens", "8", "--sampler.engine", "torch"]
    return ["evaluate", str(tiny_checkpoint()), *small]


@pytest.mark.slow
def test_it_prints_each_estimate_and_writes_them(words, tmp_path, capsys):
    file = tmp_path / "result.json"
    assert evaluate.command([*words, "--json", str(file)]) == 0
    said = capsys.readouterr().out
    written = json.loads(file.read_text())
    for name in ("pass@1", "pass@2", "maj@2", "greedy", "format"):
        assert f"{name} " in said and written[name] == 0.0  # nobody has taught it anything
        assert written[f"{name} 95%"][0] == 0.0 < written[f"{name} 95%"][1] < 0.6
    assert written["problems"] == 4 and written["truncated"] > 0.5
    assert "language " in said and 0.0 <= written["language"] <= 1.0


@pytest.mark.slow
def test_a_service_may_judge_instead(words, tmp_path):
    own, there = tmp_path / "own.json", tmp_path / "there.json"
    assert evaluate.command([*words, "--json", str(own)]) == 0
    with RewardService(Settings(verifiers=("language", "number", "think_format"))) as service:
        asked = [*words, "--verifier-service", service.url]
        assert evaluate.command([*asked, "--json", str(there)]) == 0
        assert own.read_text() == there.read_text()
    with RewardService(Settings(verifiers=("language", "number"))) as service:
        asked = [*words, "--verifier-service", service.url]
        with pytest.raises(RecipeError, match="no verifier 'think_format'"):
            evaluate.command(asked)


@pytest.mark.slow
def test_two_services_may_judge_instead(words, tmp_path):
    own, there = tmp_path / "own.json", tmp_path / "there.json"
    assert evaluate.command([*words, "--json", str(own)]) == 0
    settings = Settings(verifiers=("language", "number", "think_format"))
    with RewardService(settings) as one, RewardService(settings) as two:
        asked = [*words, "--verifier-service", one.url, two.url]
        assert evaluate.command([*asked, "--json", str(there)]) == 0
        for service in (one, two):
            scraped = httpx2.get(f"{service.url}/metrics", trust_env=False).text
            assert 'veriloop_verdicts_total{status="' in scraped
    assert own.read_text() == there.read_text()


def test_the_limit_of_a_prompt_and_the_stop_strings_are_those_of_the_flags(words, monkeypatch):
    asked = []

    def noted(*_, **named):
        asked.append(named)

    monkeypatch.setattr(evaluate, "evaluate_checkpoint", noted)
    flags = ["--max-prompt", "99", "--stop", "</answer>", "x"]
    evaluate.run(evaluate.parse_options(evaluate.Options, [*words, *flags]))
    assert asked[0]["max_prompt"] == 99 and asked[0]["stop"] == ("</answer>", "x")


def test_a_folder_without_a_checkpoint_is_refused_by_name(words, tmp_path):
    with pytest.raises(RecipeError, match="no Hugging Face checkpoint"):
        evaluate.command(["evaluate", str(tmp_path), *words[2:]])


@pytest.mark.parametrize("sets", [(), ("--set", "gsm8k=absent.jsonl")])
def test_results_in_the_folder_of_the_checkpoint_are_refused(words, sets):
    file = f"{words[1]}/gsm8k.json"
    more = ["--set", *sets[1:], "--samples", "1"] if sets else words[2:]
    with pytest.raises(RecipeError, match=r"gsm8k\.json: is in the folder of the checkpoint"):
        evaluate.command([*words[:2], *more, "--json", file])


def test_an_answer_that_the_model_has_no_positions_for_is_refused(words):
    message = "--max-prompt=256 .* --max-tokens=4,000 = 4,256 tokens, and .* has 1,024 positions"
    with pytest.raises(RecipeError, match=message):
        evaluate.command([*words, "--max-tokens", "4000"])


@pytest.mark.slow
@pytest.mark.usefixtures("one_pool")
def test_the_same_seed_gives_the_same_evaluation(words, tmp_path):
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file in files:
        evaluate.command([*words, "--json", str(file)])
    assert files[0].read_text() == files[1].read_text()


def test_an_empty_stop_string_is_refused(words):
    with pytest.raises(RecipeError, match="--stop '': an empty string would end every answer"):
        evaluate.command([*words, "--stop", ""])


def test_a_source_that_is_not_there_is_refused_with_the_nearest_one(words):
    with pytest.raises(RecipeError, match=r"no source 'arithmetics'\. Did you mean 'arithmetic'"):
        evaluate.command([*words, "--sources", "arithmetics"])
    with pytest.raises(
        RecipeError, match=r"no source 'mine'\. Known: .*: --set NAME=PATH, without"
    ):
        evaluate.command([*words, "--sources", "mine"])


class Opened(Exception):  # noqa: N818  it is no error
    """The verifiers would have been opened."""


@pytest.mark.parametrize("more", [(), ("--set", "gsm8k=train.jsonl")], ids=["sources", "set"])
def test_flags_say_how_answers_are_judged(words, more, monkeypatch, tmp_path):
    opened = {}

    def open_judges(names, service, *, workers=1, **judging):
        opened.update(judging)
        raise Opened

    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.jsonl").write_text('{"question": "1+1?", "answer": "#### 2"}\n')
    for module in ("held_out", "commands.benchmark"):
        monkeypatch.setattr(f"veriloop.stages.{module}.open_judges", open_judges)
    small = words[:2] if more else words
    flags = ("--verifier-computer-algebra", "always", "--sandbox.backend", "reduced")
    with pytest.raises(Opened):
        evaluate.command([*small, *more, *flags])
    assert opened == {"sandbox": "reduced", "facts": {"computer_algebra": "always"}}
    service = ("--verifier-service", "http://127.0.0.1:9")
    with pytest.raises(RecipeError, match=r"--sandbox.backend: .*the service runs programs in its"):
        evaluate.command([*small, *more, *flags, *service])


@pytest.mark.parametrize("more", [(), ("--set", "gsm8k=train.jsonl")], ids=["sources", "set"])
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--system", "R1", "--template", "chat"), "--system: .*'R1' .*Did you mean 'r1'"),
        (("--system", "r1"), "--system 'r1' is only used with --template chat or your own"),
    ],
)
def test_a_system_message_that_cannot_be_used_is_refused(words, more, flags, said):
    with pytest.raises(RecipeError, match=said):
        evaluate.command([*words[:2], *more, *flags])


def test_the_named_system_message_begins_every_prompt(words, monkeypatch):
    asked = []

    def opened(tokenizer, ends, template, system):
        asked.append((template, system))
        raise Opened

    monkeypatch.setattr("veriloop.stages.held_out.RolloutGenerator", opened)
    with pytest.raises(Opened):
        evaluate.command([*words, "--template", "chat", "--system", "r1"])
    assert asked == [("chat", INSTRUCTION)]


@pytest.mark.parametrize("more", [(), ("--set", "gsm8k=train.jsonl")], ids=["sources", "set"])
@pytest.mark.parametrize("share", ["-0.1", "1.5", "nan"])
def test_a_share_of_failures_that_is_none_is_refused(words, more, share, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    small = words[:2] if more else words
    with pytest.raises(RecipeError, match=rf"--verifier-error-share {share}: must be from 0 to 1"):
        evaluate.command([*small, f"--verifier-error-share={share}", *more])


@pytest.mark.usefixtures("one_pool")
def test_the_flag_says_how_many_failures_end_it(words, lent_pool, monkeypatch, capsys):
    failed = Verdict(score=None, status="error", detail="the judge is unreachable")
    judge_all, calls = lent_pool.judge_all, []

    def judged(tasks):
        calls.append(tasks)  # no verdict of the first call on the first answer
        return [
            failed if (i < 3 and len(calls) == 1) else v for i, v in enumerate(judge_all(tasks))
        ]

    monkeypatch.setattr(lent_pool, "judge_all", judged)
    with pytest.raises(VerifierFailuresError, match=r"failed on \d of 8 answers, more than"):
        evaluate.command([*words, "--verifier-error-share", "0"])
    calls.clear()
    assert evaluate.command([*words, "--verifier-error-share", "0.5"]) == 0
    assert re.search(r"^not judged +1 answer, in no estimate$", capsys.readouterr().out, re.M)
