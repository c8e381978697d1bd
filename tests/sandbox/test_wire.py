import json
import math
import sys
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from enum import IntEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veriloop.sandbox.wire import (
    LENGTH_BYTES,
    MAX_DEPTH,
    MAX_INTEGER_DIGITS,
    WireError,
    decode,
    encode,
)

CAP = 1 << 20


def framed(text):
    body = text.encode("latin-1")
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


hashable = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=8,
)
data = st.recursive(
    hashable,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(hashable, inner, max_size=4)
        | st.tuples(inner)
        | st.sets(hashable, max_size=3)
    ),
    max_leaves=16,
)


def exact(value):
    """The value with every type spelled out, so that True and 1 differ."""
    if isinstance(value, dict):
        return dict, sorted((repr(exact(k)), repr(exact(v))) for k, v in value.items())
    if isinstance(value, list | tuple):
        return type(value), [exact(part) for part in value]
    if isinstance(value, set | frozenset):
        return type(value), sorted(repr(exact(part)) for part in value)
    return type(value), repr(value)


@given(data)
def test_plain_data_comes_back_as_it_went_type_by_type(value):
    assert exact(decode(encode(value), 1 << 24)) == exact(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), -0.0])
def test_odd_floats_survive(value):
    back = decode(encode(value), CAP)
    assert type(back) is float and repr(back) == repr(value)
    inside = decode(encode(complex(1.0, value)), CAP)
    assert repr(inside.imag) == repr(value)


@pytest.mark.parametrize(
    "value", [2**53 - 1, 2**53, -(2**53), 10**5000, -(16**299_990)], ids=int.bit_length
)
def test_integers_of_any_length_survive(value):
    assert decode(encode(value), CAP) == value


@pytest.mark.parametrize(
    ("sent", "comes_back"),
    [
        (deque([1, 2]), [1, 2]),
        (Counter("aab"), {"a": 2, "b": 1}),
        (OrderedDict([(1, 2)]), {1: 2}),
        (defaultdict(list, {1: [2]}), {1: [2]}),
    ],
)
def test_honest_collections_become_plain_data(sent, comes_back):
    back = decode(encode(sent), CAP)
    assert back == comes_back and type(back) is type(comes_back)


class LyingInt(int):
    def __eq__(self, other):
        return True

    __hash__ = int.__hash__


class LyingDict(dict):
    pass


Pair = namedtuple("Pair", "a b")
Colour = IntEnum("Colour", "RED")


@pytest.mark.parametrize(
    "value",
    [LyingInt(3), LyingDict(), Pair(1, 2), Colour.RED, object(), int, iter([]), bytearray(b"")],
)
def test_what_only_looks_like_data_is_refused(value):
    with pytest.raises(WireError, match="not plain data"):
        encode([value])
    with pytest.raises(WireError, match="not plain data"):
        encode({"key": value})


def test_a_long_type_name_does_not_swell_the_message():
    with pytest.raises(WireError) as failure:
        encode(type("n" * 5_000_000, (), {})())
    assert len(str(failure.value)) < 200


def nested(depth, make):
    value = 0
    for _ in range(depth):
        value = make(value)
    return value


@pytest.mark.parametrize("make", [lambda x: [x], lambda x: (x,), lambda x: {0: x}])
def test_depth_is_bounded_on_both_sides(make):
    assert decode(encode(nested(MAX_DEPTH, make)), CAP) == nested(MAX_DEPTH, make)
    with pytest.raises(WireError, match="deep"):
        encode(nested(MAX_DEPTH + 1, make))
    cyclic = []
    cyclic.append(cyclic)
    with pytest.raises(WireError, match="deep"):
        encode(cyclic)


def test_the_reader_bounds_depth_whatever_the_writer_did():
    deep = MAX_DEPTH + 1
    with pytest.raises(WireError, match="nested deeper"):
        decode(framed("[" * deep + "1" + "]" * deep), CAP)
    with pytest.raises(WireError):
        decode(framed("[" * 100_000 + "]" * 100_000), CAP)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\0" * 7,
        framed("1") + b"2",
        framed("1")[:-1],
        framed("1") + framed("1"),
        (2**63).to_bytes(8, "big") + b"1",
    ],
)
def test_exactly_one_frame(raw):
    with pytest.raises(WireError):
        decode(raw, CAP)


def test_a_frame_over_the_cap_is_refused_and_one_at_the_cap_is_not():
    raw = encode("x" * 10)
    assert decode(raw, 12) == "x" * 10
    with pytest.raises(WireError, match="at most 11"):
        decode(raw, 11)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nope",
        "1 2",
        "NaN",
        "Infinity",
        "-Infinity",
        "1e999",
        "9" * 5000,
        "12345678901234567890",
        "{}",
        '{"t": [], "s": []}',
        '{"t": [], "t": []}',
        '{"q": []}',
        '{"t": 3}',
        '{"i": 3}',
        '{"i": "zz"}',
        '{"i": "' + "f" * (MAX_INTEGER_DIGITS + 1) + '"}',
        '{"f": "1.0"}',
        '{"f": "NAN"}',
        '{"b": "0"}',
        '{"c": [1.0]}',
        '{"c": [1, 2]}',
        '{"c": [1.0, "2"]}',
        '{"d": [1]}',
        '{"d": [1, 2, 1, 3]}',
        '{"d": [1, 2, true, 3]}',
        '{"s": [1, 1]}',
        '{"s": [[]]}',
        '{"d": [{"s": []}, 1]}',
        '{"t": {"t": []}}',
        '"\\ud800"',
        '{"d": ["\\udfff", 1]}',
        '"\xe9"',
    ],
)
def test_the_reader_refuses_with_one_kind_of_error(text):
    with pytest.raises(WireError):
        decode(framed(text), CAP)


@given(st.binary(max_size=200))
def test_no_bytes_make_the_reader_fail_otherwise(body):
    try:
        decode(len(body).to_bytes(LENGTH_BYTES, "big") + body, CAP)
    except WireError:
        return
    assert json.loads(body) is not ...


def test_keys_made_to_collide_cannot_hang_the_reader():
    modulus = 2**61 - 1
    keys = [hex(k * modulus) for k in range(1, 20_000)]
    raw = framed(json.dumps({"s": [{"i": key} for key in keys]}))
    with pytest.raises(WireError, match="equal hashes"):
        decode(raw, 1 << 24)


def test_cells_with_negative_coordinates_are_no_collision_attack():
    cells = {(x, y, z) for x in range(-9, 9) for y in range(-9, 9) for z in range(-9, 9)}
    collisions = len(cells) - len(set(map(hash, cells)))
    assert collisions > 500  # -1 and -2 have one hash
    assert decode(encode(cells), 1 << 20) == cells
    assert decode(encode(dict.fromkeys(cells, 1)), 1 << 20) == dict.fromkeys(cells, 1)


def test_one_key_more_than_may_share_a_hash_is_refused():
    modulus = sys.hash_info.modulus
    keys = [place * modulus for place in range(1, 66)]
    assert decode(encode(set(keys[:64])), 1 << 20) == set(keys[:64])
    with pytest.raises(WireError, match="more than 64 keys have equal hashes"):
        decode(encode(set(keys)), 1 << 20)


def test_too_many_items_are_refused_before_they_are_built():
    with pytest.raises(WireError, match="items"):
        decode(framed("[" + "[]," * 2_000_000 + "1]"), 1 << 24)


def test_texts_with_every_kind_of_character_survive():
    text = "".join(map(chr, range(300))) + "漢字🙂\x00\u202e"
    assert decode(encode(text), CAP) == text
    assert math.isfinite(decode(encode(1.5), CAP))
