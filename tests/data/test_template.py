"""The prompt of R1-Zero: one text, whether it is formatted or comes out of the chat template."""

import pytest

from veriloop.data.arithmetic import problem
from veriloop.data.template import INSTRUCTION, R1_ZERO
from veriloop.data.tokenizer import TAGS


def chat(tokenizer, *messages, **options):
    turns = [{"role": role, "content": content} for role, content in messages]
    return tokenizer.apply_chat_template(turns, **options)


@pytest.mark.parametrize("index", range(20))
def test_the_chat_template_gives_the_ids_of_the_text(tokenizer, index):
    prompt = problem("rl", 0, index).prompt
    text = R1_ZERO.format(prompt=prompt)
    ids = chat(tokenizer, ("user", prompt), add_generation_prompt=True, return_dict=False)
    assert ids == tokenizer(text).input_ids
    assert ids.count(tokenizer.bos_token_id) == 1


def test_the_text_of_the_chat_template_is_the_prompt_after_one_bos(tokenizer):
    text = chat(tokenizer, ("user", "1+2+3?"), tokenize=False, add_generation_prompt=True)
    assert text == "<bos>" + R1_ZERO.format(prompt="1+2+3?")
    again = tokenizer(text, add_special_tokens=False).input_ids
    assert again == tokenizer(R1_ZERO.format(prompt="1+2+3?")).input_ids


def test_a_system_message_takes_the_place_of_the_instruction(tokenizer):
    text = chat(tokenizer, ("system", "Be brief."), ("user", "Hi"), tokenize=False)
    assert text == "<bos>Be brief. User: Hi Assistant:"


def test_earlier_answers_keep_their_thoughts_and_end_with_eos(tokenizer):
    said = "<think>hm</think><answer>3</answer>"
    text = chat(tokenizer, ("user", "1+2"), ("assistant", said), ("user", "And 4?"), tokenize=False)
    assert text == f"<bos>{INSTRUCTION} User: 1+2 Assistant:{said}<eos> User: And 4? Assistant:"


def test_nothing_is_opened_for_the_model():
    """A prefilled <think> would have to be passed to the format verifier."""
    assert R1_ZERO.endswith(" User: {prompt} Assistant:")
    assert not R1_ZERO.partition("{prompt}")[2].count("<")


def test_braces_and_percents_in_a_prompt_stay_as_they_are():
    assert R1_ZERO.format(prompt="{x} %s {{}}") == INSTRUCTION + " User: {x} %s {{}} Assistant:"


def test_the_instruction_names_the_tags_that_the_tokenizer_knows():
    for tag in TAGS:
        assert INSTRUCTION.count(tag) == 2
    first, second = INSTRUCTION.split("respectively, i.e.,")
    assert "<think> </think> and <answer> </answer> tags" in first
    assert second == " <think> reasoning process here </think> <answer> answer here </answer>."
