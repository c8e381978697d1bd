"""Losses per token to one number: the same gradient however the step is cut into pieces."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from veriloop.pipeline.losses.aggregate import aggregate, discounted_to_go, last_tokens, sums
from veriloop.pipeline.types import StepCounts

MODES = ["sequence_mean", "token_mean", "constant"]


def laid_out(values, places, columns):
    """Values of each sequence, put at (row, column) places: what packing does."""
    rows = max((row for row, _ in places), default=0) + 1
    out = torch.full((rows, columns), torch.nan, dtype=torch.float64)
    sequence = torch.full((rows, columns), -1)
    for b, (tokens, (row, column)) in enumerate(zip(values, places, strict=True)):
        out[row, column : column + len(tokens)] = torch.as_tensor(tokens, dtype=torch.float64)
        sequence[row, column : column + len(tokens)] = b
    return out, sequence >= 0, sequence, torch.tensor([len(tokens) for tokens in values])


def counts_of(values, max_length=16):
    return StepCounts(
        sequences=sum(len(tokens) > 0 for tokens in values),
        tokens=sum(map(len, values)),
        max_length=max_length,
    )


def padded(values, columns):
    return laid_out(values, [(b, 0) for b in range(len(values))], columns)


@pytest.mark.parametrize(
    ("mode", "loss"), [("sequence_mean", 0.0), ("token_mean", 0.6), ("constant", 0.1875)]
)
def test_lengths_two_and_eight_with_opposite_advantages(mode, loss):
    objective = [[1.0] * 2, [-1.0] * 8]
    got = -aggregate(*padded(objective, 8), counts_of(objective, max_length=16), mode)
    assert got.item() == pytest.approx(loss)


def test_a_loss_of_zero_still_has_a_gradient():
    objective = [[1.0] * 2, [-1.0] * 8]
    values, mask, sequence, lengths = padded(objective, 8)
    values.requires_grad_()
    aggregate(values, mask, sequence, lengths, counts_of(objective), "sequence_mean").backward()
    expected = torch.zeros(2, 8, dtype=torch.float64)
    expected[0, :2], expected[1] = 1 / 4, 1 / 16
    assert_close(values.grad, expected)


@pytest.mark.parametrize("columns", [8, 11])
def test_the_constant_is_the_budget_and_not_the_padded_length(columns):
    values = [[1.0] * 2, [1.0] * 8]
    assert aggregate(*padded(values, columns), counts_of(values, 20), "constant") == 10 / 40


@pytest.mark.parametrize("mode", MODES)
def test_positions_outside_the_mask_are_never_read(mode):
    values = [[1.0, 2.0], [3.0, 4.0, 5.0]]
    clean, mask, sequence, lengths = padded(values, 4)
    dirty = clean.clone().requires_grad_()
    got = aggregate(dirty, mask, sequence, lengths, counts_of(values), mode)
    got.backward()
    assert clean.isnan().any() and got.isfinite()
    assert (dirty.grad[~mask] == 0).all() and (dirty.grad[mask] > 0).all()


def test_numerator_and_denominator_use_the_same_mask():
    """Prompt and tool tokens belong to a sequence but are not trained on: they weigh nothing."""
    values = torch.tensor([[9.0, 1.0, 3.0, 9.0, 5.0]])
    mask = torch.tensor([[False, True, True, False, True]])
    sequence, lengths = torch.tensor([[0, 0, 0, 1, 1]]), torch.tensor([2, 1])
    counts = StepCounts(sequences=2, tokens=3, max_length=4)
    got = [aggregate(values, mask, sequence, lengths, counts, mode).item() for mode in MODES]
    assert got == pytest.approx([(2 + 5) / 2, 9 / 3, 9 / 8])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tokens", [0, 7])
def test_a_fully_masked_micro_batch_is_an_exact_zero_with_a_graph(mode, tokens):
    values = torch.full((2, 3), torch.nan, requires_grad=True)
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    counts = StepCounts(sequences=tokens, tokens=tokens, max_length=5)
    got = aggregate(values, nothing, torch.full((2, 3), -1), torch.zeros(0).long(), counts, mode)
    got.backward()
    assert got.item() == 0.0 and (values.grad == 0).all()


@pytest.mark.parametrize("mode", MODES)
def test_a_fully_masked_sequence_adds_nothing_to_the_others(mode):
    values, others = [[1.0, 2.0], [], [3.0]], [[1.0, 2.0], [3.0]]
    with_empty = aggregate(*padded(values, 2), counts_of(values), mode)
    assert_close(with_empty, aggregate(*padded(others, 2), counts_of(others), mode))


@pytest.mark.parametrize("mode", MODES)
def test_a_step_of_one_token_is_that_token_over_its_count(mode):
    one = StepCounts(sequences=1, tokens=1, max_length=1)
    assert aggregate(*padded([[3.0]], 1), one, mode).item() == 3.0


steps = st.lists(st.integers(0, 6), min_size=1, max_size=8).flatmap(
    lambda lengths: st.tuples(
        st.just(lengths),
        st.lists(st.integers(0, 3), min_size=len(lengths), max_size=len(lengths)),
    )
)


@pytest.mark.parametrize("mode", MODES)
@given(step=steps)
def test_any_split_and_any_packing_give_the_gradient_of_the_whole_step(mode, step):
    lengths, micro_batch_of = step
    tokens = torch.arange(1.0, sum(lengths) + 1, dtype=torch.float64, requires_grad=True)
    sequences = list(tokens.split(lengths))
    counts = counts_of(sequences)
    (whole,) = torch.autograd.grad(pack(sequences, tokens.sum() * 0, counts, mode, rows=3), tokens)
    split = torch.zeros_like(tokens)
    for part in set(micro_batch_of):
        mine = [s for s, m in zip(sequences, micro_batch_of, strict=True) if m == part]
        loss = pack(mine, tokens.sum() * 0, counts, mode, rows=1)
        split += torch.autograd.grad(loss, tokens, retain_graph=True)[0]
    assert_close(split, whole)
    assert sum(lengths) == 0 or (whole > 0).all()


def pack(sequences, padding, counts, mode, *, rows):
    """Sequences dealt over `rows` rows, end to end, numbered last first."""
    sequences = sequences[::-1]
    values, mask, owner = ([[] for _ in range(rows)] for _ in range(3))
    for b, tokens in enumerate(sequences):
        values[b % rows] += [*tokens, padding]
        mask[b % rows] += [True] * len(tokens) + [False]
        owner[b % rows] += [b] * len(tokens) + [-1]
    columns = max(map(len, values))
    lengths = torch.tensor([len(tokens) for tokens in sequences])
    full = [torch.stack([*row, *[padding] * (columns - len(row))]) for row in values]
    mask = torch.tensor([row + [False] * (columns - len(row)) for row in mask])
    owner = torch.tensor([row + [-1] * (columns - len(row)) for row in owner])
    return aggregate(torch.stack(full), mask, owner, lengths, counts, mode)


def test_counts_of_the_micro_batch_instead_of_the_step_would_give_another_answer():
    short, long = [[1.0] * 2], [[-1.0] * 8]
    step = counts_of(short + long)
    whole = sum(aggregate(*padded(part, 8), step, "token_mean") for part in (short, long))
    own = [aggregate(*padded(part, 8), counts_of(part), "token_mean") for part in (short, long)]
    assert whole.item() == pytest.approx(-0.6) and sum(own).item() / 2 == pytest.approx(0.0)


def test_counts_smaller_than_the_micro_batch_are_refused():
    values = [[1.0, 2.0, 3.0]]
    with pytest.raises(ValueError, match="3 masked-in tokens, its whole step 2"):
        aggregate(*padded(values, 3), StepCounts(sequences=1, tokens=2, max_length=9), "constant")


def test_an_unknown_mode_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"'mean' is not one of .*'sequence_mean', 'token_mean'"):
        aggregate(*padded([[1.0]], 1), counts_of([[1.0]]), "mean")


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


@pytest.mark.slow
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


@pytest.mark.slow
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
        ([0, 1, 0], [2, 1], "returns to an earlier sequence"),
    ],
)
def test_sequences_that_are_not_whole_or_not_together_are_refused(owner, lengths, message):
    with pytest.raises(ValueError, match=message):
        last_tokens(torch.tensor(owner), torch.tensor(lengths))
