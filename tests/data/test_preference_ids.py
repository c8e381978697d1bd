"""Prompt and answer as ids: apart, one BOS, one EOS, and every token in its segment."""

import pytest

from veriloop.data.preference_ids import encode
from veriloop.data.preferences import Segment
from veriloop.data.template import R1_ZERO

ASKED = ({"role": "user", "content": "What is 1+1?"},)


def said(text):
    return ({"role": "assistant", "content": text},)


def test_text_begins_with_one_bos_and_ends_with_one_eos(tokenizer):
    ids = encode("First 1+1", "=2.", tokenizer, (2,))
    assert ids.prompt[0] == tokenizer.bos_token_id and ids.completion[-1] == tokenizer.eos_token_id
    assert tokenizer.decode(ids.prompt[1:]) == "First 1+1"
    assert tokenizer.decode(ids.completion[:-1]) == "=2."
    assert [*ids.prompt, *ids.completion].count(tokenizer.bos_token_id) == 1
    assert [*ids.prompt, *ids.completion].count(tokenizer.eos_token_id) == 1


def test_what_is_written_already_is_not_written_twice(tokenizer):
    plain = encode("First", "So 2", tokenizer, (2,))
    assert encode("<bos>First", "So 2<eos>", tokenizer, (2,)) == plain


def test_the_prompt_is_spelled_apart_from_the_answer(tokenizer):
    """Joined, the two would share a token."""
    joined = tokenizer("First Then", add_special_tokens=False).input_ids
    ids = encode("First T", "hen", tokenizer, (2,))
    assert ids.prompt[1:] == tuple(tokenizer("First T", add_special_tokens=False).input_ids)
    assert [*ids.prompt[1:], *ids.completion[:-1]] != joined


def test_messages_follow_the_chat_template(tokenizer):
    ids = encode(ASKED, said("2"), tokenizer, (2,))
    assert tokenizer.decode(ids.prompt) == "<bos>" + R1_ZERO.format(prompt="What is 1+1?")
    assert tokenizer.decode(ids.completion) == "2<eos>"


def test_another_end_of_sequence_id_counts_as_well(tokenizer):
    dot = tokenizer(".", add_special_tokens=False).input_ids[0]
    assert encode("a", "2.", tokenizer, (2, dot)).completion[-1] == dot


def test_layout_after_the_end_is_cut_off(tokenizer):
    tokenizer.chat_template, kept = tokenizer.chat_template + "{{ ' ' }}", tokenizer.chat_template
    try:
        ids = encode(ASKED, said("2"), tokenizer, (2,))  # it writes as much after the prompt
        assert tokenizer.decode(ids.prompt).endswith(": ")
        assert tokenizer.decode(ids.completion) == "2<eos>"
        tokenizer.chat_template = kept.replace("eos_token }}", "eos_token + ' \\n' }}")
        assert tokenizer.decode(encode(ASKED, said("2"), tokenizer, (2,)).completion) == "2<eos>"
        tokenizer.chat_template = None
        with pytest.raises(ValueError, match="no chat template"):
            encode(ASKED, said("2"), tokenizer, (2,))
    finally:
        tokenizer.chat_template = kept


ASKS = "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}Q:{{ m['content'] }}"
ASKS += "{% else %}A:"
LAST = "{{ eos_token + '\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}A:"
SUMMARY = ASKS + "{{ m['content'].split('</think>')[-1].strip() }}" + LAST
KEEPS = ASKS + "{{ m['content'] }}" + LAST
OPENS = (  # as Qwen3 writes an answer: with other whitespace
    ASKS + "{% set parts = m['content'].split('</think>') %}<think>\n"
    "{{ parts[0].split('<think>')[-1].strip() if parts[1:] else '' }}\n</think>\n\n"
    "{{ parts[-1].strip() }}" + LAST
)
THOUGHT = "<think> First 3+4. </think><answer>7</answer>"


@pytest.mark.parametrize(
    ("template", "opening", "learned"),
    [
        (KEEPS, "", THOUGHT),
        (SUMMARY, "", THOUGHT),
        (KEEPS, "<think>", THOUGHT[7:]),
        (SUMMARY, "<think>\n", THOUGHT[7:]),  # as R1's distilled models are asked
        (SUMMARY, "<think> ", THOUGHT[8:]),
        (OPENS, "<think>\n", "First 3+4.\n</think>\n\n<answer>7</answer>"),
        (OPENS, "", "<think>\nFirst 3+4.\n</think>\n\n<answer>7</answer>"),
    ],
)
def test_all_of_an_answer_is_learned_after_the_prompt_that_asks_for_it(
    tokenizer, monkeypatch, template, opening, learned
):
    monkeypatch.setattr(tokenizer, "chat_template", f"{template}{opening}{{% endif %}}")
    ids = encode(ASKED, said(THOUGHT), tokenizer, (2,))
    assert tokenizer.decode(ids.prompt) == f"<bos>Q:What is 1+1?A:{opening}"
    assert tokenizer.decode(ids.completion) == learned + "<eos>"


@pytest.mark.parametrize("template", [KEEPS, SUMMARY, OPENS])
@pytest.mark.parametrize("opening", ["", "<think>", "<think>\n"])
def test_segments_are_of_the_answer_as_it_is_without_what_the_prompt_has_of_it(
    tokenizer, monkeypatch, template, opening
):
    monkeypatch.setattr(tokenizer, "chat_template", f"{template}{opening}{{% endif %}}")
    pieces = ("<think>First 3+4. ", "再算7。", "</think>", "7")
    segments = tuple(Segment(text=text, scores=(1.0,)) for text in pieces)
    ids = encode(ASKED, said("".join(pieces)), tokenizer, (2,), segments)
    texts = [
        tokenizer.decode([i for i, s in zip(ids.completion, ids.segments, strict=True) if s == k])
        for k in range(4)
    ]
    first = pieces[0].removeprefix("<think>") if opening else pieces[0]
    assert texts == [first, *pieces[1:3], "7<eos>"]


def test_an_answer_without_thinking_to_a_prompt_that_begins_it_is_refused(tokenizer, monkeypatch):
    monkeypatch.setattr(tokenizer, "chat_template", SUMMARY + "<think>\n{% endif %}")
    message = r"ends the prompt with <think>, and the answer does not begin with it: 'So 7'"
    with pytest.raises(ValueError, match=message):
        encode(ASKED, said("So 7"), tokenizer, (2,))
    monkeypatch.setattr(tokenizer, "chat_template", OPENS + "<think>\n{% endif %}")
    ids = encode(ASKED, said("So 7"), tokenizer, (2,))  # this template ends the thinking itself
    assert tokenizer.decode(ids.completion) == "\n</think>\n\nSo 7<eos>"


@pytest.mark.parametrize("answer", ["{{ m['content'] * 2 }}", "as ever"])
def test_an_answer_that_a_template_writes_twice_or_not_at_all_is_refused(
    tokenizer, monkeypatch, answer
):
    monkeypatch.setattr(tokenizer, "chat_template", f"{ASKS}{answer}{LAST} {{% endif %}}")
    with pytest.raises(ValueError, match="does not begin with the prompt"):
        encode(ASKED, said("7"), tokenizer, (2,))


@pytest.mark.parametrize(
    ("prompt", "answer", "message"),
    [
        ("a", "2<eos>3", r"end-of-sequence id \(2\) inside it"),
        ("a", "2<eos><eos>", r"end-of-sequence id \(2\) inside it"),
        ("a", "<bos>2", "has a BOS id"),
        ("<bos><bos>a", "2", "begins with 2 BOS ids"),
    ],
)
def test_ids_in_the_wrong_place_are_refused(tokenizer, prompt, answer, message):
    with pytest.raises(ValueError, match=message):
        encode(prompt, answer, tokenizer, (2,))


def test_every_token_belongs_to_the_segment_that_it_begins_in(tokenizer):
    pieces = ("<think>", "First 3+4. ", "再算7。", "</think>")
    segments = tuple(Segment(text=text, scores=(1.0,)) for text in pieces)
    for prompt, answer in (("a", "".join(pieces)), (ASKED, said("".join(pieces)))):
        ids = encode(prompt, answer, tokenizer, (2,), segments)
        assert len(ids.segments) == len(ids.completion)
        texts = [
            tokenizer.decode(
                [i for i, s in zip(ids.completion, ids.segments, strict=True) if s == k]
            )
            for k in range(4)
        ]
        assert texts == [*pieces[:3], "</think><eos>"]
    assert set(encode("a", "".join(pieces), tokenizer, (2,)).segments) == {0}
