"""Sequences in rows: the shift by hand, every token in its place, no room wasted."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from veriloop.pipeline.model.packing import best_fit, families, lay_out, response_mask

LENGTHS = st.lists(st.integers(1, 20), min_size=1, max_size=25)


def filled(lengths):
    """Sequences of lengths + 1 distinct tokens: sequence b has 100 b, 100 b + 1, ..."""
    return [[100 * b + t for t in range(n + 1)] for b, n in enumerate(lengths)]


def test_the_shift_and_the_layout_by_hand():
    packed = lay_out([[5, 6, 7], [8, 9], [3, 4, 2, 1, 0]], [[0, 1], [2]])
    assert packed.ids_RT.tolist() == [[5, 6, 8, 0], [3, 4, 2, 1]]
    assert packed.targets_RT.tolist() == [[6, 7, 9, 0], [4, 2, 1, 0]]
    assert packed.positions_RT.tolist() == [[0, 1, 0, 0], [0, 1, 2, 3]]
    assert packed.sequence_RT.tolist() == [[0, 0, 1, -1], [2, 2, 2, 2]]
    tensors = (packed.ids_RT, packed.targets_RT, packed.positions_RT, packed.sequence_RT)
    assert {x.dtype for x in tensors} == {torch.int64}


def test_padding_is_known_by_its_sequence_and_not_by_a_token():
    packed = lay_out([[0, 0, 0], [0, 0]], [[0], [1]])
    assert (packed.sequence_RT >= 0).tolist() == [[True, True], [True, False]]


def test_a_prompt_appears_once_before_its_answers_by_hand():
    prompt = [1, 2, 3]
    sequences = [[*prompt, 4, 5], [*prompt, 6], [9, 8], [*prompt, 7, 7, 7]]
    packed = lay_out(sequences, [[0, 1, 3, 2]], [0, 2, 0, 2])
    assert packed.ids_RT.tolist() == [[1, 2, 3, 4, 3, 3, 7, 7, 9]]
    assert packed.targets_RT.tolist() == [[2, 3, 4, 5, 6, 7, 7, 7, 8]]
    assert packed.positions_RT.tolist() == [[0, 1, 2, 3, 2, 2, 3, 4, 0]]
    assert packed.sequence_RT.tolist() == [[0, 0, 0, 0, 1, 3, 3, 3, 2]]
    mask_RT = response_mask(packed, [3, 3, 1, 3])
    assert packed.targets_RT[mask_RT].tolist() == [4, 5, 6, 7, 7, 7, 8]


def test_families_by_hand():
    """7 whole, and 3 that borrow 4, fit into 12; 4 more do not; a prompt of one lends nothing."""
    prompts = [[1, 2, 3, 4, 5], [9], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [9], [1, 2, 3, 4, 5]]
    groups, borrowed = families(prompts, [7, 2, 7, 8, 2, 6], 12)
    assert groups == [[0, 2], [1, 4], [3, 5]]
    assert borrowed == [0, 0, 4, 0, 0, 4]
    assert families([[1, 2], [1, 2]], [50, 3], 20) == ([[0], [1]], [0, 0])


def test_a_family_is_filled_to_its_last_position_and_no_further():
    """7 whole and two times 3 that borrow 4 are 13."""
    groups, borrowed = families([[1, 2, 3, 4, 5]] * 4, [7, 7, 7, 5], 13)
    assert groups == [[0, 1, 2], [3]] and borrowed == [0, 4, 4, 0]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=30),
    st.integers(1, 40),
)
def test_families_keep_everybody_once_and_within_their_room(asked, capacity):
    prompts = [[which] * (2 + 3 * which) for which, _ in asked]
    lengths = [len(p) + n - 1 for p, (_, n) in zip(prompts, asked, strict=True)]
    groups, borrowed = families(prompts, lengths, capacity)
    assert sorted(b for group in groups for b in group) == list(range(len(asked)))
    for first, *others in groups:
        taken = sum(lengths[b] - borrowed[b] for b in (first, *others))
        assert borrowed[first] == 0 and (not others or taken <= capacity)
        assert all(prompts[b] == prompts[first] for b in others)
        assert {borrowed[b] for b in others} <= {len(prompts[first]) - 1}


def test_best_fit_by_hand():
    """5 | 4 leaves 2 | 3 leaves 3; then 2 goes where it fits exactly, and so does 1."""
    assert best_fit([5, 3, 4, 2, 1], 6) == [[0, 4], [2, 3], [1]]


def test_an_exact_fit_is_taken_in_the_first_row_too():
    assert best_fit([4, 2], 6) == [[0, 1]]
    assert best_fit([6, 6], 6) == [[0], [1]]


def test_equal_lengths_keep_their_order():
    assert best_fit([2, 2, 2, 2, 2], 4) == [[0, 1], [2, 3], [4]]


def test_among_equal_rooms_the_earliest_row_is_filled():
    assert best_fit([4, 4, 4, 1, 1], 6) == [[0, 3, 4], [1], [2]]


@pytest.mark.parametrize("length", [0, 7, -1])
def test_a_sequence_that_no_row_can_hold_is_named(length):
    with pytest.raises(ValueError, match=rf"sequence 1 has {length} positions; a row holds 1\.\.6"):
        best_fit([3, length], 6)


@pytest.mark.slow
@given(LENGTHS, st.integers(20, 50))
def test_every_sequence_is_in_one_row_and_no_row_is_too_full(lengths, capacity):
    rows = best_fit(lengths, capacity)
    assert sorted(b for row in rows for b in row) == list(range(len(lengths)))
    assert all(0 < sum(lengths[b] for b in row) <= capacity for row in rows)


@given(LENGTHS, st.integers(20, 50))
def test_a_second_row_is_opened_only_for_what_fits_in_no_other(lengths, capacity):
    """So any two rows together are fuller than one row could be."""
    totals = [sum(lengths[b] for b in row) for row in best_fit(lengths, capacity)]
    assert all(a + b > capacity for i, a in enumerate(totals) for b in totals[i + 1 :])


@given(LENGTHS, st.integers(20, 50))
def test_every_token_predicts_the_next_of_its_own_sequence(lengths, capacity):
    sequences, rows = filled(lengths), best_fit(lengths, capacity)
    packed = lay_out(sequences, rows)
    seen = {}
    for ids, positions, targets, owners in zip(
        packed.ids_RT, packed.positions_RT, packed.targets_RT, packed.sequence_RT, strict=True
    ):
        for i, p, t, b in zip(
            *(x.tolist() for x in (ids, positions, targets, owners)), strict=True
        ):
            if b >= 0:
                assert (i, t) == (sequences[b][p], sequences[b][p + 1])
                seen.setdefault(b, []).append(p)
            else:
                assert (i, p, t) == (0, 0, 0)
    assert seen == {b: list(range(n)) for b, n in enumerate(lengths)}


@pytest.mark.slow
@given(LENGTHS, st.integers(20, 50))
def test_rows_are_as_wide_as_the_fullest_and_no_wider(lengths, capacity):
    rows = best_fit(lengths, capacity)
    packed = lay_out(filled(lengths), rows)
    assert packed.ids_RT.shape == (len(rows), max(sum(lengths[b] for b in row) for row in rows))


def test_a_position_starts_again_at_zero_wherever_another_sequence_begins():
    packed = lay_out(filled([3, 1, 1, 2]), [[0, 1, 2, 3]])
    assert packed.positions_RT.tolist() == [[0, 1, 2, 0, 0, 0, 1]]


def test_the_response_mask_starts_where_the_last_prompt_token_predicts():
    packed = lay_out([[5, 6, 7, 8, 9], [3, 4], [1, 2, 3]], [[0, 1], [2]])
    mask = response_mask(packed, [3, 1, 1])
    assert mask.tolist() == [[False, False, True, True, True], [True, True, False, False, False]]
    assert packed.targets_RT[mask].tolist() == [8, 9, 4, 2, 3]
