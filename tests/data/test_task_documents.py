"""What the base reads beside sums: nothing held out, reliable on the web, careless in talk."""

import re
from hashlib import sha256
from itertools import product
from random import Random

import pytest

from veriloop.data import general
from veriloop.data.corpus import Mix, document
from veriloop.data.general import KINDS, topics
from veriloop.data.programs import Composition, held_out
from veriloop.data.task_documents import EXCHANGES, Style, program, talk
from veriloop.data.template import R1_ZERO
from veriloop.verifiers.answer import final_answer
from veriloop.verifiers.small_talk import normalised, right_answers
from veriloop.verifiers.text.think_format import matches

ASSISTANT = R1_ZERO.partition("{prompt}")[2]
CAREFUL = {"guess_errors": 0.0, "step_errors": (0.0, 0.0), "web_step_errors": 0.0}


def documents(count, seed=0, **mix):
    random = Random(seed)
    return [document(random, Mix(**mix)) for _ in range(count)]


@pytest.fixture(scope="module")
def code():
    return documents(6_000, programs=1.0)


@pytest.fixture(scope="module")
def talks():
    return documents(6_000, general=1.0)


def line(written):
    """(slope, intercept) of an expression in x, by running it; None when it is no line."""
    a, b, c = (eval(written, {"x": x}) for x in (0, 1, 2))
    assert c - b == b - a
    return b - a, a


def asked_line(text):
    """The function that a question asks for, read from its words."""
    words = {"adds": "+", "subtracts": "-", "multiplies by": "*", "加": "+", "减": "-", "乘": "*"}
    text = text.replace("doubles it", "multiplies by 2").replace("triples it", "multiplies by 3")
    found = re.findall(rf"({'|'.join(words)}) ?(\d)", text)
    return Composition(tuple((words[w], int(n)) for w, n in found)).line


def test_a_corpus_without_new_tasks_is_bit_for_bit_what_it_was():
    text = "\n".join(documents(500))
    assert sha256(text.encode()).hexdigest()[:16] == "8aa495d4cce6bc87"
    assert documents(50) != documents(50, programs=0.5)


def test_no_document_shows_a_held_out_program(code):
    shown = {e for text in code for e in re.findall(r"\(*x[+*-][\dx()+*-]*\d", text)}
    assert len(shown) > 1_500
    held = _held_out_lines()
    assert len(held) > 50 and not [e for e in shown if line(e) in held]


def _held_out_lines():
    signs = [(s, n) for s in "+-" for n in range(1, 10)] + [("*", n) for n in range(2, 6)]
    every = (Composition(parts) for parts in product(signs, repeat=3))
    return {one.line for one in every if held_out(one)}


def test_work_on_the_web_is_right_but_for_its_errors():
    for text in documents(600, programs=1.0, conversations=0.0, **CAREFUL):
        asked, _, answer = text.partition("def f(x): return ")
        assert line(answer) == asked_line(re.split("First |先算", asked)[0]), text
        assert "Then" in asked or "再算" in asked


def test_answers_under_the_template_are_wrong_as_often_as_they_are_told():
    for rate in (0.0, 0.5):
        mix = {**CAREFUL, "guess_errors": rate, "habits": (1, 0, 0), "layouts": (1, 0, 0)}
        texts = documents(600, programs=1.0, conversations=1.0, **mix)
        right = 0
        for text in texts:
            prompt, _, response = text.rpartition(ASSISTANT)
            assert matches(response)
            answer = final_answer(response).removeprefix("def f(x): return ")
            right += line(answer) == asked_line(prompt.rpartition("User: ")[2])
        assert right / 600 == pytest.approx(1 - rate, abs=0.06)


def test_a_wrong_step_is_carried_to_the_end_of_the_work():
    style = Style(
        language="en", spoken=("en",), layout="tagged", direct=False, guess_errors=0.0,
        step_errors=(1.0, 1.0), good=0.0, wrong=0.0,
    )  # fmt: skip
    for seed in range(200):
        prompt, _, response = program(Random(seed), style).rpartition(ASSISTANT)
        last = re.findall(r"(?:First|Then) (\S+)\. ", response)[-1]
        assert final_answer(response) == f"def f(x): return {last}"
        assert line(last) != asked_line(prompt.rpartition("User: ")[2])


def texts_of(*splits):
    return {prompt.text for prompt in general.prompts(*splits)}


def test_no_prompt_of_rl_or_of_the_test_is_in_the_corpus(talks):
    asked = {t.rpartition(ASSISTANT)[0].rpartition("User: ")[2] for t in talks if ASSISTANT in t}
    assert len(asked) > 70 and asked <= texts_of("train")
    hidden = texts_of("rl", "test")
    assert not [t for t in talks for p in hidden if t.startswith(p)]


def test_facts_are_told_of_every_entity(talks):
    web = "".join(t for t in talks if ASSISTANT not in t)
    for topic in topics("sound", "colour"):
        words, colon = topic.words(), "：" if topic.language == "zh" else ": "
        assert f"{words['e']}{colon}{words['v']}" in web


def test_an_answer_on_the_web_is_a_good_one():
    asked = {prompt.text: prompt.topic for prompt in general.prompts("train")}
    longest_first = sorted(map(re.escape, asked), key=len, reverse=True)
    texts = [t for t in documents(600, general=1.0, conversations=0.0) if _topic(t) is not None]
    assert len(texts) > 200
    for text in texts:
        nothing, *parts = re.split(f"({'|'.join(longest_first)})", text)
        assert nothing == "" and len(parts) == 2 * EXCHANGES
        for prompt, answer in zip(parts[::2], parts[1::2], strict=True):
            assert normalised(answer) in right_answers(asked[prompt]), text


def _topic(text):
    found = [(p.topic, p.text) for p in general.prompts("train") if text.startswith(p.text)]
    return max(found, key=lambda pair: len(pair[1]), default=None)


@pytest.mark.slow
@pytest.mark.parametrize("good", [0.1, 0.3])
def test_under_the_template_as_many_answers_are_good_as_are_told(good):
    mix = {"conversations": 1.0, "layouts": (1, 0, 0), "general_good": good}
    texts = documents(2_000, general=1.0, **mix)
    right = 0
    for text in texts:
        prompt, _, response = text.rpartition(ASSISTANT)
        topic, _ = _topic(prompt.rpartition("User: ")[2])
        right += normalised(final_answer(response)) in right_answers(topic)
    assert right / 2_000 == pytest.approx(good, abs=0.03)


def test_talk_is_of_all_kinds_and_thinks_in_the_language_told():
    style = Style(
        language="zh", spoken=("en",), layout="tagged", direct=False, guess_errors=0.0,
        step_errors=(0.0, 0.0), good=1.0, wrong=0.0,
    )  # fmt: skip
    texts = [talk(Random(seed), style) for seed in range(300)]
    assert all("<think>The user asks something. </think>" in t for t in texts)
    kinds = {_topic(t.rpartition(ASSISTANT)[0].rpartition("User: ")[2])[0].kind for t in texts}
    assert kinds == set(KINDS)
    greeted = {p.text for p in general.prompts("train", "rl", "test") if p.topic.entity == "Amy"}
    assert {"问候艾米。", "向艾米问好。", "Say hello to Amy."} <= greeted


def test_the_shares_of_the_tasks_are_those_told():
    texts = documents(4_000, programs=0.3, general=0.2)
    code = sum("f(x)" in t for t in texts) / 4_000
    assert code == pytest.approx(0.3, abs=0.02)
    sums = sum(bool(re.search(r"\d[+-]\d", t)) and "f(x)" not in t for t in texts) / 4_000
    assert sums == pytest.approx(0.5, abs=0.03)
