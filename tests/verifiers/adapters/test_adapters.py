"""Each adapter, called as its trainer calls it; a failure of ours is what its protocol has."""

import asyncio
import importlib.util
import json
import multiprocessing
import pickle
import subprocess
import sys
from collections import namedtuple
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest

from veriloop.verifiers.adapters import areal, grading, nemo_rl, openrlhf, skyrl, trl, verl
from veriloop.verifiers.adapters.grading import RewardUnavailableError
from veriloop.verifiers.conversation import last_text
from veriloop.verifiers.pool import VerifierPool
from veriloop.verifiers.service.client import ServicePool
from veriloop.verifiers.service.server import RewardService, Settings

PLUGIN = str(Path(__file__).parents[1] / "misbehaving.py")
PRIME = Path(__file__).parents[3] / "verifiers" / "adapters" / "prime.py"
OPEN = grading.pool  # before the tests put theirs in its place
RIGHT, WRONG = "<answer>12</answer>", "<answer>13</answer>"


@pytest.fixture(scope="module", autouse=True)
def pool():
    with (
        VerifierPool(limit_s=5.0, plugins=[PLUGIN]) as opened,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(grading, "pool", lambda: opened)
        yield opened


def chat(text):
    return [{"role": "assistant", "content": text}]


@pytest.mark.slow
def test_trl_gets_a_number_or_none_for_each_completion():
    reward = trl.reward("number")
    logged = {}
    told = {
        "prompts": ["6+6"] * 3,
        "completions": [RIGHT, WRONG, ""],
        "completion_ids": [[1]] * 3,
        "solution": ["12"] * 3,
        "trainer_state": None,
        "log_extra": lambda name, values: logged.update({name: values}),
        "log_metric": lambda name, value: None,
    }
    assert reward(**told) == [1.0, 0.0, 0.0] and reward.__name__ == "number"
    assert logged == {"number/status": ["graded", "graded", "no_answer"]}
    talk = told | {"completions": [chat(RIGHT), chat(WRONG), []], "prompts": [chat("6+6")] * 3}
    assert reward(**talk) == [1.0, 0.0, 0.0]
    failing = trl.reward("misbehaves")
    assert failing(prompts=["", ""], completions=["raise", "behave"]) == [None, 1.0]
    parts = [{"role": "assistant", "content": [{"type": "text", "text": RIGHT}]}]
    assert last_text(parts) == RIGHT


def test_trl_labels_come_from_the_column_named():
    reward = trl.reward("number", column="mine")
    assert reward(prompts=[""], completions=[RIGHT], mine=[12], solution=[13]) == [1.0]
    with pytest.raises(KeyError, match="'mine'"):
        reward(prompts=[""], completions=[RIGHT], solution=[13])


def test_a_missing_label_is_told_with_the_columns_of_the_data_set():
    told = r"needs a label, .* no column answer, .* its columns are \['amount'\].* column="
    with pytest.raises(ValueError, match=told):
        trl.reward("number")(
            prompts=[""], completions=[RIGHT], completion_ids=[[1]], amount=[12], trainer_state=None
        )
    with pytest.raises(ValueError, match=told):
        areal.reward("number")("", RIGHT, [], [], amount=12)


def verl_batch(rows, **kwargs):
    """As its reward loop gathers results: the keys of the first sample, for all."""
    infos = [verl.compute_score(data_source="x", **row, **kwargs) for row in rows]
    keys = list(infos[0])
    return {key: numpy.array([info[key] for info in infos], dtype=float) for key in keys}


def test_verl_gets_the_same_numbers_for_every_status():
    rows = [
        {"solution_str": RIGHT, "ground_truth": "12", "extra_info": {"index": 0}},
        {"solution_str": "", "ground_truth": "12", "extra_info": None},
        {"solution_str": RIGHT, "ground_truth": {"verifier": "misbehaves", "reference": {}}},
        {"solution_str": RIGHT, "ground_truth": None},
        {"solution_str": "raise", "ground_truth": {"verifier": "misbehaves", "reference": {}}},
    ]
    told = verl_batch(rows, verifier="number", unknown=1)
    assert told["score"].tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert told["error"].tolist() == [0.0, 0.0, 0.0, 1.0, 1.0]
    assert told["no_answer"].tolist() == [0.0, 1.0, 0.0, 0.0, 0.0] and set(told) == set(verl.KEYS)
    inside = {"solution_str": RIGHT, "extra_info": {"facts": {"prefilled_think": True}}}
    assert verl_batch([inside | {"ground_truth": "12"}], verifier="number")["no_answer"][0] == 1.0


@pytest.mark.parametrize(
    ("row", "score"),
    [
        ({}, 1.0),
        ({"question": "What is 2+3?"}, 0.0),
        ({"prompt": numpy.array([{"role": "user", "content": "What is 2+3?"}])}, 0.0),
        ({"prompt": "What is 1+4?", "question": "What is 2+3?"}, 1.0),
        ({"prompt": None}, 1.0),
    ],
)
def test_verl_sees_an_answer_that_repeats_the_problem_where_the_row_has_it(row, score):
    made = {"solution_str": r"\boxed{3+2}", "ground_truth": "5", "extra_info": row}
    told = verl_batch([made])
    assert (told["score"][0], told["error"][0]) == (score, 0.0)


def test_verl_reads_the_label_of_an_exported_row_unless_a_verifier_is_named():
    label = json.dumps({"verifier": "number", "reference": {"value": "12"}, "facts": {}})
    row = {"solution_str": r"\boxed{12 apples}", "ground_truth": "12"}
    exported = row | {"extra_info": {"label": label}}
    assert verl_batch([exported])["score"][0] == 0.0  # a number and nothing else
    assert verl_batch([exported], verifier="math_answer")["score"][0] == 1.0
    assert verl_batch([row | {"extra_info": {"label": "positive"}}])["score"][0] == 1.0


def test_openrlhf_gets_lists_and_an_exception_for_a_failure_of_ours():
    reward_func = openrlhf.reward("number")
    told = reward_func(["6+6 " + RIGHT + "</s>"], ["6+6 "], ["12"])
    logs = {"verifier_error": [0.0]}
    assert told == {"rewards": [1.0], "scores": [1.0], "extra_logs": logs}
    with pytest.raises(RewardUnavailableError, match="ZeroDivisionError"):
        openrlhf.reward("misbehaves")(["raise"], [""], [None])
    zero = openrlhf.reward("misbehaves", on_error="zero")(["raise"], [""], [None])
    assert zero["rewards"] == [0.0] and zero["extra_logs"] == {"verifier_error": [1.0]}


Returned = namedtuple(
    "Returned", "observations metadata next_stop_strings rewards terminateds answers"
)


def test_nemo_rl_steps_a_batch_of_conversations():
    environment = nemo_rl.SingleTurn("number", tensor=numpy.array, returns=Returned)
    logs = [
        [{"role": "user", "content": "6+6"}, {"role": "assistant", "content": text}]
        for text in (RIGHT, WRONG)
    ]
    metadata = [{"ground_truth": "12"}, {"verifier": "number", "reference": {"value": "12"}}]
    told = environment.step(logs, metadata)
    assert told.rewards.tolist() == [1.0, 0.0] and told.terminateds.tolist() == [True, True]
    assert told.metadata == metadata and told.answers == ["12", "13"]
    assert told.next_stop_strings == [None, None]
    assert told.observations[1] == {"role": "environment", "content": "not equal to 12"}
    batch, metrics = environment.global_post_process_and_metrics({"total_reward": told.rewards})
    assert metrics == {"number/mean": 0.5} and batch["total_reward"] is told.rewards
    named = nemo_rl.SingleTurn("number", "mine", tensor=numpy.array, returns=Returned)
    assert named.step(logs, [{"mine": 12, "answer": 13}] * 2).rewards.tolist() == [1.0, 0.0]
    worked = {"solution": r"We add and get $\boxed{12}$."}
    assert environment.step(logs, [worked] * 2).rewards.tolist() == [1.0, 0.0]
    failing = nemo_rl.SingleTurn("misbehaves", tensor=numpy.array, returns=Returned)
    with pytest.raises(RewardUnavailableError):
        failing.step([[{"role": "assistant", "content": "raise"}]], [None])
    failing.shutdown()


def test_areal_calls_with_ids_and_the_row():
    reward = areal.reward("number")
    assert reward("6+6", RIGHT, [1, 2], [3], answer="12", query_id="q") == 1.0
    assert reward(prompt="", completions=WRONG, prompt_ids=[], completion_ids=[], answer=12) == 0.0
    with pytest.raises(RewardUnavailableError):
        areal.reward("misbehaves")("", "raise", [], [])


ENDS = ("<|im_end|>\n", "<｜end▁of▁sentence｜>", "</s><pad>")  # of a turn, in several tokenizers


@pytest.mark.parametrize("end", ENDS)
def test_special_tokens_at_the_end_change_no_verdict(end):
    text = "<think>6+6</think><answer>12</answer>" + end
    asked = [{"role": "user", "content": "6+6"}]
    log = [*asked, {"role": "assistant", "content": text}]
    rewards = [
        areal.reward("think_format")("6+6", text, [], []),
        openrlhf.reward("think_format")(["6+6 " + text], ["6+6 "], [None])["rewards"][0],
        nemo_rl.SingleTurn("think_format", tensor=list, returns=Returned)
        .step([log], [None])
        .rewards[0],
    ]
    extras = {"reward_spec": {"ground_truth": None}}
    gym = skyrl.VerifierEnv(extras=extras, verifier="think_format")
    gym.init(asked)
    assert [*rewards, gym.step(text)["reward"]] == [1.0] * 4


@pytest.mark.slow
def test_areal_may_call_it_in_another_process():
    reward = areal.reward("number", column="mine")
    assert reward.__name__ == "number" and pickle.loads(pickle.dumps(reward)).__name__ == "number"
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        assert executor.submit(reward, "6+6", RIGHT, [], [], mine="12").result(timeout=120) == 1.0


def test_skyrl_takes_one_step_and_is_done():
    extras = {"reward_spec": {"method": "rule", "ground_truth": "12"}}
    environment = skyrl.VerifierEnv(env_config=None, extras=extras, verifier="number")
    prompt = [{"role": "user", "content": "6+6"}]
    assert environment.init(prompt) == (prompt, {})
    told = environment.step(RIGHT)
    assert (told["reward"], told["done"], told["observations"]) == (1.0, True, [])
    assert told["metadata"] == {"status": "graded", "answer": "12"}
    environment.close()
    assert environment.get_metrics() == {"no_answer": 0.0, "timeout": 0.0, "error": 0.0}
    silent = skyrl.VerifierEnv(extras=extras, verifier="number")
    assert silent.get_metrics() == {}
    silent.step("")
    episodes = [environment.get_metrics(), silent.get_metrics(), {}]
    shares = {"no_answer": 0.5, "timeout": 0.0, "error": 0.0}
    assert skyrl.VerifierEnv.aggregate_metrics(episodes) == shares
    assert skyrl.VerifierEnv.aggregate_metrics([{}]) == {}
    with pytest.raises(ValueError, match="reward_spec"):
        skyrl.VerifierEnv(extras={"x": 1}, verifier="number")
    failing = {"reward_spec": {"ground_truth": None}}
    with pytest.raises(RewardUnavailableError):
        skyrl.VerifierEnv(extras=failing, verifier="misbehaves").step("raise")


@pytest.fixture(scope="module")
def service():
    names = ("number", "math_answer", "misbehaves")
    settings = Settings(verifiers=names, plugins=[PLUGIN], limit_s=5.0)
    with RewardService(settings) as opened:
        yield opened


def test_prime_calls_a_service_and_imports_nothing_of_veriloop(service, tmp_path):
    code = f"""
import asyncio, importlib.util, sys, types
spec = importlib.util.spec_from_file_location("veriloop_prime", {str(PRIME)!r})
prime = importlib.util.module_from_spec(spec)
spec.loader.exec_module(prime)
f = prime.rubric("number")
chat = [{{"role": "assistant", "content": {RIGHT!r}}}]
print(asyncio.run(f(completion=chat, answer="12", prompt=[], state={{}}, parser=None)), f.__name__)
task = types.SimpleNamespace(data=types.SimpleNamespace(answer="13"))
trace = types.SimpleNamespace(last_reply={RIGHT!r})
print(asyncio.run(prime.number(task=task, trace=trace)))
assert not any(name.partition(".")[0] == "veriloop" for name in sys.modules)
"""
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"VERILOOP_SERVICE": service.url},
        capture_output=True,
        text=True,
    )
    assert ran.stdout.split() == ["1.0", "number", "0.0"], ran.stderr


@pytest.fixture(scope="module")
def prime():
    spec = importlib.util.spec_from_file_location("veriloop_prime", PRIME)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ASKED = [
    {"role": "user", "content": "What is 1+4?"},
    {"role": "assistant", "content": "5"},
    {"role": "user", "content": "What is 2+3?"},
]


@pytest.mark.parametrize(
    ("prompt", "score"),
    [
        ("What is 2+3?", 0.0),
        (ASKED, 0.0),
        ([{"role": "user", "content": [{"type": "text", "text": "What is 2+3?"}]}], 0.0),
        ([SimpleNamespace(role="user", content="What is 2+3?")], 0.0),
        (ASKED[:2], 1.0),
        (None, 1.0),
    ],
)
def test_prime_sees_an_answer_that_repeats_the_problem(service, prime, prompt, score):
    copied = r"\boxed{3+2}"
    rubric, hook = (make("math_answer", service.url) for make in (prime.rubric, prime.hook))
    assert asyncio.run(rubric(completion=copied, answer="5", prompt=prompt)) == score
    task = SimpleNamespace(data=SimpleNamespace(answer="5", prompt=prompt))
    assert asyncio.run(hook(task, SimpleNamespace(last_reply=copied))) == score


@pytest.mark.slow
def test_prime_gets_an_exception_for_a_failure_of_ours(service, prime, monkeypatch):
    f = prime.rubric("misbehaves", service.url)
    with pytest.raises(RuntimeError, match="no verdict: ZeroDivisionError"):
        asyncio.run(f(completion="raise", answer=None))
    with pytest.raises(RuntimeError, match="no verdict from"):  # 422 is not asked again
        asyncio.run(prime.rubric("numbr", service.url)(completion="", answer=""))
    monkeypatch.setattr(prime, "PATIENCE_S", 0.3)
    gone = prime.hook("number", "http://127.0.0.1:9")
    with pytest.raises(RuntimeError, match="no verdict from"):
        asyncio.run(gone(SimpleNamespace(answer="1"), SimpleNamespace(last_reply=None)))


@pytest.mark.slow
def test_the_pool_of_a_process_is_what_its_environment_names(monkeypatch, service):
    monkeypatch.setattr(grading, "_pools", {})
    monkeypatch.setenv(grading.SERVICE_VARIABLE, service.url)
    opened = OPEN()
    assert isinstance(opened, ServicePool) and OPEN() is opened
    opened.close()
    monkeypatch.setattr(grading, "_pools", {})
    monkeypatch.delenv(grading.SERVICE_VARIABLE)
    monkeypatch.setenv(grading.WORKERS_VARIABLE, "2")
    local = OPEN()
    assert isinstance(local, VerifierPool) and local.workers == 2
    local.close()
    monkeypatch.setattr(grading, "_pools", {})
    monkeypatch.setenv(grading.WORKERS_VARIABLE, "no")
    with pytest.raises(ValueError, match="VERILOOP_WORKERS must be a number"):
        OPEN()
