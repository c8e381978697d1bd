"""Losses per token to one number: the same gradient however the step is cut into pieces."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from pipeline.losses.aggregate import aggregate
from pipeline.records import StepCounts

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
