"""Doubled BOS ids, and BOS ids that a chat template writes in every turn."""

import copy

import pytest

from tests.chatml import END, TURN, with_chatml
from veriloop.data.bos import bos_fault, check_bos
from veriloop.data.preference_ids import encode
from veriloop.data.sft_ids import encode_example
from veriloop.data.sft_rows import Conversation, PlainText
from veriloop.data.template import CHAT

LLAMA_2 = (
    "{% for m in messages %}{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' + m['content'] }}"
    "{% else %}{{ ' ' + m['content'] + eos_token }}{% endif %}{% endfor %}"
)
QUESTION = {"role": "user", "content": "What is 3+4?"}
ANSWER = {"role": "assistant", "content": "7"}
SYSTEM = {"role": "system", "content": "Add."}


@pytest.fixture
def own(tokenizer, monkeypatch):
    """The shared tokenizer; a test may replace its chat template."""
    monkeypatch.setattr(tokenizer, "chat_template", CHAT)
    return tokenizer


@pytest.fixture
def chatml(tokenizer):
    """BOS is the marker that begins a turn, EOS the one that ends it; the tokenizer adds none."""
    return with_chatml(tokenizer)


@pytest.fixture
def llama_2(own):
    changed = copy.deepcopy(own)
    changed.chat_template = LLAMA_2
    return changed


def ids_of(tokenizer, messages):
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return tokenizer(text, add_special_tokens=False).input_ids


@pytest.mark.parametrize("family", ["own", "chatml", "llama_2"])
@pytest.mark.parametrize(
    "messages", [[QUESTION, ANSWER], [QUESTION, ANSWER, QUESTION, ANSWER]], ids=len
)
def test_a_conversation_in_the_template_of_a_model_is_encoded(family, messages, request):
    tokenizer = request.getfixturevalue(family)
    end = (tokenizer.eos_token_id,)
    row = Conversation(messages=tuple(messages), prompt_length=len(messages) - 1)
    example = encode_example(row, tokenizer, end)
    written = {"own": 1, "chatml": len(messages) + 1, "llama_2": len(messages) // 2}[family]
    assert list(example.ids).count(tokenizer.bos_token_id) == written
    encoded = encode(messages[:-1], messages[-1:], tokenizer, end)
    assert [*encoded.prompt, *encoded.completion].count(tokenizer.bos_token_id) == written


def test_a_system_message_of_the_row_replaces_that_of_the_template(chatml):
    encoded = encode([SYSTEM, QUESTION], [ANSWER], chatml, (chatml.eos_token_id,))
    assert [*encoded.prompt, *encoded.completion].count(chatml.bos_token_id) == 3


@pytest.mark.parametrize("family", ["own", "chatml", "llama_2"])
def test_a_doubled_beginning_is_refused_in_every_family(family, request):
    tokenizer = request.getfixturevalue(family)
    tokenizer.chat_template = "{{ bos_token }}" + tokenizer.chat_template
    assert bos_fault(ids_of(tokenizer, [QUESTION]), tokenizer, [QUESTION]) == "doubled"
    with pytest.raises(ValueError, match="begins with 2 BOS ids"):
        encode([QUESTION], [ANSWER], tokenizer, (tokenizer.eos_token_id,))


def test_a_beginning_that_the_tokenizer_adds_before_the_template_is_doubled(chatml):
    ids = [chatml.bos_token_id, *ids_of(chatml, [QUESTION])]
    assert bos_fault(ids, chatml, [QUESTION]) == "doubled"


@pytest.mark.parametrize("family", ["own", "chatml"])
@pytest.mark.parametrize("place", ["prompt", "answer"])
def test_a_marker_in_a_message_is_refused(family, place, request):
    tokenizer = request.getfixturevalue(family)
    hidden = f"3{tokenizer.bos_token}4"
    prompt = {**QUESTION, "content": hidden} if place == "prompt" else QUESTION
    answer = {**ANSWER, "content": hidden} if place == "answer" else ANSWER
    with pytest.raises(ValueError, match=r"holds \d BOS ids"):
        encode([prompt], [answer], tokenizer, (tokenizer.eos_token_id,))


def test_a_second_beginning_that_does_not_depend_on_the_turns_is_doubled(own):
    own.chat_template = CHAT + "{{ bos_token }}"
    assert bos_fault(ids_of(own, [QUESTION]), own, [QUESTION]) == "doubled"


def test_texts_without_messages_hold_one_beginning(own, chatml):
    assert bos_fault(own("a").input_ids, own) == ""
    assert bos_fault(own("a", add_special_tokens=False).input_ids, own) == "missing"
    assert bos_fault(chatml("a").input_ids, chatml) == ""
    assert bos_fault(chatml(f"a{TURN}").input_ids, chatml) == "misplaced"
    with pytest.raises(ValueError, match="begins with 2 BOS ids"):
        check_bos(own("<bos>a").input_ids, own)


@pytest.mark.parametrize("family", ["chatml", "llama_2"])
def test_a_text_may_be_a_conversation_that_the_template_has_written(family, request):
    tokenizer = request.getfixturevalue(family)
    messages = [QUESTION, ANSWER, QUESTION]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    encoded = encode(prompt, "7", tokenizer, (tokenizer.eos_token_id,))
    assert list(encoded.prompt) == ids_of(tokenizer, messages)
    with pytest.raises(ValueError, match="begins with 2 BOS ids"):
        encode(tokenizer.bos_token + prompt, "7", tokenizer, (tokenizer.eos_token_id,))
    with pytest.raises(ValueError, match="the answer has a BOS id"):
        encode(prompt, f"7{tokenizer.bos_token}", tokenizer, (tokenizer.eos_token_id,))


def test_a_text_that_does_not_begin_with_a_marker_is_no_conversation(chatml):
    with pytest.raises(ValueError, match=r"holds 2 BOS ids"):
        encode(f"So: {TURN}a{END}{TURN}", "7", chatml, (chatml.eos_token_id,))


def test_an_end_that_is_also_the_beginning_is_no_second_one(own):
    own = copy.deepcopy(own)
    own.backend_tokenizer.post_processor = None
    own.bos_token = own.eos_token
    example = encode_example(PlainText(prompt="a", completion="b"), own, (own.eos_token_id,))
    assert example.ids[-1] == own.bos_token_id
