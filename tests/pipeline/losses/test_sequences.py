"""Sums along ragged sequences against a loop over their tokens, and what is no such layout."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from pipeline.losses.sequences import discounted_to_go, last_tokens, sums

# numbers of sequences in the order they lie in the flat tensor, and their lengths
layouts = st.lists(st.integers(0, 9), min_size=1, max_size=6).flatmap(
    lambda lengths: st.tuples(st.just(lengths), st.permutations(range(len(lengths))))
)


def flat(lengths, order):
    owner = [b for b in order for _ in range(lengths[b])]
    values = torch.randn(len(owner), generator=torch.Generator().manual_seed(0)).double()
    return values, torch.tensor(owner, dtype=torch.int64), torch.tensor(lengths)


def loop(values, owner, discount):
    """The backward recursion, one token at a time."""
    out, later = [], {}
    for value, b in zip(reversed(values.tolist()), reversed(owner.tolist()), strict=True):
        later[b] = value + discount * later.get(b, 0.0)
        out.append(later[b])
    return torch.tensor(out[::-1], dtype=torch.float64)


@settings(deadline=None)
@given(layouts, st.sampled_from([0.0, 0.3, 0.95, 1.0]))
def test_discounted_sums_are_those_of_the_backward_recursion(layout, discount):
    values, owner, _ = flat(*layout)
    got = discounted_to_go(values, owner, discount)
    assert_close(got, loop(values, owner, discount))


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 8, 9, 16, 17, 33])
def test_every_length_is_summed_to_its_end(length):
    values, owner = torch.ones(length + 1), torch.tensor([1] * length + [0])
    got = discounted_to_go(values, owner, 1.0)
    assert got.tolist() == [*range(length, 0, -1), 1]


def test_a_discounted_sum_by_hand():
    owner = torch.tensor([0, 0, 0, 2, 2])
    got = discounted_to_go(torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0]), owner, 0.5)
    assert got.tolist() == [1 + 0.5 * (2 + 0.5 * 4), 2 + 0.5 * 4, 4, 8 + 0.5 * 16, 16]
    assert got.dtype == torch.float64


def test_a_value_of_another_sequence_is_never_read():
    owner = torch.tensor([0, 0, 1])
    got = discounted_to_go(torch.tensor([1.0, 2.0, torch.nan]), owner, 0.9)
    assert got[:2].tolist() == pytest.approx([2.8, 2.0])


@settings(deadline=None)
@given(layouts)
def test_sums_and_last_tokens_are_those_of_each_sequence(layout):
    values, owner, lengths = flat(*layout)
    for b, total in enumerate(sums(values, owner, lengths).tolist()):
        assert total == pytest.approx(values[owner == b].sum().item())
    last = last_tokens(owner, lengths)
    assert last.dtype == torch.bool
    for b, length in enumerate(lengths.tolist()):
        assert last[owner == b].tolist() == [False] * (length - 1) + [True] * (length > 0)


def test_a_sum_hands_its_gradient_to_each_of_its_tokens():
    values = torch.zeros(3, requires_grad=True)
    out = sums(values, torch.tensor([1, 0, 0]), torch.tensor([2, 1]))
    (out * torch.tensor([5.0, 7.0])).sum().backward()
    assert values.grad.tolist() == [7.0, 5.0, 5.0]


def test_no_tokens_at_all():
    none = torch.zeros(0, dtype=torch.int64)
    for lengths in (none, torch.tensor([0, 0])):
        assert discounted_to_go(torch.zeros(0), none, 1.0).tolist() == []
        assert last_tokens(none, lengths).tolist() == []
        assert sums(torch.zeros(0), none, lengths).tolist() == [0.0] * len(lengths)


@pytest.mark.parametrize(
    ("owner", "lengths", "message"),
    [
        ([0, 0, 1], [2, 2], r"has \[2, 1\] tokens of each sequence, lengths_B says \[2, 2\]"),
        ([0, 0, 1], [2], r"has \[2, 1\] tokens of each sequence, lengths_B says \[2\]"),
        ([0, 1, 0], [2, 1], "goes back to a sequence it had left"),
    ],
)
def test_sequences_that_are_not_whole_or_not_together_are_refused(owner, lengths, message):
    with pytest.raises(ValueError, match=message):
        last_tokens(torch.tensor(owner), torch.tensor(lengths))
