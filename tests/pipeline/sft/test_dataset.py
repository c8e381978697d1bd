"""Rows as examples: too long ones are counted or refused, and no held-out question is learned."""

import copy
from dataclasses import replace

import pytest

from veriloop.data.sft_ids import encode_example
from veriloop.data.sft_rows import Conversation, PlainText, parse_rows
from veriloop.pipeline.config.sft import SFTExamplesConfig
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model.policy import load_tokenizer
from veriloop.pipeline.sft.dataset import build_dataset, split_held_out

RAW = [(f"What is {n}+1?", f"{n + 1} " * times) for n in range(6) for times in (1, 2, 9)]
ROWS = parse_rows([{"prompt": prompt, "completion": said} for prompt, said in RAW], "row")


@pytest.fixture
def tokenizer(tiny_checkpoint):
    return load_tokenizer(tiny_checkpoint())


def made(tokenizer, **changes):
    return build_dataset(ROWS, SFTExamplesConfig(**changes), tokenizer, (2,), 0)


def test_too_long_rows_are_left_out_and_counted_never_cut(tokenizer):
    every = made(tokenizer)
    assert len(every.train) == 18 and every.too_long == 0
    longest = sorted(len(one.ids) for one in every.train)[-7]
    fewer = made(tokenizer, max_tokens=longest)
    assert fewer.too_long == 6 and len(fewer.train) == 12
    assert set(fewer.train) < set(every.train)
    assert fewer.facts == {
        "rows": 12,
        "held_out": 0,
        "too_long": 6,
        "learned_tokens": sum(one.targets for one in fewer.train),
    }


def test_held_out_rows_that_are_too_long_are_counted_too(tokenizer):
    every = made(tokenizer, held_out=4)
    longest = sorted(len(one.ids) for one in (*every.train, *every.held_out))[-7]
    fewer = made(tokenizer, held_out=4, max_tokens=longest)
    assert (len(fewer.train), len(fewer.held_out), fewer.too_long) == (8, 4, 6)


def test_the_key_tells_ids_masks_and_their_order_apart(tokenizer):
    every = made(tokenizer)
    one = every.train[0]
    assert made(tokenizer).key == every.key
    for train in (
        every.train[:-1],
        every.train[::-1],
        (replace(one, ids=(*one.ids[:-1], one.ids[-1] + 1)), *every.train[1:]),
        (replace(one, learned=(False,) * len(one.ids)), *every.train[1:]),
    ):
        assert replace(every, train=train).key != every.key
    assert replace(every, train=every.train[:-1], held_out=every.train[-1:]).key == every.key


def test_every_turn_is_learned_unless_the_recipe_asks_for_the_last(tokenizer):
    roles = ("user", "assistant")
    said = [{"role": roles[i % 2], "content": text} for i, text in enumerate(("Q", "A", "R", "B"))]
    row = Conversation(messages=said)
    for turns, last in (("all", False), ("last", True)):
        found = build_dataset([row], SFTExamplesConfig(turns=turns), tokenizer, (2,), 0)
        assert found.train == (encode_example(row, tokenizer, (2,), last_turn=last),)


def test_too_long_rows_can_be_refused_by_their_number(tokenizer):
    with pytest.raises(RecipeError, match=r"row 3 has \d+ tokens; max_tokens=16"):
        made(tokenizer, max_tokens=16, too_long="refuse")
    with pytest.raises(RecipeError, match="every row exceeds max_tokens=2"):
        made(tokenizer, max_tokens=2)


def test_held_out_rows_are_whole_questions_drawn_by_the_seed(tokenizer):
    train, held_out = split_held_out(ROWS, 4, 0)
    assert len(held_out) == 6 and len(train) == 12  # two questions, three answers each
    assert not {row.prompt for _, row in train} & {row.prompt for _, row in held_out}
    assert split_held_out(ROWS, 4, 0) == (train, held_out)
    assert len({tuple(n for n, _ in split_held_out(ROWS, 4, seed)[1]) for seed in range(8)}) > 1
    numbers = [n for n, _ in train]
    assert numbers == sorted(numbers) and ROWS[numbers[0] - 1] == train[0][1]
    assert split_held_out(ROWS, 0, 0)[1] == []
    found = made(tokenizer, held_out=4)
    assert (len(found.train), len(found.held_out)) == (12, 6)


def test_holding_out_every_row_is_refused():
    with pytest.raises(RecipeError, match="held_out=18 leaves none of the 18 rows"):
        split_held_out(ROWS, 18, 0)


def test_a_row_that_cannot_be_encoded_is_named(tokenizer):
    rows = [*ROWS, PlainText(prompt="p", completion="a<eos>b")]
    with pytest.raises(RecipeError, match=r"data: row 19: .*end-of-sequence"):
        build_dataset(rows, SFTExamplesConfig(), tokenizer, (2,), 0)


def test_a_row_that_the_chat_template_refuses_is_named(tokenizer):
    strict = copy.deepcopy(tokenizer)
    strict.chat_template = "{{ raise_exception('roles must alternate') }}"
    talk = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]
    rows = [*ROWS, Conversation(messages=talk)]
    with pytest.raises(RecipeError, match=r"data: row 19: the chat template refuses .*alternate"):
        build_dataset(rows, SFTExamplesConfig(), strict, (2,), 0)


def test_a_conversation_and_its_continuation_are_held_out_together():
    def talk(*said):
        roles = ("user", "assistant")
        return {"messages": [{"role": roles[i % 2], "content": t} for i, t in enumerate(said)]}

    talks = [talk(f"Q{n}", f"A{n}", *more) for n in range(4) for more in ((), ("Sure?", "Yes."))]
    train, held_out = split_held_out(parse_rows(talks, "row"), 2, 0)
    assert len(held_out) == 2 and len(train) == 6
    first = [{row.messages[0]["content"] for _, row in split} for split in (train, held_out)]
    assert not first[0] & first[1]
