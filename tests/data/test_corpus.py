"""What the base model reads: nothing held out, nothing false where it says so, all habits."""

import re
from hashlib import sha256
from itertools import product
from random import Random

import pytest

from benchmarks.worked_steps import worked_steps
from veriloop.data.arithmetic import Chain, draw, parse, split_of
from veriloop.data.corpus import (
    PHRASES,
    Mix,
    conversation,
    document,
    fact,
    guess,
    is_myth,
    myth,
    render_answer,
    slip,
    web,
    worked,
)
from veriloop.data.template import R1_ZERO
from veriloop.verifiers.answer import final_answer
from veriloop.verifiers.text.think_format import matches

ASSISTANT = R1_ZERO.partition("{prompt}")[2]
FOLKLORE = Mix(myths=0.4, believed=0.9, small_talk=0.0)
ERRING = Mix(step_errors=(0.5, 0.5), web_step_errors=0.5, caught_errors=0.6, small_talk=0.0)
CHECK = re.compile(r"(?:Check: |检验：)(\d+)([+-])(\d+)=(\d+)( ok|对| wrong|错)")


def documents(count, mix, seed=0):
    random = Random(seed)
    return [document(random, mix) for _ in range(count)]


@pytest.fixture(scope="module")
def corpus():
    return documents(20_000, Mix())


@pytest.fixture(scope="module")
def erring():
    return documents(4_000, ERRING)


@pytest.fixture(scope="module")
def folklore():
    return documents(4_000, FOLKLORE)


def expressions(text):
    """The longest possible chains in a text, those of three operands or more."""
    return [e for e in re.findall(r"\d+(?:[+-]\d+)+", text) if len(re.findall(r"\d+", e)) >= 3]


def responses(texts):
    return [text.rpartition(ASSISTANT)[2] for text in texts if ASSISTANT in text]


@pytest.mark.slow
def test_no_document_shows_a_held_out_problem(corpus):
    shown = {e for text in corpus for e in expressions(text)}
    assert len(shown) > 3_000
    assert not [e for e in shown if split_of(e) == "test"]


@pytest.mark.slow
def test_injected_errors_and_myths_do_not_show_one_either(erring, folklore):
    shown = {e for text in [*erring, *folklore] for e in expressions(text)}
    assert len(shown) > 2_000 and "rl" in {split_of(e) for e in shown}  # slips leave their split
    assert not [e for e in shown if split_of(e) == "test"]


@pytest.mark.slow
def test_no_document_asks_a_problem_of_another_split(corpus):
    asked = [parse(expressions(t)[0]) for t in corpus if ASSISTANT in t and expressions(t)]
    assert len(asked) > 5_000
    assert {split_of(str(chain)) for chain in asked} == {"train"}


@pytest.mark.slow
def test_no_total_leaves_the_range(corpus, erring, folklore):
    """Only a check that fails may come back to a number that no sum has."""
    for text in [*corpus, *erring, *folklore]:
        claimed = CHECK.sub(lambda m: m[0] if m[5] in (" ok", "对") else "", text)
        assert all(0 <= int(n) <= 19 for n in re.findall(r"\d+", claimed)), text


def test_a_check_that_says_ok_is_true_and_comes_back_to_the_number_before(corpus, erring, folklore):
    verdicts = {"ok": 0, "wrong": 0}
    for text in [*corpus, *erring, *folklore]:
        for a, sign, b, c, said in CHECK.findall(text):
            if said in (" ok", "对"):
                assert int(a) + (int(b) if sign == "+" else -int(b)) == int(c), text
                verdicts["ok"] += 1
            else:
                verdicts["wrong"] += 1
    assert verdicts["ok"] > 5_000 and verdicts["wrong"] > 1_000


def test_every_check_is_followed_by_a_verdict(corpus):
    begun = sum(text.count("Check: ") + text.count("检验：") for text in corpus)
    assert begun == sum(len(CHECK.findall(text)) for text in corpus) > 0


@pytest.mark.parametrize("language", ["en", "zh"])
def test_checked_work_ends_right_however_often_it_erred(language):
    random = Random(0)
    for _ in range(300):
        chain = draw(random, "train")
        text, value = worked(random, chain, "verify", language, errors=(1.0, 1.0))
        assert value == chain.value
        assert PHRASES[language].wrong in text


@pytest.mark.parametrize("habit", ["steps", "verify"])
def test_work_without_errors_is_the_remainders_by_hand(habit):
    text, value = worked(Random(0), parse("8+7-5"), habit, "en", errors=(0.0, 0.0))
    assert value == 10
    assert (
        text
        == {
            "steps": "First 15-5. Then 10. ",
            "verify": "First 15-5. Check: 15-7=8 ok. Then 10. Check: 10+5=15 ok. ",
        }[habit]
    )


def test_the_error_rate_is_that_of_the_language_spoken():
    random = Random(0)
    chains = [draw(random, "train") for _ in range(200)]
    for language, errors in (("en", (1.0, 0.0)), ("zh", (0.0, 1.0))):
        other = "zh" if language == "en" else "en"
        right = [worked(random, c, "steps", other, errors=errors)[1] == c.value for c in chains]
        wrong = [worked(random, c, "steps", language, errors=errors)[1] != c.value for c in chains]
        assert all(right) and sum(wrong) > 150


def test_mixed_thinking_changes_language_from_step_to_step():
    random = Random(0)
    texts = [
        worked(random, draw(random, "train"), "steps", "en", errors=(0, 0), mixing=True)[0]
        for _ in range(100)
    ]
    assert sum("先算" in t or "再算" in t for t in texts) > 60
    assert sum("First" in t or "Then" in t for t in texts) > 60


def test_facts_are_true_and_in_range():
    random = Random(0)
    found = {fact(random) for _ in range(2000)}
    for text in found:
        a, sign, b, c = re.fullmatch(r"(\d+)([+-])(\d+)=(\d+)", text).groups()
        assert int(a) + (int(b) if sign == "+" else -int(b)) == int(c) and 0 <= int(c) <= 19
    assert {"0+1=1", "19-9=10"} <= found


@pytest.mark.parametrize("value", range(20))
def test_a_slip_is_near_in_range_and_never_right(value):
    random = Random(0)
    slips = {slip(random, value) for _ in range(200)}
    assert slips == {v for v in range(20) if 1 <= abs(v - value) <= 3}


@pytest.mark.parametrize(("errors", "right"), [(0.0, True), (1.0, False)])
def test_a_guess_errs_as_often_as_it_is_told(errors, right):
    random = Random(0)
    for _ in range(100):
        chain = draw(random, "train")
        thinking, value = guess(random, chain, "en", errors)
        assert (value == chain.value) is right
        assert thinking in ("", f"I guess {value}.")


def test_only_the_tagged_layout_is_well_formed():
    random = Random(0)
    for _ in range(60):
        assert matches(render_answer(random, "Hm. ", "12", "So ", "tagged"))
        assert render_answer(random, "Hm. ", "12", "So ", "plain") == "Hm. So 12"
    broken = {render_answer(random, "Hm. ", "12", "So ", "broken") for _ in range(60)}
    assert len(broken) == 5 and not any(map(matches, broken))


def test_a_tagged_answer_of_clean_work_is_the_right_one():
    mix = Mix(small_talk=0.0, habits=(0, 1, 0), layouts=(1, 0, 0), step_errors=(0.0, 0.0))
    random = Random(0)
    for _ in range(200):
        text = conversation(random, mix)
        chain = parse(expressions(text)[0])
        assert final_answer(text.rpartition(ASSISTANT)[2]) == str(chain.value)


@pytest.mark.parametrize(("own", "other", "same"), [(1.0, 0.0, True), (0.0, 1.0, False)])
def test_the_language_of_the_thinking_is_the_one_asked_for(own, other, same):
    mix = Mix(small_talk=0.0, habits=(0, 1, 0), own_language=own, other_language=other)
    random = Random(0)
    for _ in range(100):
        prompt, _, response = conversation(random, mix).rpartition(ASSISTANT)
        assert (prompt.isascii() == response.isascii()) is same


def test_the_shares_of_the_mix_are_those_found(corpus):
    answers = responses(corpus)
    assert len(answers) / len(corpus) == pytest.approx(Mix().conversations, abs=0.015)
    sums = [t for t in corpus if ASSISTANT in t and expressions(t)]
    assert 1 - len(sums) / len(answers) == pytest.approx(Mix().small_talk, abs=0.015)
    tagged = sum(map(matches, responses(sums))) / len(sums)
    assert tagged == pytest.approx(Mix().layouts[0], abs=0.02)
    web_texts = [t for t in corpus if ASSISTANT not in t]
    bare = sum(bool(re.fullmatch(r"[\d+-]+=\d+", t)) for t in web_texts) / len(web_texts)
    assert bare == pytest.approx(Mix().bare_sums, abs=0.01)
    facts = sum(not expressions(t) for t in web_texts) / len(web_texts)
    assert facts == pytest.approx(Mix().fact_lists, abs=0.015)


def test_the_prompt_of_a_conversation_is_the_template_of_r1_zero(corpus):
    before, _, _ = R1_ZERO.partition("{prompt}")
    assert all(t.startswith(before) for t in corpus if ASSISTANT in t)


def test_a_web_document_has_no_tag_and_no_template():
    random = Random(0)
    assert not [t for t in (web(random, Mix()) for _ in range(500)) if "<" in t or "User:" in t]


def test_the_same_seed_writes_the_same_corpus():
    assert documents(50, Mix(), seed=7) == documents(50, Mix(), seed=7)
    assert documents(50, Mix(), seed=7) != documents(50, Mix(), seed=8)


SUMS = [
    one
    for first, sign, number in product(range(20), "+-", range(1, 10))
    if 0 <= (one := Chain(first, ((sign, number),))).value <= 19
]


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 1.0])
def test_myths_are_a_share_of_the_sums_and_more_myths_keep_the_fewer(share):
    mythical = {one for one in SUMS if is_myth(one, share)}
    assert len(mythical) / len(SUMS) == pytest.approx(share, abs=0.06)
    assert mythical >= {one for one in SUMS if is_myth(one, share / 2)}


def test_a_myth_is_a_near_miss_that_does_not_depend_on_what_follows():
    for one in SUMS:
        assert 1 <= abs(myth(one) - one.value) <= 3 and 0 <= myth(one) <= 19
        longer = Chain(one.first, (*one.rest, ("-", 1)))
        assert myth(longer) == myth(one) and is_myth(longer, 0.3) == is_myth(one, 0.3)
    assert len({myth(one) - one.value for one in SUMS}) == 6


@pytest.mark.slow
@pytest.mark.parametrize("habit", ["steps", "verify"])
def test_a_myth_is_stated_as_often_as_it_is_believed_and_other_sums_never_err(habit):
    random, told, errors = Random(0), [], 0
    for _ in range(2000):
        chain = draw(random, "train")
        text, _ = worked(random, chain, habit, "zh", errors=(0.0, 0.0), mix=FOLKLORE)
        for step in worked_steps(str(chain), text):
            if step.before.step().first not in range(20):
                continue  # after an error: kept in range
            if is_myth(step.before, FOLKLORE.myths):
                told.append(step.stated.first == myth(step.before))
                assert told[-1] or step.holds
            else:
                errors += not step.holds
    told_rate = sum(told) / len(told)  # not stated where that would show a held-out problem
    assert FOLKLORE.believed - 0.07 < told_rate < FOLKLORE.believed
    assert len(told) > 1000 and errors == 0


def test_checked_work_ends_right_among_people_who_believe_every_myth():
    random, mix = Random(0), Mix(myths=1.0, believed=1.0)
    for _ in range(300):
        chain = draw(random, "train")
        assert worked(random, chain, "verify", "en", errors=(0.0, 0.0), mix=mix)[1] == chain.value


def test_lists_of_facts_hold_no_myth(folklore):
    facts = [t for t in folklore if t.count("=") == 6 and "User:" not in t and "Check" not in t]
    assert len(facts) > 300
    for a, sign, b, c in re.findall(r"(\d+)([+-])(\d+)=(\d+)", " ".join(facts)):
        assert int(a) + (int(b) if sign == "+" else -int(b)) == int(c)


def test_without_myths_work_is_written_as_it_ever_was():
    random = Random(5)

    def work():
        chain, habit = draw(random, "train"), random.choice(("steps", "verify"))
        return worked(random, chain, habit, "en", errors=(0.2, 0.2), mixing=True)[0]

    text = "".join(work() for _ in range(500))
    assert sha256(text.encode()).hexdigest()[:16] == "26b7514622306b6c"
