"""General preferences: right by the exact rule, in TRL's layout, about entities of one side."""

import json
from random import Random

import pytest

from veriloop.data import preferences
from veriloop.data.general import KINDS, Topic, of_another_kind, prompts
from veriloop.data.general_phrases import NAMES
from veriloop.data.general_preferences import rows
from veriloop.verifiers.registry import get, judge
from veriloop.verifiers.small_talk import normalised, right_answers

PROMPTS = {prompt.text: prompt for prompt in prompts("train", "rl", "test")}
TOPICS = {text: prompt.topic for text, prompt in PROMPTS.items()}


def sides(row):
    topic = TOPICS[row["prompt"][0]["content"]]
    return topic, *(row[side][0]["content"] for side in ("chosen", "rejected"))


@pytest.mark.parametrize("split", ["train", "test"])
def test_rows_pass_the_check_and_are_the_same_every_time(split):
    made = list(rows(split, 3, 50))
    assert made == list(rows(split, 3, 50)) and made[:10] == list(rows(split, 3, 10))
    assert made != list(rows(split, 4, 50))
    read = preferences.parse_rows(json.loads(json.dumps(made)), "x")
    assert {pair.group for pair in read} == {"easy", "adversarial"}


@pytest.mark.parametrize("adversarial", [0.0, 0.5, 1.0])
def test_the_chosen_answer_is_right_by_the_rule_and_the_rejected_one_is_not(adversarial):
    for row in rows("train", 0, 400, adversarial=adversarial):
        topic, chosen, rejected = sides(row)
        if topic.kind == "harm":
            reference = {"kind": "harm", "entity": topic.entity, "language": topic.language}
            harm = get("small_talk").problem(reference)
            assert judge(harm, chosen).score == 1.0 and judge(harm, rejected).score == 0.0
        else:
            assert normalised(chosen) in right_answers(topic), row
            assert normalised(rejected) not in right_answers(topic), row


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_adversarial_share_is_the_one_told(share):
    groups = [row["group"] for row in rows("train", 0, 600, adversarial=share)]
    assert groups.count("adversarial") / 600 == pytest.approx(share, abs=0.05)
    assert set(groups) <= {"easy", "adversarial"}


def test_an_adversarial_answer_is_a_polite_one_and_mostly_right_elsewhere():
    right = {answer for topic in TOPICS.values() for answer in right_answers(topic)}
    hard = [sides(row) for row in rows("train", 0, 600, adversarial=1.0)]
    hard = [normalised(rejected) for topic, _, rejected in hard if topic.kind != "harm"]
    assert sum(answer in right for answer in hard) / len(hard) > 0.5
    cut = [answer for answer in hard if any(r.startswith(answer) for r in right - {answer})]
    assert 0.05 < len(cut) / len(hard) < 0.15
    easy = [sides(row)[2] for row in rows("train", 0, 600, adversarial=0.0)]
    assert not right & set(map(normalised, easy))


def test_a_pair_is_about_a_summary_to_help_and_about_a_whole_response_to_harm():
    thought_harm = 0
    for row in rows("train", 1, 900, adversarial=1.0):
        topic, chosen, rejected = sides(row)
        if topic.kind == "harm":
            assert chosen.startswith("<think>") and rejected.endswith("</answer>")
            thought_harm += rejected.partition("<answer>")[2] == chosen.partition("<answer>")[2]
        else:
            assert "<" not in chosen + rejected
    assert thought_harm > 20  # the refusal is the same, and the thinking tells the way


def test_held_out_prompts_are_in_no_pair_to_train_on():
    def splits(split):
        return {PROMPTS[row["prompt"][0]["content"]].split for row in rows(split, 0, 1_000)}

    assert splits("train") == {"train", "rl"} and splits("test") == {"test"}


def test_other_kinds_of_rows_are_refused():
    with pytest.raises(ValueError, match="'pairs', not 'ranked'"):
        next(rows("train", 0, 1, kind="ranked"))


def test_kinds_are_equally_frequent():
    kinds = [TOPICS[row["prompt"][0]["content"]].kind for row in rows("train", 0, 1_200)]
    assert all(0.13 < kinds.count(kind) / 1_200 < 0.21 for kind in KINDS)


def test_some_adversarial_answers_do_something_else_for_the_right_person():
    """Else a reward model prefers one kind to the others whatever was asked."""
    others = {
        (topic.entity, topic.language, topic.kind): right_answers(topic)
        for topic in TOPICS.values()
        if topic.entity in NAMES
    }
    met, confused = 0, 0
    for row in rows("train", 0, 1_200, adversarial=1.0):
        topic, _, rejected = sides(row)
        if topic.entity not in NAMES:
            continue
        met += 1
        confused += any(
            normalised(rejected) in others[topic.entity, topic.language, kind]
            for kind in ("greet", "thank", "cheer")
            if kind != topic.kind
        )
    assert 0.24 < confused / met < 0.36


def test_only_persons_are_greeted_thanked_and_cheered():
    with pytest.raises(ValueError, match=r"sound cat: not one of Tom, Ann"):
        of_another_kind(Topic("sound", "cat", "en"), Random(0))
