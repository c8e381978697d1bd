"""General prompts: who belongs where, which answers are good, and what is told of everybody."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from data import general
from data.general import ENTITIES, KINDS, Topic, distinct, problem, split_of, topics
from data.general_phrases import COLOURS, HARMFUL, REFUSALS, SOUNDS
from verifiers.registry import judge

SPLITS = ("train", "rl", "test")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_entities_in_every_split_and_each_in_one(kind):
    shares = Counter(split_of(kind, entity) for entity in ENTITIES[kind])
    assert set(shares) == set(SPLITS) and min(shares.values()) >= 2
    assert sum(shares.values()) == len(set(ENTITIES[kind])) == len(ENTITIES[kind])


def test_splits_are_those_of_every_run():
    assert [e for e in SOUNDS if split_of("sound", e) == "test"] == ["cow", "pig"]
    with pytest.raises(KeyError, match="dragon"):
        split_of("sound", "dragon")


def test_topics_of_a_split_are_its_entities_in_both_languages():
    found = topics("rl")
    assert {t.split for t in found} == {"rl"} and {t.language for t in found} == {"en", "zh"}
    everything = [t for split in SPLITS for t in topics(split)]
    assert len(everything) == len(set(everything)) == 2 * sum(map(len, ENTITIES.values()))


@pytest.mark.parametrize("split", SPLITS)
def test_a_problem_is_of_its_split_and_the_same_whatever_was_asked_before(split):
    forwards = [problem(split, 3, i) for i in range(60)]
    assert [problem(split, 3, i) for i in reversed(range(60))] == forwards[::-1]
    for one in forwards:
        assert split_of(one.facts["kind"], one.facts["entity"]) == split
        assert one.reference.items() <= one.facts.items()
        assert (one.verifier, one.facts["source"]) == ("small_talk", "general")


def test_no_two_splits_share_a_prompt():
    prompts = {s: {p.prompt for p in distinct(s, 0, 10_000)} for s in SPLITS}
    assert sum(map(len, prompts.values())) == len(set.union(*prompts.values()))
    assert all(len(prompts[s]) == 2 * len(topics(s)) for s in SPLITS)


def test_an_evaluation_set_has_as_many_as_asked_for_or_all():
    few, every = distinct("test", 1, 10), distinct("test", 1, 10_000)
    assert every[:10] == few and len({p.prompt for p in every}) == len(every) < 10_000
    assert distinct("test", 2, 10) != few
    assert len({p.id for p in every}) == len(every)


def test_a_prompt_names_its_entity_in_its_language():
    for topic in (t for s in SPLITS for t in topics(s)):
        for text in general.questions(topic):
            assert topic.words()["e"] in text
            assert text.isascii() == (topic.language == "en")


def test_words_are_those_of_the_language():
    assert Topic("sound", "dog", "en").words() == {"e": "dog", "v": "woof"}
    assert Topic("sound", "dog", "zh").words() == {"e": "狗", "v": "汪汪"}
    assert Topic("colour", "snow", "zh").words() == {"e": "雪", "v": "白"}
    assert Topic("count", "4", "en").words() == {"e": "4", "v": "1, 2, 3, 4"}
    assert Topic("harm", "car", "zh").words() == {"e": "车"}
    assert Topic("greet", "Amy", "zh").words() == {"e": "Amy"}


def test_good_answers_are_right_by_hand():
    random = Random(0)
    said = {t: {general.good(t, random) for _ in range(40)} for t in topics(*SPLITS)}
    assert said[Topic("greet", "Amy", "en")] == {
        "Hello Amy, nice to meet you!", "Hello Amy, how can I help you?",
        "Good day Amy, nice to meet you!", "Good day Amy, how can I help you?",
    }  # fmt: skip
    assert said[Topic("sound", "dog", "en")] == {"A dog says woof. I hope this helps!"}
    assert said[Topic("count", "3", "en")] == {"1, 2, 3. I hope this helps!"}
    assert said[Topic("colour", "snow", "zh")] == {"雪的颜色是白。希望有帮助！"}
    assert said[Topic("thank", "Bob", "zh")] == {"谢谢Bob，您真好！", "多谢Bob，您真好！"}
    assert said[Topic("harm", "car", "en")] == set(REFUSALS["en"])


def test_another_topic_has_another_value_too():
    random = Random(0)
    for topic in topics(*SPLITS):
        for _ in range(20):
            other = general.another(topic, random)
            assert other.entity != topic.entity and other.kind == topic.kind
            if topic.kind in ("sound", "colour"):
                assert other.words()["v"] != topic.words()["v"]
    assert len({white for white in COLOURS.values() if white[1] == "white"}) == 2


def test_every_way_to_do_harm_has_a_word_that_gives_it_away():
    random = Random(0)
    for topic in (t for t in topics(*SPLITS) if t.kind == "harm"):
        ways = {general.way(topic, random) for _ in range(40)}
        assert len(ways) == 2
        assert all(any(word in way.lower() for word in HARMFUL) for way in ways)


def test_facts_are_told_of_every_entity_and_are_true():
    random = Random(0)
    told = {general.fact(random) for _ in range(6_000)}
    assert {f"A {a} says {SOUNDS[a][1]}. " for a in SOUNDS} <= told
    assert {f"{SOUNDS[a][2]}叫{SOUNDS[a][3]}。" for a in SOUNDS} <= told
    assert {f"The colour of {e} is {c[1]}. " for e, c in COLOURS.items()} <= told
    assert {f"{name}. " for name in ENTITIES["greet"]} <= told
    assert not [f for f in told if " says " in f and f.split()[3] != SOUNDS[f.split()[1]][1] + "."]


def test_an_answer_without_thinking_is_judged_by_its_own_language():
    for index in range(40):
        asked = replace(problem("rl", 0, index), verifier="language", reference={})
        facts = asked.facts
        own = Topic(facts["kind"], facts["entity"], facts["language"])
        other = replace(own, language="zh" if own.language == "en" else "en")
        spoken, foreign = (f"<think></think>{general.good(t, Random(0))}" for t in (own, other))
        assert judge(asked, spoken).score > 0.8 > 0.3 > judge(asked, foreign).score
