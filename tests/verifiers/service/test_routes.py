"""Batches in, verdicts out: in order, once for each request id, and with who judged."""

import json
import threading
import time

import pytest

from veriloop.verifiers.registry import fingerprint


def test_verdicts_come_in_the_order_of_the_items(ask, service, number, acts):
    items = [number(n, n + n % 2) for n in range(20)] + [acts("raise"), number(7, "none")]
    answer = ask(service.url, "/v1/verify", {"items": items})
    assert answer.status == 200
    scores = [verdict["score"] for verdict in answer.json["verdicts"]]
    assert scores == [float(n % 2 == 0) for n in range(20)] + [None, 0.0]
    failed = answer.json["verdicts"][20]
    assert failed["status"] == "error" and "ZeroDivisionError" in failed["detail"]
    assert all(v["exec_s"] >= 0 and v["queue_s"] >= 0 for v in answer.json["verdicts"])


def test_every_answer_says_what_judged(ask, service, number):
    answer = ask(service.url, "/v1/verify", {"items": [number(1)]})
    judged = answer.json["judged_by"]
    assert judged["verifiers"] == fingerprint(["number"])
    both = {**number(1), "verifier": "think_format", "reference": {}}
    other = ask(service.url, "/v1/verify", {"items": [number(1), both]}).json["judged_by"]
    assert other["hash"] != judged["hash"] and len(judged["hash"]) == 16
    for path in ("/healthz", "/no/such", "/v1/verifiers"):
        assert ask(service.url, path).headers["x-reward-hash"] == service.judging.hash


@pytest.mark.parametrize("gold", ["12", 12, {"value": "12"}, ["12"]])
def test_a_gold_may_take_the_place_of_a_reference(ask, service, gold):
    item = {"verifier": "number", "gold": gold, "response": "<answer>12</answer>"}
    (verdict,) = ask(service.url, "/v1/verify", {"items": [item]}).json["verdicts"]
    assert verdict["score"] == 1.0


def test_facts_and_prompt_reach_the_verifier(ask, service):
    inside = {"verifier": "number", "gold": "1", "response": "12</think><answer>1</answer>"}
    open_think = {**inside, "response": "<answer>1</answer>"}
    told = {**open_think, "facts": {"prefilled_think": True}}
    seen = {**open_think, "prompt": "Question <think>\n"}
    whole = {key: value for key, value in seen.items() if key != "gold"}
    whole["reference"] = {"value": "1"}
    denied = {**whole, "facts": {"prefilled_think": False}}
    items = [inside, open_think, told, seen, whole, denied]
    verdicts = ask(service.url, "/v1/verify", {"items": items}).json["verdicts"]
    assert [v["score"] for v in verdicts] == [1.0, 1.0, 0.0, 0.0, 0.0, 1.0]


def test_text_that_is_no_unicode_is_judged_all_the_same(ask, service):
    item = {"verifier": "number", "gold": "1", "response": "\ud800 <answer>1</answer>"}
    answer = ask(service.url, "/v1/verify", {"items": [item, {**item, "response": "\ud800"}]})
    assert [v["score"] for v in answer.json["verdicts"]] == [1.0, 0.0]


def test_a_stream_tells_each_verdict_when_it_is_there(ask, service, number, acts):
    items = [acts("sleep", id="slow"), *(number(n) for n in range(3))]
    answer = ask(service.url, "/v1/verify", {"items": items, "stream": True, "request_id": "s"})
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    lines = [json.loads(line) for line in answer.body.splitlines()]
    assert sorted(line["index"] for line in lines[:-1]) == [0, 1, 2, 3]
    assert all(line["score"] == 1.0 for line in lines[:-1])
    assert lines[-1]["done"] == 4 and lines[-1]["request_id"] == "s"
    assert lines[-1]["judged_by"]["verifiers"] == fingerprint(["misbehaves", "number"])
    asked = {"Accept": "application/x-ndjson"}
    again = ask(service.url, "/v1/verify", {"items": [number(1)]}, headers=asked)
    assert len(again.body.splitlines()) == 2


def test_the_same_request_is_judged_once_and_answered_alike(ask, service, acts):
    batch = {"items": [acts("torch?", id="once"), acts("sleep", id="once")], "request_id": "again"}
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(ask(service.url, "/v1/verify", batch)))
        for _ in range(3)
    ]
    before = service.desk.depth
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answers.append(ask(service.url, "/v1/verify", batch))
    assert before == 0 and {answer.status for answer in answers} == {200}
    assert len({answer.body for answer in answers}) == 1  # times included: nothing was done twice


def test_an_id_for_another_batch_is_refused(ask, service, number):
    first = ask(service.url, "/v1/verify", {"items": [number(1)], "request_id": "mine"})
    other = ask(service.url, "/v1/verify", {"items": [number(2)], "request_id": "mine"})
    assert (first.status, other.status) == (200, 409) and "'mine'" in other.json["detail"]


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        ({"items": [{"verifier": "numbr", "response": ""}]}, "Did you mean 'number'"),
        ({"items": [{"verifier": "math_answer", "response": "", "gold": "1"}]}, "not offered"),
        ({"items": [{"verifier": "number", "response": ""}]}, "needs a label"),
        ({"items": [{"response": "", "gold": "1"}]}, "names no verifier"),
        ({"items": [{"verifier": "number", "response": "", "reference": {}, "gold": 1}]}, "both"),
        ({"items": [{"verifier": "number", "response": 7}]}, "items.0.response: Value error"),
        ({"items": [{"verifer": "number", "response": ""}]}, "items.0.verifer: Extra inputs"),
        ({"item": []}, "body.items: Field required"),
        ([], "body: Input should be a valid dictionary"),
        (b"{", "JSON decode error"),
    ],
)
def test_what_is_wrong_is_named(ask, service, batch, said):
    answer = ask(service.url, "/v1/verify", batch)
    assert answer.status == 422 and said in answer.json["detail"], answer.json


def test_a_batch_of_more_items_than_the_queue_holds_is_too_large(ask, service):
    item = {"verifier": "number", "response": "", "gold": "1"}
    answer = ask(service.url, "/v1/verify", {"items": [item] * 4097})
    assert answer.status == 413 and "4097 items in one request; at most" in answer.json["detail"]


def test_no_items_no_verdicts(ask, service):
    answer = ask(service.url, "/v1/verify", {"items": []})
    assert answer.status == 200 and answer.json["verdicts"] == []


def test_the_list_of_verifiers_has_an_example_that_is_accepted(ask, service):
    listed = ask(service.url, "/v1/verifiers").json
    assert [one["name"] for one in listed["verifiers"]] == ["number", "think_format", "misbehaves"]
    one = listed["verifiers"][0]
    assert one["reference_keys"] == ["value"] and one["fingerprint"].startswith(one["version"])
    example = one["example"]
    shared = {"verifier": "number", "reference": example["reference"]}
    items = [{**shared, "response": r} for r in [example["accepts"], *example["rejects"]]]
    verdicts = ask(service.url, "/v1/verify", {"items": items}).json["verdicts"]
    assert [v["score"] for v in verdicts] == [1.0] + [0.0] * len(example["rejects"])


@pytest.mark.slow
def test_a_hang_delays_no_later_request(ask, service, number, acts):
    slow = threading.Thread(
        target=ask, args=(service.url, "/v1/verify", {"items": [acts("hang", id="h")]})
    )
    slow.start()
    time.sleep(0.1)
    began = time.monotonic()
    answer = ask(service.url, "/v1/verify", {"items": [number(5)]})
    took = time.monotonic() - began
    slow.join()
    assert answer.json["verdicts"][0]["score"] == 1.0
    assert took < 8.0  # one worker: the hang is killed first, then a new one starts


def test_health_metrics_and_the_description_of_the_service(ask, service, number):
    ask(service.url, "/v1/verify", {"items": [number(3)]})
    assert ask(service.url, "/healthz").json == {"status": "alive"}
    assert ask(service.url, "/readyz").json == {"status": "ready"}
    text = ask(service.url, "/metrics").body.decode()
    assert 'veriloop_verdicts_total{status="graded",verifier="number"}' in text
    assert 'veriloop_request_seconds_count{code="200",path="/v1/verify"}' in text
    assert "veriloop_queue_items 0.0" in text and "veriloop_pool_restarts" in text
    paths = ask(service.url, "/openapi.json").json["paths"]
    assert {"/v1/verify", "/get_reward", "/slime", "/verify", "/run_code"} <= set(paths)
    assert ask(service.url, "/docs").status == 200
