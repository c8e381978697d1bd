"""Equality that cannot be talked into anything, against cases and against Python's own."""

import enum
import math
from collections import Counter, OrderedDict
from decimal import Decimal
from fractions import Fraction
from unittest.mock import ANY

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cpu_budget import cpu_budget
from veriloop.verifiers.code.compare import MAX_DEPTH, MAX_DIGITS, same_output, same_value

SCALARS = st.none() | st.booleans() | st.integers() | st.text() | st.binary(max_size=20)
PLAIN = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=12,
)


class Sure(int):
    def __eq__(self, other):
        return True

    def __sub__(self, other):
        return 0

    __rsub__ = __sub__
    __hash__ = int.__hash__


class Shy(list):
    def __len__(self):
        return 0


class Colour(enum.IntEnum):
    RED = 1


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.slow
@given(PLAIN)
def test_plain_data_equals_itself(value):
    assert same_value(value, value) and same_value([value], (value,))


@pytest.mark.slow
@given(PLAIN, PLAIN)
def test_what_python_calls_unequal_is_never_equal(left, right):
    if left != right:
        assert not same_value(left, right) and not same_value({"x": left}, {"x": right})


def changed(value, path, new):
    """The value with one part replaced: `path` chooses the way down."""
    for step in path:
        if isinstance(value, list) and value:
            index = step % len(value)
            return [changed(v, path[1:], new) if i == index else v for i, v in enumerate(value)]
        if isinstance(value, dict) and value:
            chosen = list(value)[step % len(value)]
            return {k: changed(v, path[1:], new) if k == chosen else v for k, v in value.items()}
        break
    return new


@pytest.mark.slow
@given(PLAIN, st.lists(st.integers(0, 9), max_size=4))
def test_nothing_with_a_nan_in_it_equals_anything(value, path):
    tainted = changed(value, path, math.nan)
    assert not same_value(tainted, tainted) and not same_value(tainted, value)
    assert not same_value(value, tainted)


@pytest.mark.slow
@given(PLAIN, st.lists(st.integers(0, 9), max_size=4), st.booleans())
def test_a_bool_is_no_number_anywhere(value, path, flag):
    with_bool, with_int = changed(value, path, flag), changed(value, path, int(flag))
    assert same_value(with_bool, with_bool) and same_value(with_int, with_int)
    assert not same_value(with_bool, with_int) and not same_value(with_int, with_bool)


@given(st.floats(-1e12, 1e12), st.floats(-2.0, 2.0), st.sampled_from([1e-9, 1e-6, 1e-3]))
def test_a_float_may_be_off_by_the_tolerance_of_its_size_and_no_more(expected, share, tolerance):
    room = tolerance * max(1.0, abs(expected))
    actual = expected + share * room
    if abs(abs(share) - 1.0) > 0.01 and (actual != expected or share == 0.0):
        assert same_value(actual, expected, tolerance) == (abs(share) < 1.0)
        text = f"{actual!r} x".encode()
        assert same_output(text, f"{expected!r} x", "numbers", tolerance) == (abs(share) < 1.0)


@given(st.lists(st.text("ab 1", max_size=3), max_size=6), st.randoms(use_true_random=False))
def test_unordered_lines_are_a_multiset(lines, random):
    mixed = lines.copy()
    random.shuffle(mixed)
    printed, wanted = "".join(f"{x}\n" for x in [*mixed, "z"]), "\n".join([*lines, "z"])
    assert same_output(printed.encode(), wanted, "unordered")
    assert not same_output(f"{printed}z\n".encode(), wanted, "unordered")
    assert not same_output(printed.encode(), f"{wanted}\ny", "unordered")


@given(st.floats(-1e300, 1e300), st.sampled_from(["", "+", ".12g", ".9e"]))
def test_however_a_float_is_spelled_it_is_the_same_number(value, tokenizer):
    for text in (format(value, tokenizer), repr(value)):
        assert same_output(text.encode(), repr(value), "numbers")


@pytest.mark.slow
@given(st.dictionaries(st.integers() | st.tuples(st.integers(), st.text(max_size=2)), PLAIN))
def test_keys_of_any_kind_are_compared_exactly_and_in_any_order(value):
    backwards = dict(reversed(value.items()))
    assert same_value(backwards, value) and same_value(set(backwards), frozenset(value))
    for key in value:
        assert not same_value({k: v for k, v in value.items() if k != key}, value)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (1, 1.0), (1.0, 1), (0.0, -0.0), (3.0000000001, 3), (1e9 + 100, 1e9), (2, 2.0000001),
        ((1, (2, 3)), [1, [2, 3]]), ([], ()), ({"a": (1,)}, {"a": [1]}), (10**400, 10**400),
        (math.inf, math.inf), (-math.inf, -math.inf), ({1, 2}, frozenset({2, 1})),
        (1 + 2j, 1.0000000001 + 2j), (b"ab", b"ab"), ({1: 2}, {1.0: 2}), (None, None),
        ({(1, 2): 3}, {(1, 2): 3}), ("\ud800", "\ud800"), ({}, {}),
        (1e18, 10**18), (10**18, 1e18), (10**18 + 1, 1e18),
        (2.0**70, 2**70), ({2.0**60: 1}, {2**60: 1}),
    ],
)  # fmt: skip
def test_equal(actual, expected):
    assert same_value(actual, expected)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (True, 1), (1, True), (False, 0), (True, 1.0), ([True], [1]), ({True: 1}, {1: 1}),
        ({1}, {True}), ({(1, True)}, {(1, 1)}), (None, 0), ("1", 1), (1, "1"), ({1: 2}, {"1": 2}),
        (math.nan, math.nan), ([math.nan], [math.nan]), (math.nan, 1.0), (1, math.nan),
        (complex(math.nan, 0), complex(math.nan, 0)), (math.inf, 1e308), (1e308, math.inf),
        (math.inf, -math.inf), (math.inf, 10**400), (10**400, 1e308), (10**400, 10**400 + 1),
        (1000003.4, 1000003), (1e9 + 5000, 1e9), (1.00001, 1.0), (2, 1 + 1j), (1, 1 + 0j),
        ([], [1]), ([1], []), ([1, 2], [1]), ([1], [1, 2]), ([2, 1], [1, 2]), ([1], {1}),
        ({1}, [1]), ({}, []), ({"a": 1}, {"a": 1, "b": 2}), ({"a": 1, "b": 2}, {"a": 1}),
        ({"a": 1}, {"b": 1}), ({"a": 1}, {"a": 2}), ({1, 2}, {1, 3}), (b"a", "a"), ("a", b"a"),
        (bytearray(b"a"), b"a"), ("a", "a "), ([[1, 2], [3]], [[1, 2], [4]]),
        (1e18, 10**18 + 1), ([1e18], [10**18 - 1]), (float(208067**3), 208067**3), (1e25, 10**25),
        (208067.0**3, 208067**3), ({2.0**60: 1}, {2**60 + 1: 1}), ({1e18}, {10**18 + 1}),
        (2.5 + 0j, 2.5), (4 + 0j, 4), (2.5, 2.5 + 0j), ([0j], [0]), ({0: 1, 1: 2}, [1, 2]),
        ({False: 1, True: 2}, {0: 1, 1: 2}), ({"0": 1}, {0: 1}), ({b"a": 1}, {"a": 1}),
        ({(0,): 1}, {0: 1}), ({1 + 0j: 1}, {1: 1}), (1e308, 10**309), (math.nan, 10**400),
    ],
)  # fmt: skip
def test_unequal(actual, expected):
    assert not same_value(actual, expected)


@pytest.mark.parametrize(
    "liar",
    [
        Sure(7), ANY, Shy([1]), Colour.RED, OrderedDict(a=1), Counter("a"), Decimal(1),
        Fraction(1), object(), (x for x in [1]), range(1), int, Exception("x"), Decimal("sNaN"),
    ],
    ids=lambda liar: type(liar).__name__,
)  # fmt: skip
def test_what_is_no_exact_plain_type_equals_nothing(liar):
    for expected in (1, 7, 1.0, [1], [], {"a": 1}, "1", None, True):
        assert not same_value(liar, expected) and not same_value([liar], [expected])
    assert not same_value(liar, liar)


def test_the_tolerance_is_absolute_below_one_and_relative_above():
    assert same_value(1e-7, 0.0) and not same_value(2e-6, 0.0)
    assert same_value(1e6 + 0.9, 1e6) and not same_value(1e6 + 1.1, 1e6)
    assert same_value(10.4, 10, tolerance=0.5) and not same_value(10.6, 10, tolerance=0.5)
    assert same_value(14.0, 10.0, tolerance=0.5) and not same_value(15.1, 10.0, tolerance=0.5)
    assert same_value(0.1 + 0.2, 0.3) and not same_value(0.1 + 0.2, 0.3, tolerance=0.0)


@pytest.mark.parametrize(
    ("printed", "expected", "equal"),
    [
        (b"9007610865436763.0", "9007610865436763", True),  # not a float, but the same number
        (b"9007610865436764.0", "9007610865436763", False),  # the nearest float
        (b"9.007610865436764e15", "9007610865436763", False),
        (b"9007610865436763", "9007610865436764.0", True),  # a float as large allows for more
        (b"1000000000000000000.0", "1000000000000000001", False),
        (b"1e18", "1000000000000000000", True),
        (b"10e399", "1e400", True),
        (b"1e9999", "1e9998", False),
        (b"1e309", "1e308", False),
        (b"-1e-9999", "0", True),
        (b"9007199254740992.5", "9007199254740992", False),  # 2^53 is the nearest float
        (b"9007199254740992.0", "9007199254740993", False),
        (b"9007199254740992.0", "9007199254740992", True),
        (b"9007199254740991.0", "9007199254740991", True),
    ],
)
def test_printed_numbers_beyond_the_exact_floats_are_compared_by_their_digits(
    printed, expected, equal
):
    assert same_output(printed, expected, "numbers") == equal


@pytest.mark.slow
def test_a_list_of_large_floats_takes_no_longer_than_one_of_small_ones():
    with cpu_budget(1.5):
        assert same_value([1e300] * 300_000, [1.0000000001e300] * 300_000)


def test_keys_and_members_have_no_tolerance():
    assert not same_value({0.1 + 0.2: 1}, {0.3: 1}) and not same_value({0.1 + 0.2}, {0.3})


@pytest.mark.parametrize("tolerance", [math.nan, math.inf, -1e-9])
def test_a_tolerance_that_lets_everything_pass_is_refused(tolerance):
    with pytest.raises(ValueError, match="finite and not negative"):
        same_value(1.0, 2.0, tolerance)
    with pytest.raises(ValueError, match="finite and not negative"):
        same_output(b"1", "2", "numbers", tolerance)


def test_depth_is_capped_on_both_sides():
    assert MAX_DEPTH == 200
    assert same_value(nested(MAX_DEPTH), nested(MAX_DEPTH))
    assert not same_value(nested(MAX_DEPTH + 1), nested(MAX_DEPTH + 1))
    assert not same_value(nested(100_000), nested(100_000))
    cyclic = []
    cyclic.append(cyclic)
    assert not same_value(cyclic, cyclic) and not same_value(cyclic, [[1]])


def test_lengths_are_compared_before_anything_else():
    with cpu_budget(0.5):
        assert not same_value([0] * 2_000_000, [0])
        assert not same_value(dict.fromkeys(range(300_000)), {0: None})


@pytest.mark.parametrize(
    ("stdout", "expected"),
    [
        (b"1 2\n3\n", "1 2\n3"), (b"1 2  \r\n3\t\n\n\n", "1 2\n3\n"), (b"", ""), (b"\n \n", ""),
        ("Grüße\n".encode(), "Grüße"), (b" 1", " 1\n"), (b"a\r\nb", "a\nb"),
        (b"a\nb", "a\r\nb\r\n"),
    ],
)  # fmt: skip
def test_text_ignores_blanks_at_ends(stdout, expected):
    assert same_output(stdout, expected) and same_output(stdout, expected, "unordered")


@pytest.mark.parametrize(
    ("stdout", "expected"),
    [
        (b"7\r42\n", "42\n"), (b"42\r", "42"), (b"42", "7\r42"), (b"1\n2\n3\n", "1\n2\n"),
        (b"1\n", "1\n2\n"), (b"", "1"), (b"1", ""), (b"\n1", "1"), (b" 1", "1"), (b"1  2", "1 2"),
        (b"\xff", "\ufffd"), (b"42\xff", "42"), (b"\xef\xbb\xbf42", "42"), (b"42\x00", "42"),
        (b"4\x0b2", "4\n2"), (b"4\x0c2", "4\n2"), (b"4\xc2\x852", "4\n2"), (b"42\x0b", "42"),
        ("4\u20282".encode(), "4\n2"), ("٤٢".encode(), "42"), ("4\u200b2".encode(), "42"),
        ("42".encode("utf-16"), "42"), (b"42.0", "42"), (b"\xed\xa0\x80", "\ud800"), (b"A", "a"),
    ],
)  # fmt: skip
def test_text_ignores_nothing_else(stdout, expected):
    assert not same_output(stdout, expected)
    assert not same_output(stdout, expected, "unordered")


def test_tokens_are_words_between_ascii_white_space():
    assert same_output(b"1  2\n\n3", "1 2\n3\n", "tokens") and same_output(b"", " \n", "tokens")
    for stdout in (b"1 2", b"1 2 3 4", b"1 2 30", "1\u00a02 3".encode(), b"1 2 3\xff", b"3 2 1"):
        assert not same_output(stdout, "1 2 3", "tokens"), stdout


@pytest.mark.parametrize(
    ("stdout", "expected"),
    [
        (b"0.3333333", "0.33333333333"), (b"1.0", "1"), (b"1", "1.0000000001"), (b"+5", "5"),
        (b"1e3 x", "1000.0 x"), (b".5", "0.5"), (b"-0", "0"), (b"007", "7"), (b"5.", "5"),
        (b"YES 2.0000001", "YES 2"), (b"1" * 400, "1" * 400), (b"nan", "nan"),
        (b"+" + b"1" * 399, "1" * 399), (b"1e400", "1e400"),
    ],
)  # fmt: skip
def test_numbers_may_differ_a_little(stdout, expected):
    assert same_output(stdout, expected, "numbers")


@pytest.mark.parametrize(
    ("stdout", "expected"),
    [
        (b"0.3334", "0.33333333333"), (b"1000004", "1000003"), (b"1000003.4", "1000003"),
        (b"nan", "1.0"), (b"1.0", "nan"), (b"inf", "1e400"), (b"1e400", "2e400"), (b"NaN", "nan"),
        (b"1 2", "1"), (b"1", "1 2"), (b"", "0"), (b"yes", "YES"), (b"1_0", "10"), (b"0x10", "16"),
        ("٤".encode(), "4"), (b"1e99999", "1e99998"), (b"1/2", "0.5"), (b"12345678901234567890",
        "12345678901234567891"), (b"1,5", "1.5"), (b"1" * 5000, "1" * 4999 + "2"),
        (b"1e309", "1e9999"), (b"--1", "1"),
    ],
)  # fmt: skip
def test_numbers_may_not_differ_more(stdout, expected):
    assert not same_output(stdout, expected, "numbers")


def test_numbers_too_long_to_read_are_text():
    assert MAX_DIGITS == 400
    with cpu_budget(0.5):
        assert not same_output(b"9" * 3_000_000, "9" * 2_999_999 + "8", "numbers")
        assert same_output(b"9" * 3_000_000, "9" * 3_000_000, "numbers")
        assert not same_output(b"0" + b"9" * 400, "9" * 400, "numbers")


def test_unordered_lines_count():
    assert same_output(b"b\na\nb\n", "a\nb\nb", "unordered")
    for stdout in (b"a\nb", b"a\na\nb", b"a\nb\nb\nb", b"a\nb\nc", b"a b\nb"):
        assert not same_output(stdout, "a\nb\nb", "unordered"), stdout


@given(st.text(alphabet="ab \n\t\r", max_size=12), st.text(alphabet="ab \n\t\r", max_size=12))
def test_what_is_equal_as_text_is_equal_in_every_mode(left, right):
    if same_output(left.encode(), right):
        for mode in ("tokens", "numbers", "unordered"):
            assert same_output(left.encode(), right, mode)
    assert same_output(left.encode(), left)


def test_an_unknown_mode_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match=r"no mode 'token'. Did you mean 'tokens'\? Known: text"):
        same_output(b"", "", "token")
