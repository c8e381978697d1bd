"""Attention sequence by sequence: the numbers of each sequence alone, in memory that is linear."""

import pytest
import torch
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from veriloop.pipeline.model import packed_attention
from veriloop.pipeline.model.packed_attention import FILLED, edges, segments

HEADS, KEYS, SIZE = 4, 2, 8


def positions(*rows):
    """Rows of sequences of these lengths, padded with 0 to the longest row."""
    width = max(map(sum, rows))
    return torch.stack(
        [
            torch.cat([*(torch.arange(n) for n in row), torch.zeros(width - sum(row))]).long()
            for row in rows
        ]
    )


def drawn(rows, width, dtype=torch.float32):
    torch.manual_seed(1)
    return [
        torch.randn(rows, heads, width, SIZE, dtype=dtype, requires_grad=True)
        for heads in (HEADS, KEYS, KEYS)
    ]


def attended(query, key, value, places, **rest):
    out, weights = packed_attention.packed_attention(
        None, query, key, value, None, scaling=0.3, position_ids=places, **rest
    )
    assert weights is None
    return out


def alone(query, key, value, row, here):
    """One sequence's attention, written out."""
    key, value = (x[row, :, here].repeat_interleave(HEADS // KEYS, 0) for x in (key, value))
    scores = 0.3 * query[row, :, here] @ key.transpose(1, 2)
    later = torch.ones(scores.shape[-2:]).triu(1).bool()
    return (scores.masked_fill(later, -torch.inf).softmax(-1) @ value).transpose(0, 1)


ROWS = {
    "one row of one": [(6,)],
    "of equal length": [(4, 4), (4, 4)],
    "mixed, with padding": [(9, 1, 3, 2), (12,), (5, 5, 1)],
    "a row that ends in ones": [(3, 1, 1), (2,)],
}


@pytest.mark.parametrize("rows", ROWS.values(), ids=list(ROWS))
def test_each_sequence_is_attended_to_as_if_it_were_alone_and_so_is_its_gradient(rows):
    places = positions(*rows)
    inputs = drawn(*places.shape, dtype=torch.float64)
    out = attended(*inputs, places)
    total, wanted = 0.0, 0.0
    up = torch.randn(out.shape, dtype=torch.float64)
    for r, row in enumerate(rows):
        start = 0
        for length in row:
            here = slice(start, start := start + length)
            want = alone(*inputs, r, here)
            assert_close(out[r, here], want)
            total = total + (out[r, here] * up[r, here]).sum()
            wanted = wanted + (want * up[r, here]).sum()
    got = torch.autograd.grad(total, inputs, retain_graph=True)
    for one, other in zip(got, torch.autograd.grad(wanted, inputs), strict=True):
        assert_close(one, other)


CONTINUED = "an answer that goes on where the first one ended"
BRANCHES = {  # (borrowed, own) of each sequence of a row
    "one prompt, three answers": [[(0, 6), (4, 3), (4, 1)]],
    "two prompts, and one sequence whole": [[(0, 5), (3, 3), (0, 2), (0, 9), (7, 1), (7, 4)]],
    CONTINUED: [[(0, 3), (3, 4), (3, 2)]],
    "two rows": [[(0, 4), (2, 4)], [(0, 2), (1, 1), (1, 5)]],
}


def branched(rows):
    """Positions of such rows, and of each sequence (row, all of its places in order)."""
    width = max(sum(own for _, own in row) for row in rows)
    places, sequences = torch.zeros(len(rows), width, dtype=torch.int64), []
    for r, row in enumerate(rows):
        start = lender = 0
        for borrowed, own in row:
            here = list(range(start, start + own))
            lender = lender if borrowed else start
            places[r, here] = torch.arange(borrowed, borrowed + own)
            sequences.append((r, [*range(lender, lender + borrowed), *here], borrowed))
            start += own
    return places, sequences


@pytest.mark.parametrize("rows", BRANCHES.values(), ids=list(BRANCHES))
def test_a_sequence_reads_what_it_borrows_as_if_that_stood_before_it_and_so_does_its_gradient(rows):
    places, sequences = branched(rows)
    inputs = drawn(*places.shape, dtype=torch.float64)
    out = attended(*inputs, places)
    up = torch.randn(out.shape, dtype=torch.float64)
    total, wanted = 0.0, 0.0
    for r, here, borrowed in sequences:
        own = here[borrowed:]
        want = alone(*inputs, r, here)[borrowed:]
        assert_close(out[r, own], want)
        total = total + (out[r, own] * up[r, own]).sum()
        wanted = wanted + (want * up[r, own]).sum()
    got = torch.autograd.grad(total, inputs, retain_graph=True)
    for one, other in zip(got, torch.autograd.grad(wanted, inputs), strict=True):
        assert_close(one, other)


def test_no_sequence_borrows_more_than_there_is():
    with pytest.raises(ValueError, match="borrows 4 positions of one that has 2"):
        segments(torch.tensor([[0, 1, 4, 5]]))
    loans = segments(torch.tensor([[0, 1, 2, 1, 2, 1, 0]])).loans
    assert loans.lent.tolist() == [0] and loans.by.tolist() == [3, 4, 5]
    assert loans.sizes == ((1, 3),) and segments(torch.tensor([[0, 1, 0]])).loans is None


def test_segments_put_every_position_in_one_slot_and_like_lengths_together():
    where = segments(positions((9, 8), (16,), (4, 4, 4, 3)))
    assert where.buckets == ((1, 16), (2, 9), (4, 4), (3, 1))
    assert where.position_P[where.slot_N].tolist() == list(range(3 * 17))
    assert len(where.position_P) == 16 + 18 + 16 + 3
    assert len(where.empty_P) == 2  # an 8 beside a 9, a 3 beside the 4s
    assert segments(positions((4, 4))).empty_P is None


def test_a_row_begins_a_sequence_whatever_its_first_position():
    assert segments(torch.tensor([[3, 4, 5], [0, 1, 2]])).buckets == ((2, 3),)


def test_prepared_segments_give_what_positions_give():
    places = positions((3, 5), (8,))
    inputs = drawn(*places.shape)
    given = attended(*inputs, None, segments_of_rows=segments(places))
    assert torch.equal(given, attended(*inputs, places))


def test_on_a_cpu_bfloat16_is_attended_to_in_float32_and_comes_back_as_it_was():
    places = positions((3, 5))
    inputs = [x.detach().bfloat16() for x in drawn(*places.shape)]
    got = attended(*inputs, places)
    want = attended(*(x.float() for x in inputs), places)
    assert got.dtype == torch.bfloat16 and torch.equal(got, want.bfloat16())


class Largest(TorchDispatchMode):
    found = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, torch.Tensor):
                self.found = max(self.found, tensor.numel())
        return out


@pytest.mark.parametrize("rows", [[(400,)], [(200, 100, 60, 40)]], ids=["one", "several"])
def test_no_tensor_is_as_large_as_the_square_of_a_row(rows):
    places = positions(*rows)
    inputs = drawn(1, 400)
    with Largest() as seen:
        attended(*inputs, places).sum().backward()
    assert 400 * HEADS * SIZE <= seen.found <= 400 * HEADS * SIZE / FILLED


@pytest.mark.parametrize(
    "odd",
    [
        {"sliding_window": 4},
        {"dropout": 0.1},
        {"softcap": 30.0},
        {"s_aux": torch.ones(4)},
        {"position_bias": torch.ones(1)},
    ],
    ids=lambda odd: next(iter(odd)),
)
def test_what_it_does_not_do_is_refused_by_name(odd):
    places = positions((4,))
    with pytest.raises(ValueError, match=rf"causal .*{next(iter(odd))}"):
        attended(*drawn(1, 4), places, **odd)


def test_a_mask_a_cache_and_missing_positions_are_refused():
    query, key, value = drawn(1, 4)
    with pytest.raises(ValueError, match="attention_mask"):
        packed_attention.packed_attention(None, query, key, value, torch.ones(1, 1, 4, 4))
    with pytest.raises(ValueError, match="no cache"):
        attended(query[:, :, :1], key, value, torch.zeros(1, 1, dtype=torch.int64))
    with pytest.raises(ValueError, match="whole rows with positions"):
        attended(query, key, value, None)


def test_padding_of_a_row_is_one_sequence_of_the_flash_kernels():
    places = positions((3, 2, 6), (4,), (5, 1, 1))
    ids = torch.zeros_like(places)
    ids[0], ids[1, :4], ids[2, :7] = torch.arange(11) + 1, torch.arange(4) + 1, torch.arange(7) + 1
    found = edges(places, ids)
    assert found.at_B1.tolist() == [0, 3, 5, 11, 15, 22, 27, 28, 29, 33]
    assert found.longest == 7 and found.key_S is None and found.at_B1.dtype == torch.int32
    alone = edges(places)  # without ids every position of padding is a sequence
    assert len(alone.at_B1) == 3 + 1 + 7 + 3 + 4 + 1


@pytest.mark.parametrize(
    ("ids", "places", "starts"),
    [
        ([7, 7, 7], [0, 0, 0], [0]),
        ([7, 7, 8, 8], [0, 0, 0, 0], [0, 2]),
        ([7, 7, 7, 5], [0, 0, 0, 1], [0, 2]),  # the last 7 begins a longer sequence
        ([7, 7, 7, 5], [0, 1, 0, 0], [0, 2, 3]),
    ],
)
def test_equal_sequences_of_one_token_are_joined_and_no_others(ids, places, starts):
    found = edges(torch.tensor([places]), torch.tensor([ids]))
    assert found.at_B1.tolist() == [*starts, len(ids)]


@pytest.mark.parametrize("name", sorted(BRANCHES.keys() - {CONTINUED}))
def test_the_flash_kernels_get_the_borrowed_keys_before_a_sequences_own(name):
    places, sequences = branched(BRANCHES[name])
    found = edges(places, torch.arange(places.numel()).view_as(places))
    keys = found.key_at_B1.diff().tolist()
    parts = found.key_S.split(keys)
    got = [part.tolist() for part in parts if int(part[0]) not in padded(places, sequences)]
    width = places.shape[1]
    assert got == [[row * width + place for place in here] for row, here, _ in sequences]
    assert len(parts) - len(got) == len(padded(places, sequences))
    assert found.longest_keys == max(keys)


def padded(places, sequences):
    width = places.shape[1]
    filled = {row * width + place for row, here, _ in sequences for place in here}
    return set(range(places.numel())) - filled


def test_the_flash_kernels_too_refuse_a_loan_of_more_than_there_is():
    with pytest.raises(ValueError, match="borrows 4 positions of one that has 2"):
        edges(torch.tensor([[0, 1, 4, 5]]))
