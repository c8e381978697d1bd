"""Log-probs of answers and segments: packed, they are those of one token after the other."""

from itertools import pairwise

import pytest
import torch
from torch.testing import assert_close

from veriloop.data.preference_ids import EncodedAnswer
from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.preference import logps
from veriloop.pipeline.preference.examples import Example
from veriloop.pipeline.preference.logps import (
    example_groups,
    pieces,
    segment_counts,
    segment_logps,
)


@pytest.mark.parametrize("row", [8, 64])
def test_segments_have_the_log_probs_of_their_tokens(tiny_llama, plain_scores, pairs, row):
    model = tiny_llama()
    answers = [a for e in pairs(4, segments=2) for a in e.answers]
    with torch.no_grad():
        found = segment_logps(model, answers, TrainerConfig(row=row, logits_chunk=5))
        expected = []
        for a in answers:
            logps, _ = plain_scores(model, a.prompt, a.completion)
            here = torch.tensor(a.segments)
            expected += [logps[here == k].sum() for k in range(2)]
    assert segment_counts(answers) == [2] * 8
    assert_close(found, torch.stack(expected), atol=1e-5, rtol=1e-5)


def test_an_answer_without_tokens_has_no_segment():
    empty = EncodedAnswer(prompt=(1,), completion=(), segments=())
    three = EncodedAnswer(prompt=(1,), completion=(5, 6, 7), segments=(0, 1, 2))
    assert segment_counts([empty, three, empty]) == [0, 3, 0]


def long_answer(first, tokens=5):
    return EncodedAnswer(prompt=(1, 2, 3, 4), completion=(first,) * tokens, segments=(0,) * tokens)


@pytest.fixture
def laid_out(monkeypatch):
    """Function: (rows, positions) of the tokens that a model reads with these settings."""
    shapes = []

    def score(model, ids_RT, positions_RT, targets_RT, mask_RT, **settings):
        shapes.append(tuple(ids_RT.shape))
        return torch.zeros(int(mask_RT.sum())), None

    monkeypatch.setattr(logps, "score", score)

    def build(answers, **trainer):
        segment_logps(torch.nn.Linear(1, 1), answers, TrainerConfig(**trainer))
        return shapes.pop()

    return build


def test_a_row_is_filled_to_its_last_position_and_grows_for_a_longer_answer(laid_out):
    """Two answers of nine tokens, of which the last is only predicted."""
    both = [long_answer(5), long_answer(6)]
    for row, shape in ((16, (1, 16)), (15, (2, 8)), (2, (2, 8))):
        assert laid_out(both, row=row, share_prompts=False) == shape


@pytest.mark.parametrize(("asked", "supported"), [(True, True), (True, False), (False, True)])
def test_a_prompt_is_read_once_where_the_recipe_asks_and_the_model_can(
    laid_out, monkeypatch, asked, supported
):
    monkeypatch.setattr(logps, "supports_shared_prompts", lambda model: supported)
    shape = laid_out([long_answer(5), long_answer(6)], row=99, share_prompts=asked)
    assert shape == ((1, 13) if asked and supported else (1, 16))


def test_micro_batches_of_ranks_are_shorter_where_that_gives_each_one():
    """Five examples of 16 positions each."""
    examples = [Example(answers=(long_answer(5), long_answer(6))) for _ in range(5)]
    for row, ranks, groups in (
        (40, 1, [[0, 1, 2, 3, 4]]),
        (16, 1, [[0, 1], [2, 3], [4]]),
        (40, 2, [[0, 1], [2, 3], [4]]),
        (24, 2, [[0, 1], [2, 3], [4]]),
        (40, 5, [[0], [1], [2], [3], [4]]),
        (8, 2, [[0], [1], [2], [3], [4]]),
    ):
        trainer = TrainerConfig(row=row, rows=2)
        assert example_groups(examples, trainer, ranks) == groups
        if ranks == 1:
            assert example_groups(examples, trainer) == groups
    unequal = [Example(answers=(long_answer(5), long_answer(6, n))) for n in (5, 6, 6, 5)]
    assert example_groups(unequal, TrainerConfig(row=99, rows=2), 2) == [[0, 1], [2, 3]]
    assert example_groups([], TrainerConfig()) == []


def test_a_piece_is_filled_to_the_last_position():
    examples = [Example(answers=(long_answer(5), long_answer(6))) for _ in range(4)]
    assert list(pieces(examples, 32)) == [[0, 1], [2, 3]]
    assert list(pieces(examples, 31)) == [[0], [1], [2], [3]]


def test_pieces_keep_the_order_and_the_limit(pairs):
    examples = pairs(12)
    groups = list(pieces(examples, 40))
    assert [i for group in groups for i in group] == list(range(12)) and len(groups) > 2

    def needed(group):
        answers = [a for i in group for a in examples[i].answers]
        return sum(len(a.prompt) + len(a.completion) - 1 for a in answers)

    assert all(needed(group) <= 40 for group in groups)
    following = [needed([*a, b[0]]) for a, b in pairwise(groups)]
    assert all(size > 40 for size in following)  # none could have been longer
    assert list(pieces(examples[:2], 1)) == [[0], [1]]  # one example always fits
    assert list(pieces([], 40)) == []
