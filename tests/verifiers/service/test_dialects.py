"""Each dialect, spoken as its own client speaks it; a failure of ours is never its 0."""

import asyncio
import base64
import json
import pickle
import zlib
from dataclasses import replace

import aiohttp
import pytest
import requests

from veriloop.sandbox.remote.json_size import MAX_VALUES
from veriloop.verifiers.code.tests import judge_program
from veriloop.verifiers.labels import response_of
from veriloop.verifiers.service.dialects import open_instruct
from veriloop.verifiers.service.dialects.nemo_gym import output_text
from veriloop.verifiers.service.dialects.packed_tests import unpack


def label(value):
    return json.dumps({"verifier": "number", "reference": {"value": str(value)}})


async def openrlhf_client(urls, queries, prompts, labels, tries=5):
    """Shards one list over all servers, and asks each again after any error."""
    size = -(-len(queries) // len(urls))
    answers = []
    for n, url in enumerate(urls):
        part = slice(n * size, (n + 1) * size)
        body = {"query": queries[part], "prompts": prompts[part], "labels": labels[part]}
        for _ in range(tries):
            try:
                async with aiohttp.ClientSession() as session, session.post(url, json=body) as got:
                    got.raise_for_status()
                    answers.append(await got.json())
                    break
            except aiohttp.ClientError:
                continue
        else:
            raise RuntimeError("no reward")
    return answers


def test_openrlhf_gets_lists_and_an_empty_shard_gets_empty_ones(service):
    url = service.url + "/get_reward"
    prompt = "<|im_start|>user\n6+6<|im_end|>\n<|im_start|>assistant\n"
    query = prompt + "<answer>12</answer><|im_end|>\n<|endoftext|>"
    asked = [url, url], [query], [prompt], [label(12)]
    first, second = asyncio.run(openrlhf_client(*asked))
    assert first == {"rewards": [1.0], "scores": [1.0], "extra_logs": {"verifier_error": [0.0]}}
    assert second == {"rewards": [], "scores": [], "extra_logs": {"verifier_error": []}}
    wrong = asyncio.run(openrlhf_client([url], [query], [prompt], [label(13)]))
    assert wrong[0]["rewards"] == [0.0]


def test_openrlhf_gets_no_reward_for_a_failure_of_ours(service):
    url = service.url + "/get_reward?verifier=misbehaves"
    with pytest.raises(RuntimeError, match="no reward"):
        asyncio.run(openrlhf_client([url], ["raise"], [""], [None], tries=2))
    answer = requests.post(url, json={"query": ["raise"], "prompts": [""]}, timeout=30)
    assert answer.status_code == 503 and answer.headers["Retry-After"] == "1"


@pytest.mark.slow
def test_openrlhf_may_receive_zero_next_to_a_mark(ask, open_service):
    with open_service(openrlhf_on_error="zero", default="misbehaves") as service:
        body = {"query": ["raise", "behave"], "prompts": ["", ""], "labels": [None, None]}
        told = ask(service.url, "/get_reward", body).json
    assert told["rewards"] == [0.0, 1.0] and told["extra_logs"] == {"verifier_error": [1.0, 0.0]}


@pytest.mark.parametrize(
    ("query", "prompt", "response"),
    [
        ("ask: answer", "ask: ", "answer"),
        ("k: answer</s>", "ask: ", "answer"),  # the front of the prompt was cut off
        ("<think>", "", "<think>"),
        ("p<answer>1</answer></s><pad><pad>", "p", "<answer>1</answer>"),
        ("a|>", "", "a|>"),
    ],
)
def test_the_response_is_what_follows_the_prompt(query, prompt, response):
    if prompt and not query.startswith(prompt):
        prompt = "x" * 300 + prompt  # the tail by which it is found is shorter than the prompt
        query = prompt[-202:] + query.removeprefix("k: ")
    assert response_of(query, prompt) == response


def test_a_query_without_its_prompt_is_refused(ask, service):
    body = {"query": ["<answer>1</answer>"], "prompts": ["other"], "labels": [label(1)]}
    assert ask(service.url, "/get_reward", body).status == 422
    lengths = ask(service.url, "/get_reward", {**body, "labels": []})
    assert lengths.status == 422 and "[1, 1, 0]" in lengths.json["detail"]


async def slime_client(url, sample, tries):
    async with aiohttp.ClientSession() as session:
        for attempt in range(tries):
            try:
                async with session.post(url, json=sample) as answer:
                    answer.raise_for_status()
                    return await answer.json()
            except aiohttp.ClientError:
                if attempt + 1 == tries:
                    raise
    return None


def test_slime_reads_a_bare_number_and_retries_a_failure_of_ours(service):
    sample = {"prompt": "6+6", "response": "<answer>12</answer>", "label": label(12)}
    url = service.url + "/slime"
    assert asyncio.run(slime_client(url, sample, 1)) == 1.0
    chat = {**sample, "prompt": [{"role": "user", "content": "6+6"}], "label": label(13)}
    assert asyncio.run(slime_client(url, chat, 1)) == 0.0
    keyed = asyncio.run(slime_client(url + "?detail=true", sample, 1))
    assert keyed == {"score": 1.0, "verifier": "number"}
    failing = {"prompt": "", "response": "none", "label": None}
    with pytest.raises(aiohttp.ClientResponseError, match="503"):
        asyncio.run(slime_client(url + "?verifier=misbehaves", failing, 2))


@pytest.mark.parametrize("end", ["<|im_end|>\n", "<｜end▁of▁sentence｜>"])
def test_special_tokens_at_the_end_of_a_response_change_no_reward(ask, calculating, end):
    response = "The answer is 12" + end
    sample = {"prompt": "6+6", "response": response, "label": "12"}
    assert ask(calculating.url, "/slime?verifier=math_answer", sample).json == 1.0
    batch = {"query": ["6+6 " + response], "prompts": ["6+6 "], "labels": ["12"]}
    assert ask(calculating.url, "/get_reward?verifier=math_answer", batch).json["rewards"] == [1.0]


def gym(*outputs, **task):
    return {"responses_create_params": {"input": []}, "response": {"output": list(outputs)}, **task}


def message(*texts):
    content = [{"type": "output_text", "text": text} for text in texts]
    return {"type": "message", "role": "assistant", "content": content}


def test_nemo_gym_gets_its_own_body_back_with_a_reward(ask, service):
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "13"}]}
    body = gym(thought, message("<answer>", "12</answer>"), expected_answer="12", uid=7)
    answer = ask(service.url, "/verify?verifier=number", body)
    expected = {**body, "reward": 1.0, "reward_components": {"number": 1.0}}
    assert answer.status == 200 and answer.json == expected
    named = gym(message("behave"), verifier="misbehaves", reference={})
    parts = ask(service.url, "/verify", named).json["reward_components"]
    assert parts == {"misbehaves": 1.0, "half": 0.5}
    assert ask(service.url, "/verify?verifier=number", gym(message("x"))).status == 422
    failing = gym(message("raise"), verifier="misbehaves", reference={})
    assert ask(service.url, "/verify", failing).status == 503
    assert ask(service.url, "/seed_session", {}).json == {}
    assert ask(service.url, "/reverify_mode").json == "stateless"


QUESTION = {"role": "user", "content": "What is 2+3?"}
COPY = "\\boxed{3+2}"


@pytest.mark.parametrize(
    ("conversation", "score"),
    [
        ("What is 2+3?", 0.0),
        ([{"role": "system", "content": "Think."}, QUESTION], 0.0),
        ([{**QUESTION, "content": [{"type": "input_text", "text": "What is 2+3?"}]}], 0.0),
        ([QUESTION, {"role": "assistant", "content": "5"}, {**QUESTION, "content": "1+4?"}], 1.0),
        ([], 1.0),
    ],
)
def test_an_answer_that_repeats_the_problem_of_a_conversation_earns_nothing(
    ask, calculating, conversation, score
):
    sample = {"prompt": conversation, "response": COPY, "label": "5"}
    assert ask(calculating.url, "/slime?verifier=math_answer", sample).json == score
    body = gym(message(COPY), expected_answer="5")
    body["responses_create_params"]["input"] = conversation
    assert ask(calculating.url, "/verify?verifier=math_answer", body).json["reward"] == score


@pytest.fixture(scope="module")
def calculating(open_service):
    with open_service(verifiers=("math_answer",), limit_s=5.0) as opened:
        yield opened


def test_only_the_last_message_is_the_answer():
    assert output_text({"output": [message("a"), message("b", "c")]}) == "bc"
    assert output_text({"output": []}) == output_text({}) == output_text({"output": [7]}) == ""


def verl_client(url, code, stdin, expected):
    """True, False, or a negative number for what is no verdict; asks again after 504 alone."""
    body = {"compile_timeout": 10, "run_timeout": 10, "code": code, "stdin": stdin}
    body |= {"language": "python", "files": {}, "fetch_files": []}
    answer = requests.post(url, json=body, timeout=30)
    if answer.status_code != 200:
        return -1
    told = answer.json()
    if told["status"] == "SandboxError":
        return -1
    ran = told["run_result"]
    if told["status"] == "Failed":
        return -3 if ran["status"] == "TimeLimitExceeded" else -2
    return ran["stdout"].rstrip("\n") == expected


def test_verl_runs_programs_as_on_a_sandbox_fusion(ask, service):
    url = service.url + "/run_code"
    assert verl_client(url, "print(int(input()) + 1)", "1", "2") is True
    assert verl_client(url, "print(int(input()) + 1)", "1", "3") is False
    assert verl_client(url, "1 // 0", "", "") == -2
    service.runner.box.ends = {"broken": "sandbox_error", "late": "wall"}
    assert verl_client(url, "broken", "", "") == -1
    assert verl_client(url, "late", "", "") == -3
    assert ask(service.url, "/v1/ping").json == "pong"
    wrong = ask(service.url, "/run_code", {"code": "1", "languag": "python"})
    assert wrong.status == 422 and "Did you mean 'language'" in wrong.json["detail"]
    large = {"code": "1", "language": "python", "memory_limit_MB": 1 << 20}
    refused = ask(service.url, "/run_code", large)
    assert refused.status == 422 and "memory_mb is 1048576" in refused.json["detail"]


def test_verl_asks_again_when_too_many_programs_wait(service, monkeypatch):
    monkeypatch.setattr(service.runner, "_room", 0)
    body = {"code": "print(1)", "language": "python"}
    answer = requests.post(service.url + "/run_code", json=body, timeout=30)
    assert answer.status_code == 504 and answer.headers["Retry-After"] == "1"


def test_programs_run_while_the_queue_of_verdicts_is_full_and_get_504_at_the_end(
    ask, service, monkeypatch
):
    monkeypatch.setattr(service.desk, "room", 0)
    program = {"code": "print(1)", "language": "python"}
    assert ask(service.url, "/v1/verify", {"items": []}).status == 429
    assert ask(service.url, "/run_code", program).json["status"] == "Success"
    monkeypatch.setattr(service.desk, "draining", True)
    assert ask(service.url, "/run_code", program).status == 504
    assert ask(service.url, "/v1/verify", {"items": []}).status == 503


def pack(tests):
    return base64.b64encode(zlib.compress(pickle.dumps(tests))).decode()


def test_open_instruct_gets_a_result_for_each_test(ask, service, monkeypatch):
    tests = [{"input": "1\n", "output": "2\n"}, {"input": "5\n", "output": "7\n"}]
    program = "print(int(input()) + 1)"
    for packed in (tests, json.dumps(tests), pack(tests), pack(json.dumps(tests))):
        body = {"program": program, "tests": packed, "max_execution_time": 2.0}
        told = ask(service.url, "/test_program_stdio", body).json
        assert told["results"] == [1, 0] and len(told["runtimes"]) == 2
        assert told["runtimes"][0] > 0 > told["runtimes"][1]
    assert ask(service.url, "/health").json == {"status": "healthy"}
    service.runner.box.ends = {"broken": "sandbox_error"}
    failing = ask(service.url, "/test_program_stdio", {"program": "broken", "tests": tests})
    assert failing.status == 503 and "retry-after" in failing.headers
    asked, first = [], judge_program

    def once_broken(box, program, reference):
        asked.append(program)
        verdict = first(box, program, reference)
        return verdict if len(asked) > 1 else replace(verdict, score=None, status="error")

    monkeypatch.setattr(open_instruct, "judge_program", once_broken)
    retried = ask(service.url, "/test_program_stdio", {"program": program, "tests": tests})
    assert retried.json["results"] == [1, 0] and len(asked) == 3
    odd = ask(service.url, "/test_program", {"program": "", "tests": [{"input": ""}]})
    assert odd.status == 422 and "assert statement" in odd.json["detail"]


class Evil:
    def __reduce__(self):
        return (eval, ("1 // 0",))


@pytest.mark.parametrize(
    "tests", ["", "x", [], 7, pack(Evil()), pack({1: 2}), pack("{"), ["a"] * 201]
)
def test_packed_tests_are_plain_data_or_refused(tests):
    with pytest.raises(ValueError, match="tests"):
        unpack(tests)


@pytest.mark.parametrize("wrap", [str, pack])
def test_packed_tests_have_a_bounded_number_of_values(wrap):
    with pytest.raises(ValueError, match="the tests have more than 262144 JSON values"):
        unpack(wrap("[" + "[]," * MAX_VALUES + "[]]"))


def test_packed_tests_take_no_memory_that_they_do_not_fill():
    bomb = base64.b64encode(zlib.compress(b"r\xff\xff\xff\xff" * 9 + b" " * (17 << 20))).decode()
    with pytest.raises(ValueError, match="bytes"):
        unpack(bomb)
