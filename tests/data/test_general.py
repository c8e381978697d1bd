"""General prompts: who belongs where, which answers are good, and what is told of everybody."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from veriloop.data import general
from veriloop.data.general import ENTITIES, KINDS, Topic, distinct, draw, problem, prompts, topics
from veriloop.data.general_phrases import COLOURS, HARMFUL, REFUSALS, SOUNDS
from veriloop.verifiers.registry import judge

SPLITS = ("train", "rl", "test")


@pytest.mark.parametrize("kind", KINDS)
def test_a_topic_has_two_wordings_to_train_on_and_one_of_each_other_split(kind):
    splits = {topic: Counter() for topic in topics(kind)}
    for prompt in prompts(*SPLITS):
        if prompt.topic.kind == kind:
            splits[prompt.topic][prompt.split] += 1
    assert len(splits) == 2 * len(ENTITIES[kind])
    assert all(found == {"train": 2, "rl": 1, "test": 1} for found in splits.values())


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_held_out_of_one_topic_is_asked_of_others(kind, language):
    of = {split: set() for split in SPLITS}
    for prompt in prompts(*SPLITS):
        if (prompt.topic.kind, prompt.topic.language) == (kind, language):
            of[prompt.split].add(prompt.wording)
    assert of["train"] == of["test"] == {0, 1, 2, 3}


def test_splits_are_those_of_every_run():
    held_out = [p.text for p in prompts("test") if p.topic.kind == "sound"]
    assert held_out[:3] == ["What does a cat say?", "猫的叫声是什么？", "How does a dog sound?"]


def test_topics_are_every_entity_in_both_languages():
    assert {t.language for t in topics()} == {"en", "zh"}
    assert len(topics()) == len(set(topics())) == 2 * sum(map(len, ENTITIES.values()))
    assert {t.kind for t in topics("greet", "harm")} == {"greet", "harm"}


def test_a_prompt_is_drawn_of_its_splits_and_in_its_language():
    random = Random(0)
    for language in ("en", "zh"):
        drawn = [draw(random, "rl", "test", language=language) for _ in range(600)]
        assert {p.topic.language for p in drawn} == {language}
        assert {p.split for p in drawn} == {"rl", "test"}
        kinds = Counter(p.topic.kind for p in drawn)
        for kind in KINDS:  # three times as often where a value has to be known
            expected = 180 if kind in ("sound", "colour") else 60
            assert abs(kinds[kind] - expected) < 4 * expected**0.5


@pytest.mark.parametrize("split", SPLITS)
def test_a_problem_is_of_its_split_and_the_same_whatever_was_asked_before(split):
    forwards = [problem(split, 3, i) for i in range(60)]
    assert [problem(split, 3, i) for i in reversed(range(60))] == forwards[::-1]
    own = {p.text for p in prompts(split)}
    for one in forwards:
        assert one.prompt in own
        assert one.reference.items() <= one.facts.items()
        assert (one.verifier, one.facts["source"]) == ("small_talk", "general")


def test_no_two_splits_share_a_prompt():
    asked = {s: {p.prompt for p in distinct(s, 0, 10_000)} for s in SPLITS}
    assert sum(map(len, asked.values())) == len(set.union(*asked.values())) == 4 * len(topics())
    assert all(len(asked[s]) == len(prompts(s)) for s in SPLITS)


def test_an_evaluation_set_has_as_many_as_asked_for_or_all():
    few, every = distinct("test", 1, 10), distinct("test", 1, 10_000)
    assert every[:10] == few and len({p.prompt for p in every}) == len(every) < 10_000
    assert distinct("test", 2, 10) != few
    assert len({p.id for p in every}) == len(every)


def test_a_prompt_names_its_entity_in_its_language():
    for prompt in prompts(*SPLITS):
        assert prompt.topic.words()["e"] in prompt.text
        assert prompt.text.isascii() == (prompt.topic.language == "en")


def test_words_are_those_of_the_language():
    assert Topic("sound", "dog", "en").words() == {"e": "dog", "v": "woof"}
    assert Topic("sound", "dog", "zh").words() == {"e": "狗", "v": "汪汪"}
    assert Topic("colour", "snow", "zh").words() == {"e": "雪", "v": "白"}
    assert Topic("harm", "car", "zh").words() == {"e": "车"}
    assert Topic("greet", "Amy", "zh").words() == {"e": "艾米"}


def test_good_answers_are_right_by_hand():
    random = Random(0)
    said = {t: {general.good(t, random) for _ in range(40)} for t in topics()}
    assert said[Topic("greet", "Amy", "en")] == {
        "Hello Amy, nice to meet you!", "Hello Amy, how can I help you?",
        "Good day Amy, nice to meet you!", "Good day Amy, how can I help you?",
    }  # fmt: skip
    assert said[Topic("sound", "dog", "en")] == {"A dog says woof. I hope this helps!"}
    assert said[Topic("cheer", "Amy", "zh")] == {"干得好艾米，真了不起！", "恭喜艾米，真了不起！"}
    assert said[Topic("colour", "snow", "zh")] == {"雪的颜色是白。希望有帮助！"}
    assert said[Topic("thank", "Bob", "zh")] == {"谢谢鲍勃，您真好！", "多谢鲍勃，您真好！"}
    assert said[Topic("harm", "car", "en")] == set(REFUSALS["en"])


def test_another_topic_has_another_value_too():
    random = Random(0)
    for topic in topics():
        for _ in range(20):
            other = general.another(topic, random)
            assert other.entity != topic.entity and other.kind == topic.kind
            if topic.kind in ("sound", "colour"):
                assert other.words()["v"] != topic.words()["v"]
    assert len({white for white in COLOURS.values() if white[1] == "white"}) == 2


def test_every_way_to_do_harm_has_a_word_that_gives_it_away():
    random = Random(0)
    for topic in topics("harm"):
        ways = {general.way(topic, random) for _ in range(40)}
        assert len(ways) == 2
        assert all(any(word in way.lower() for word in HARMFUL) for way in ways)


def test_the_vocabulary_is_every_word_that_phrases_leave_open():
    words = general.vocabulary()
    assert {"Amy", "cow", "moo", "牛", "哞哞", "white", "白", "wallet", "钱包"} <= set(words)
    assert len(set(words)) == len(words) and not any(char in w for w in words for char in "0 1")


def test_facts_are_told_of_every_entity_and_are_true():
    random = Random(0)
    told = {general.fact(random) for _ in range(6_000)}
    assert {f"{a}: {SOUNDS[a][1]}. " for a in SOUNDS} <= told
    assert {f"{SOUNDS[a][2]}：{SOUNDS[a][3]}。" for a in SOUNDS} <= told
    assert {f"{e}: {c[1]}. " for e, c in COLOURS.items()} <= told
    assert {f"{name}. " for name in ENTITIES["greet"]} <= told
    right = {f"{e}: {v}. " for e, v, *_ in (*SOUNDS.values(), *COLOURS.values())}
    assert {f for f in told if ": " in f} == right


def test_an_answer_without_thinking_is_judged_by_its_own_language():
    """A right one is in one language: a reward for that must not pay for leaving names out."""
    for index in range(120):
        asked = replace(problem("rl", 0, index), verifier="language", reference={})
        facts = asked.facts
        own = Topic(facts["kind"], facts["entity"], facts["language"])
        other = replace(own, language="zh" if own.language == "en" else "en")
        spoken, foreign = (f"<think></think>{general.good(t, Random(0))}" for t in (own, other))
        assert judge(asked, spoken).score == 1.0 > 0.3 > judge(asked, foreign).score
