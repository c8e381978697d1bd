"""Which answers a page carries, within its budget, and what it tells of their tokens."""

import json
from dataclasses import replace

import pytest
import torch

from veriloop.pipeline.report.read_run import read_run
from veriloop.pipeline.report.rollout_stats import collect_stats
from veriloop.pipeline.report.sample import ANSWERS, TEXT, most_repeated, sampled
from veriloop.pipeline.report.token_pieces import TokenPieces
from veriloop.pipeline.runs.rollout_file import write_rollouts
from veriloop.pipeline.types import SeenTokens
from veriloop.verifiers.verdict import Verdict

PLENTY = 10**7


@pytest.fixture
def taken(run):
    def take(groups=None, *, steps=1, wanted=None, budget=PLENTY, pieces=None, **rest):
        files = read_run(run(groups=groups, steps=steps)).stages[0].rollout_files
        return sampled(files, collect_stats(files).groups, wanted or {}, pieces, budget, **rest)

    return take


def reasons(step):
    return {group["index"]: group["why"] for group in step["groups"]}


def test_best_worst_middle_and_most_divided_are_taken(taken, answer):
    def of(*rewards):
        return [answer(reward=reward) for reward in rewards]

    groups = [of(1, 1), of(0, 0), of(0, 2.5), of(2, 2), of(1, 1.1), of(1, 1.2)]
    [step] = taken(lambda _: [*groups[:4], *groups[4:]])
    assert reasons(step) == {1: "worst", 3: "best", 2: "most divided", 5: "middle"}


def test_what_a_verifier_failed_on_and_what_is_pointed_at_are_taken(taken, answer):
    broken = answer(verdicts={"accuracy": Verdict(score=None, status="error", detail="died")})
    groups = [[answer(problem=f"p/{i}", reward=1.0)] for i in range(8)] + [[broken]]
    [step] = taken(lambda _: groups, wanted={(1, 6): "far too short"})
    assert reasons(step)[8] == "verifier failed" and reasons(step)[6] == "far too short"
    told = step["groups"][-1]["answers"][0]
    assert told["reward"] is None and told["verdicts"][0]["status"] == "error"


def test_scores_of_steps_are_taken_with_their_answer(taken, answer):
    group = [
        replace(answer(reward=r), steps=s) for r, s in ((1.0, ((4, 1.0), (9, 0.5))), (0.0, None))
    ]
    [step] = taken(lambda _: [group])
    one, other = step["groups"][0]["answers"]
    assert one["steps"] == [(4, 1.0), (9, 0.5)] and "steps" not in other


def test_repeated_prompts_are_shown_at_every_step(taken, run, answer):
    def groups(step):
        return [[answer(problem=f"p/{step}/{i}")] for i in range(9)] + [[answer(problem="again")]]

    steps = taken(groups, steps=5)
    assert all("repeated" in reasons(step)[9] for step in steps) and len(steps) == 5
    found = collect_stats(read_run(run("other", groups=groups, steps=2)).stages[0].rollout_files)
    assert most_repeated(found.groups, 3) == {("", "again")}
    assert most_repeated(found.groups[:10], 3) == set()


@pytest.mark.slow
def test_a_small_budget_keeps_both_ends(run):
    files = read_run(run(steps=9)).stages[0].rollout_files
    groups = collect_stats(files).groups

    def kept(budget):
        return sampled(files, groups, {}, None, budget)

    assert [step["step"] for step in kept(PLENTY)] == list(range(1, 10))
    size = len(json.dumps(kept(PLENTY)[0], ensure_ascii=False))
    assert [step["step"] for step in kept(int(3.5 * size))] == [1, 5, 9]
    assert [step["step"] for step in kept(0)] == [1]


def test_of_a_large_group_some_are_taken_through_all_rewards(taken, answer):
    group = [answer(reward=float(i)) for i in range(100)]
    [step] = taken(lambda _: [group])
    [told] = step["groups"]
    rewards = [one["reward"] for one in told["answers"]]
    assert len(rewards) == ANSWERS and {0.0, 99.0} <= set(rewards) and told["n"] == 100
    assert all(one["i"] == one["reward"] for one in told["answers"])


def test_a_long_text_keeps_its_ends(taken, answer):
    text = "a" * TEXT + "b" * TEXT
    [step] = taken(lambda _: [[answer(text)]])
    told = step["groups"][0]["answers"][0]["text"]
    assert told.startswith("a" * 8000 + "\n[… 12,000 characters …]\nb") and told.endswith("b")


def test_tokens_tell_what_their_update_saw(taken):
    [step] = taken()
    tokens = step["groups"][0]["answers"][0]["tokens"]
    assert tokens == {
        "ids": [5, 6, 7],
        "logp": [-500] * 3,  # thousandths of a nat
        "off": [500] * 3,  # ten-thousandths
        "entropy": [250] * 3,
        "advantage": 0.5,  # the same for all
        "clipped": [[0, 1]],
    }


def test_values_of_tokens_that_are_not_finite_are_none(answer, tmp_path):
    nan = float("nan")
    path = tmp_path / "rollouts.parquet"
    update = SeenTokens(
        logp_T=torch.tensor([nan, -0.5, -float("inf")]),
        entropy_T=torch.tensor([0.25, nan, 0.25]),
        advantage_T=torch.tensor([nan, nan, 0.5]),
        clipped_T=torch.zeros(3, dtype=torch.int8),
    )
    write_rollouts(path, 1, [answer(), answer()], [0.5, 0.5], {0: update})
    files = [(1, path)]
    [step] = sampled(files, collect_stats(files).groups, {}, None, PLENTY)
    tokens = step["groups"][0]["answers"][0]["tokens"]
    assert tokens["off"] == [None, 0, None] and tokens["entropy"] == [250, None, 250]
    assert tokens["advantage"] == [None, None, 0.5] and tokens["logp"] == [-500] * 3
    json.dumps(step, allow_nan=False)


def test_of_long_groups_only_three_answers_are_traced(taken, answer):
    long = tuple(range(1500))
    group = [answer(ids=long, reward=float(i)) for i in range(6)]
    [step] = taken(lambda _: [group])
    traced = [one["reward"] for one in step["groups"][0]["answers"] if "tokens" in one]
    assert traced == [0.0, 3.0, 5.0]


class Bytes:
    """A tokenizer of bytes, in which a Chinese sign takes three tokens; 256 begins a word."""

    def decode(self, ids, skip_special_tokens):
        assert not skip_special_tokens
        text = b"".join(b" go" if i == 256 else bytes([i]) for i in ids).decode("utf-8", "replace")
        return text.removeprefix(" ")  # as many tokenizers do


def test_pieces_make_up_the_text():
    pieces = TokenPieces(Bytes())
    ids = [*"2 加 x".encode(), 256, 256]
    texts = [pieces.table[place] for place in pieces.indices(ids)]
    assert len(texts) == len(ids)
    assert "".join(texts) == "2 加 x go go"
    assert texts[2:5] == ["加", "", ""]


def test_bytes_that_are_no_character_show_as_such():
    pieces = TokenPieces(Bytes())
    texts = [pieces.table[place] for place in pieces.indices([0xFF, 65])]
    assert texts[0] == "\ufffd" and texts[1] == "A"
