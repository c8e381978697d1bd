"""Digests of weights: equal for equal values, whatever holds them, and for nothing else."""

import struct

import pytest
import torch

from veriloop.pipeline.sampling import sampler as digest
from veriloop.pipeline.sampling.sampler import digest_tensor, digests

TILE = 65536
LONG = 3 * TILE + 5  # words: several tiles and a part of one


def numbers(count, seed=0):
    return torch.randn(count, generator=torch.Generator().manual_seed(seed))


def of(weight):
    return tuple(digest_tensor(weight).tolist())


def signed(number):
    return (number + 2**63) % 2**64 - 2**63


def multiplier(stream, index):
    """The mix of splitmix64 in Python's integers."""
    z = signed((index + (stream << 40)) * 0x9E3779B97F4A7C15)
    z = signed((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9)
    z = signed((z ^ (z >> 27)) * 0x94D049BB133111EB)
    return (z ^ (z >> 31)) | 1


def by_definition(weight, tile=TILE):
    sums = []
    for inner, outer in ((1, 3), (2, 4)):
        total = len(weight) * multiplier(outer, 0)
        for position in weight.nonzero().flatten().tolist():
            at, place = divmod(position, tile)
            word = struct.unpack("<i", struct.pack("<f", weight[position].item()))[0]
            total += word * multiplier(inner, place) * multiplier(outer, at)
        sums.append(signed(total))
    return tuple(sums)


@pytest.mark.parametrize("words", [TILE + 2, TILE + 1, TILE, 2, 1])
def test_a_digest_is_two_sums_of_products_of_words_and_odd_numbers(words):
    weight = torch.zeros(words)
    for position, value in {0: 1.5, 1: -2.25, words - 1: 3e-7}.items():
        weight[min(position, words - 1)] = value
    assert of(weight) == by_definition(weight)


@pytest.mark.parametrize("words", [100, 131, 0])
def test_there_may_be_more_tiles_than_words_in_one(words, monkeypatch):
    monkeypatch.setattr(digest, "TILE", 4)
    weight = numbers(words)
    assert of(weight) == by_definition(weight, tile=4)


def test_a_weight_that_is_trained_has_the_digest_of_its_values():
    for shape in ((6,), (2, 3)):
        weight = torch.nn.Parameter(numbers(6).view(shape))
        assert digests([("w", weight)]) == digests([("w", numbers(6))])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_type_that_holds_the_values_makes_no_difference(dtype):
    weight = numbers(1000).to(dtype)
    assert of(weight) == of(weight.float()) != of(numbers(1000))


def test_neither_do_the_shape_the_strides_and_what_is_read_at_once(monkeypatch):
    weight = numbers(LONG)
    expected = of(weight)
    assert of(weight.view(1, -1)) == expected
    square = numbers(64 * 64).view(64, 64)
    assert of(square.t().contiguous().t()) == of(square)
    for tiles in (1, digest.TILES_AT_ONCE):
        monkeypatch.setattr(digest, "TILES_ON_CPU", tiles)
        assert of(weight) == expected


def test_every_flipped_bit_changes_both_sums():
    weight = numbers(LONG)
    expected = of(weight)
    positions = [0, 1, TILE - 1, TILE, LONG - 1]
    for position in positions:
        for bit in range(32):
            words = weight.view(torch.int32).clone()
            words[position] ^= -(2**31) if bit == 31 else 1 << bit
            changed = of(words.view(torch.float32))
            assert changed[0] != expected[0] and changed[1] != expected[1], (position, bit)


def test_order_counts():
    weight = numbers(LONG)
    seen = {of(weight), of(weight.flip(0)), of(weight.roll(1)), of(weight.roll(TILE))}
    for first, second in ((0, 1), (5, TILE + 5), (0, LONG - 1)):
        swapped = weight.clone()
        swapped[[first, second]] = weight[[second, first]]
        seen.add(of(swapped))
    square = numbers(64 * 64).view(64, 64)
    seen |= {of(square), of(square.t())}
    assert len(seen) == 9


def test_signs_that_change_together_do_not_cancel():
    weight = numbers(500)
    expected = of(weight)
    for second in range(1, 500):
        flipped = weight.clone()
        flipped[[0, second]] *= -1
        assert of(flipped)[0] != expected[0] and of(flipped)[1] != expected[1]


def test_the_number_of_words_counts():
    assert len({of(torch.zeros(count)) for count in range(5)}) == 5


def test_zero_has_one_digest_whatever_its_sign_and_subnormal_numbers_count_as_it():
    zeros = torch.tensor([0.0, -0.0, 1e-40, -1e-40, digest.SUBNORMAL])
    assert of(zeros) == of(torch.zeros(5)) != of(torch.tensor([0.0, 0.0, 0.0, 0.0, 2e-38]))


def test_numbers_that_are_none_differ_from_numbers():
    infinite = torch.tensor([1.0, float("inf")])
    assert len({of(infinite), of(-infinite), of(torch.tensor([1.0, float("nan")]))}) == 3


def test_digests_keep_names_and_order():
    named = [("b", numbers(3)), ("a", numbers(4)), ("b", numbers(5))]
    assert digests(named) == [(name, of(weight)) for name, weight in named]
    assert digests([]) == []


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32])
def test_a_type_that_float32_cannot_hold_is_refused(dtype):
    with pytest.raises(TypeError, match=f"weights of type {dtype} have no digest"):
        digest_tensor(torch.zeros(3, dtype=dtype))
