"""What crosses arrives as it was: types, order, sharing, cycles; what was not packed is refused."""

from collections import Counter, OrderedDict, defaultdict, deque
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veriloop.sandbox import wire
from veriloop.verifiers.code.split.values import MalformedError, pack, unpack

ATOMS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.binary(max_size=5)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
)  # fmt: skip
KEYS = st.recursive(ATOMS, lambda inner: st.tuples(inner, inner), max_leaves=4)
VALUES = st.recursive(
    ATOMS | st.frozensets(KEYS, max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.sets(KEYS, max_size=3)
        | st.dictionaries(KEYS, inner, max_size=3) | st.builds(deque, st.lists(inner, max_size=3))
    ),
    max_leaves=12,
)  # fmt: skip


def no_foreign(value, item):
    raise AssertionError(f"{value!r} was taken for foreign")


def sent(*roots, known=None):
    """Packed, and as it comes out at the other end of the wire."""
    packed, shells = pack(roots, known or {}, no_foreign)
    return wire.decode(wire.encode(packed), 1 << 24), shells


def crossed(value):
    return unpack(sent(value)[0], {}, no_foreign)[0][0]


def shape(value):
    """Types all the way down; a set has no order."""
    if isinstance(value, dict):
        return type(value), [(shape(k), shape(v)) for k, v in value.items()]
    if isinstance(value, set | frozenset):
        return type(value), sorted(map(repr, map(shape, value)))
    if isinstance(value, list | tuple | deque):
        return type(value), [shape(item) for item in value]
    return type(value), repr(value)


@pytest.mark.slow
@given(VALUES)
def test_a_value_comes_back_with_its_types_and_order(value):
    assert crossed(value) == value and shape(crossed(value)) == shape(value)


@pytest.mark.parametrize(
    "value",
    [
        Counter("aab"), OrderedDict([(2, 1), (1, 2)]), defaultdict(None, {1: [2]}), deque([1, [2]]),
        bytearray(b"ab"), range(1, 9, 3), slice(1, None, 2), Decimal("1.50"), Decimal("-Infinity"),
        Fraction(-2, 6), date(2024, 2, 29), datetime(2024, 2, 29, 1, 2, 3, 4),
        timedelta(days=-1, microseconds=7), 10**5000, -(10**5000), {1: {2: {3: {4}}}}, 1 + 2j,
        frozenset({(1, frozenset({2}))}), ((), [], {}, set()), float("inf"), -0.0,
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_these_types_are_data(value):
    assert crossed(value) == value and type(crossed(value)) is type(value)
    assert repr(crossed(-0.0)) == "-0.0"


def test_views_arrive_as_views():
    held = {"a": 1, "b": [2]}
    for view in (held.keys(), held.values(), held.items()):
        assert type(crossed(view)) is type(view) and list(crossed(view)) == list(view)


def test_sharing_and_cycles_survive():
    inner = [1]
    first, second = crossed([inner, inner, [1]])[0:2]
    assert first is second and crossed([inner, [1]])[0] is not crossed([inner, [1]])[1]
    loop = [1]
    loop.append({"again": (loop,)})
    received = crossed(loop)
    assert received[0] == 1 and received[1]["again"][0] is received


@pytest.mark.slow
def test_depth_is_no_limit_for_lists():
    deep = []
    for _ in range(20_000):
        deep = [deep]
    received = crossed(deep)
    for _ in range(20_000):
        (received,) = received
    assert received == []


def test_changes_on_the_other_side_are_made_here_in_place():
    xs, d, s, b, q = [1, [2]], {"k": [3]}, {4}, bytearray(b"5"), deque([6])
    inner = xs[1]
    request, ours = sent([xs, d, s, b, q])
    (got,), theirs = unpack(request, {}, no_foreign)
    got[0][1].append(7)
    got[0].append(got[1])
    got[1].clear()
    got[1]["new"] = 8
    got[2].discard(4)
    got[2].update({1, 9})
    got[3].extend(b"!")
    got[4].appendleft(0)
    keys = {id(container): index for index, container in theirs.items()}
    answer, _ = pack([got[0], *theirs.values()], keys, no_foreign)
    (result, *_), _ = unpack(answer, ours, no_foreign)
    assert result is xs and xs == [1, [2, 7], {"new": 8}] and xs[1] is inner and xs[2] is d
    assert (d, s, b, q) == ({"new": 8}, {1, 9}, bytearray(b"5!"), deque([0, 6]))


def test_a_container_never_becomes_one_of_another_type():
    ours = [1]
    answer = [[[0]], [["set", 0, 5]]]
    assert unpack(answer, {0: ours}, no_foreign)[0] == [{5}] and ours == [1]
    assert unpack([[[0]], [["list", 3, 5]]], {0: ours}, no_foreign)[0] == [[5]] and ours == [1]


def test_a_set_is_packed_the_same_however_it_was_filled():
    first, second = {8, 0, "a", (1, 2)}, {(1, 2), "a", 0, 8}
    assert pack([first], {}, no_foreign)[0] == pack([second], {}, no_foreign)[0]
    assert pack([{10, 9, 8}], {}, no_foreign)[0][1] == [["set", None, 8, 9, 10]]


@pytest.mark.parametrize(
    "value",
    [object(), type("L", (list,), {})(), type("I", (int,), {})(1), datetime.now(UTC), len, int,
     iter([]), Exception("x"), type("D", (dict,), {})()],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_everything_else_is_foreign_and_so_are_subclasses(value):
    seen = []

    def foreign(part, item):
        seen.append(part)
        return ["odd", 5, item("part")]

    packed, shells = pack([[value, value]], {}, foreign)
    assert seen == [value] and packed == [[[0]], [["list", None, [1], [1]], ["odd", 5, "part"]]]
    assert list(shells) == [0]
    back = unpack(packed, {}, lambda entry, built: (entry[1], built(entry[2])))[0][0]
    assert back == [(5, "part"), (5, "part")] and back[0] is back[1]


@pytest.mark.parametrize(
    "packed",
    [
        None, [], 5, "ab", [[], []] * 2, [[[0]], []], [[[1]], [["list", None]]],
        [[["0"]], [["list", None]]],
        [[[0]], [[]]], [[[0]], [None]], [[[0]], [["tuple", None, [0]]]], [[[]], []],
        [[[0]], [["dict", None, 1]]], [[[0]], [["dict", None, [1], 2], ["list", None]]],
        [[[0]], [["set", None, [1]], ["set", None]]], [[[0]], [["range", None, 1, 1, 0]]],
        [[[0]], [["Fraction", None, 1, 0]]], [[[0]], [["date", None, 1]]], [[[0]], [["list"]]],
        [[[0]], [["bytearray", None]]], [[[0]], [["bytearray", None, "x"]]],
        [[[0]], [["Decimal", None, "one"]]], [[[0]], [[["list"], None]]],
        [[[0]], [["items", None, 1]]], [[[0]], [["list", [], 1]]],
    ],
    ids=repr,
)  # fmt: skip
def test_what_was_never_packed_is_refused(packed):
    def foreign(entry, built):
        raise KeyError(entry[0])

    with pytest.raises(MalformedError):
        unpack(packed, {}, foreign)


def test_tuples_too_deep_to_build_are_refused():
    packed = [[[0]], [["tuple", None, [n + 1]] for n in range(50_000)] + [["tuple", None]]]
    with pytest.raises(MalformedError, match="RecursionError"):
        unpack(packed, {}, no_foreign)
