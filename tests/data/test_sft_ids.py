"""Lessons: the completions and the one EOS after each are learned, and nothing of a prompt."""

import pytest

from veriloop.data.preference_ids import encode
from veriloop.data.sft_ids import encode_example
from veriloop.data.sft_rows import Conversation, PlainText
from veriloop.data.template import CHAT

USER, SAID = {"role": "user", "content": "计算3+4。"}, {"role": "assistant", "content": "<think>7"}
OTHER = {"role": "user", "content": "Compute 1+1."}
LAST = {"role": "assistant", "content": "<answer>2</answer>"}
CHATML = (
    "{%- for m in messages -%}{{ '<|' + m['role'] + '|>' + m['content'] }}"
    "{%- if m['role'] == 'assistant' -%}{{ eos_token + '\n' }}{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"
)
FORGETS = (  # as R1's own template does, which drops what earlier turns thought
    "{%- for m in messages -%}{%- if m['role'] == 'assistant' and not loop.last -%}"
    "{{ m['content'].split('</think>')[-1] + eos_token }}"
    "{%- else -%}{{ m['content'] + (eos_token if m['role'] == 'assistant' else '') }}"
    "{%- endif -%}{%- endfor -%}"
)


@pytest.fixture
def tokenizer(tokenizer, monkeypatch):
    """The shared tokenizer; a test may replace its chat template."""
    monkeypatch.setattr(tokenizer, "chat_template", CHAT)
    return tokenizer


def read(tokenizer, one, learned):
    ids = [i for i, flag in zip(one.ids, one.learned, strict=True) if flag is learned]
    return tokenizer.decode(ids)


def test_a_completion_and_its_end_are_learned_and_the_prompt_is_not(tokenizer):
    one = encode_example(PlainText(prompt="What is 3+4?", completion=" 7 "), tokenizer, (2,))
    assert read(tokenizer, one, True) == " 7 <eos>"
    assert read(tokenizer, one, False) == "<bos>What is 3+4?"
    assert one.learned.index(True) == len(one.ids) - one.targets


def test_a_question_and_an_answer_are_encoded_as_preferences_are(tokenizer):
    row = Conversation(messages=(USER, SAID), prompt_length=1)
    one, other = encode_example(row, tokenizer, (2,)), encode((USER,), (SAID,), tokenizer, (2,))
    assert one.ids == (*other.prompt, *other.completion)
    assert one.learned == (False,) * len(other.prompt) + (True,) * len(other.completion)
    assert one.ids.count(1) == 1 and one.ids.count(2) == 1 and one.ids[-1] == 2


def test_every_turn_of_the_assistant_is_learned_or_only_the_last(tokenizer):
    row = Conversation(messages=(USER, SAID, OTHER, LAST))
    both = encode_example(row, tokenizer, (2,))
    assert read(tokenizer, both, True) == "<think>7<eos><answer>2</answer><eos>"
    assert read(tokenizer, both, False).endswith(" User: Compute 1+1. Assistant:")
    only = encode_example(row, tokenizer, (2,), last_turn=True)
    assert read(tokenizer, only, True) == "<answer>2</answer><eos>"
    assert "<think>7<eos>" in read(tokenizer, only, False)
    assert tokenizer.decode(both.ids) == tokenizer.decode(only.ids)


def test_of_three_turns_each_is_learned_and_only_the_last_is_not_followed(tokenizer):
    tokenizer.chat_template = CHATML
    row = Conversation(messages=(USER, SAID, OTHER, LAST, USER, SAID))
    one = encode_example(row, tokenizer, (2,))
    learned = "<think>7<eos><answer>2</answer><eos><think>7<eos>"
    assert read(tokenizer, one, True) == learned and one.ids[-1] == 2
    only = encode_example(row, tokenizer, (2,), last_turn=True)
    assert read(tokenizer, only, True) == "<think>7<eos>"
    between = read(tokenizer, one, False).removeprefix("<bos>")
    assert between.count("\n<|user|>") == 2 and not between.endswith("\n")


def test_a_beginning_in_every_turn_is_allowed_as_often_as_the_template_writes_one(tokenizer):
    tokenizer.chat_template = (
        "{%- for m in messages -%}{{ bos_token + m['content'] }}"
        "{%- if m['role'] == 'assistant' -%}{{ eos_token }}{%- endif -%}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{ bos_token }}{%- endif -%}"
    )
    talk = (USER, SAID, OTHER, LAST, USER, SAID)
    one = encode_example(Conversation(messages=talk), tokenizer, (2,))
    assert one.ids.count(1) == 6 and one.ids[0] == 1
    twice = {"role": "user", "content": "Compute<bos>1+1."}
    talk = (USER, SAID, twice, *talk[3:])
    with pytest.raises(ValueError, match="7 BOS ids"):
        encode_example(Conversation(messages=talk), tokenizer, (2,))


def test_turns_inside_the_prompt_are_not_learned(tokenizer):
    row = Conversation(messages=(USER, SAID, OTHER, LAST), prompt_length=3)
    assert read(tokenizer, encode_example(row, tokenizer, (2,)), True) == "<answer>2</answer><eos>"


def test_what_a_template_writes_after_an_end_stays_and_is_not_learned(tokenizer):
    tokenizer.chat_template = CHATML
    row = Conversation(messages=(USER, SAID, OTHER, LAST))
    one = encode_example(row, tokenizer, (2,))
    assert read(tokenizer, one, True) == "<think>7<eos><answer>2</answer><eos>"
    assert "\n<|user|>Compute" in read(tokenizer, one, False)
    assert one.ids[-1] == 2  # after the last end nothing follows


def test_a_template_that_drops_earlier_thinking_allows_the_last_turn_only(tokenizer):
    tokenizer.chat_template = FORGETS
    thought = {"role": "assistant", "content": "<think>6</think>7"}
    row = Conversation(messages=(USER, thought, OTHER, LAST))
    with pytest.raises(ValueError, match=r"before message 4 differently .*data\.turns: last"):
        encode_example(row, tokenizer, (2,))
    only = encode_example(row, tokenizer, (2,), last_turn=True)
    assert read(tokenizer, only, True) == "<answer>2</answer><eos>"


def test_a_template_that_drops_all_thinking_allows_the_last_turn_only(tokenizer):
    tokenizer.chat_template = CHATML.replace("m['content']", "m['content'].split('</think>')[-1]")
    thought = {"role": "assistant", "content": "<think>6</think>7"}
    row = Conversation(messages=(USER, thought, OTHER, LAST))
    message = r"leaves out a part of message 2 .*data\.turns: last"
    with pytest.raises(ValueError, match=message):
        encode_example(row, tokenizer, (2,))
    row = Conversation(messages=(USER, LAST, OTHER, thought))
    with pytest.raises(ValueError, match="leaves out a part of message 4"):
        encode_example(row, tokenizer, (2,))
    only = encode_example(row, tokenizer, (2,), last_turn=True)
    assert read(tokenizer, only, True) == "<think>6</think>7<eos>"


def test_a_turn_that_no_end_follows_is_refused(tokenizer):
    tokenizer.chat_template = CHATML.replace("eos_token + ", "")
    with pytest.raises(ValueError, match="writes no end-of-sequence after message 2"):
        encode_example(Conversation(messages=(USER, SAID, OTHER, LAST)), tokenizer, (2,))


def test_a_whole_text_is_learned_but_for_its_first_token(tokenizer):
    one = encode_example(PlainText(prompt="", completion="First 3+4. "), tokenizer, (2,))
    assert read(tokenizer, one, True) == "First 3+4. <eos>" and one.ids[0] == 1
    again = encode_example(
        PlainText(prompt="", completion="<bos>First 3+4. <eos>"), tokenizer, (2,)
    )
    assert again == one  # what is written already is not written twice
    documents = encode_example(PlainText(prompt="", completion="a<eos>b"), tokenizer, (2,))
    assert documents.ids.count(2) == 2  # documents laid out before


@pytest.mark.parametrize("text", ["a<bos>b", "<bos><bos>a"])
def test_a_second_beginning_is_refused(tokenizer, text):
    with pytest.raises(ValueError, match="2 BOS ids"):
        encode_example(PlainText(prompt="", completion=text), tokenizer, (2,))


def test_an_end_inside_an_answer_is_refused(tokenizer):
    with pytest.raises(ValueError, match="end-of-sequence id"):
        encode_example(PlainText(prompt="p", completion="a<eos>b"), tokenizer, (2,))


def test_without_a_chat_template_messages_are_refused(tokenizer):
    tokenizer.chat_template = None
    for messages in ((USER, SAID), (USER, SAID, OTHER, LAST)):
        with pytest.raises(ValueError, match="no chat template"):
            encode_example(Conversation(messages=messages), tokenizer, (2,))
