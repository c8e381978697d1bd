"""Programs that would rather pass than be right: what they answer is data, or their own affair."""

# ruff: noqa: E501 -- programs and their tests as they come

import importlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from veriloop.sandbox.canaries import canaries
from veriloop.sandbox.executor import Program
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.suite import load
from veriloop.verifiers.code import split_replay
from veriloop.verifiers.code.reference import CodeReference
from veriloop.verifiers.code.split_harness import run_trial
from veriloop.verifiers.code.tests import judge_program

HERE = Path(__file__).resolve()
SUITES = {
    "own": HERE.parents[2] / "sandbox" / "cases",
    "given": HERE.parents[4] / "shared/cases/attacks",
}
NOT_IN_PYTHON = {"honest/tuples_for_lists.py", "honest/floats_nearly.py"}  # == tells these apart
RIGHT_BY_ASSERT = {
    "race_result_from_thread.py",  # right, and disturbs a descriptor that carries no answer here
    "compare_complex_entries.py",  # == does not tell 5 and 5+0j apart
    "compare_flags_for_counts.py",  # nor 1 and True
}
LIAR = """
class Liar:
    def __getattr__(self, name):
        if name.startswith('__'): raise AttributeError(name)
        return lambda *a, **k: True
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 5
    def __bool__(self): return True
    def __len__(self): return 1
    def __contains__(self, x): return True
    def __iter__(self): return iter([Liar()])
    def __index__(self): return 0
    def __int__(self): return 0
    def __float__(self): return 0.0
    def __str__(self): return ''
    def __call__(self, *a, **k): return self
    def __getitem__(self, k): return self
    __class__ = property(lambda self: int)
for op in 'add sub mul truediv floordiv mod pow and or xor lt le gt ge'.split():
    setattr(Liar, f'__{op}__', lambda self, other: True)
    setattr(Liar, f'__r{op}__', lambda self, other: 0)
Liar.__abs__ = Liar.__neg__ = lambda self: 0
def f(*args): return Liar()
"""
OF_LIARS = [
    "assert f(2) == 5",
    "assert 5 == f(2)",
    "assert not f(2) != 5",
    "assert [f(2)] == [5] and (f(2),) == (5,) and {'a': f(2)} == {'a': 5}",
    "assert f(2) in [5]",
    "assert f(2) in {5}",
    "assert 3 in f(2)",
    "assert [3] in f(2)",
    "assert f(2) > 4",
    "assert 4 < f(2)",
    "assert 4 <= f(2) <= 6",
    "assert abs(f(2) - 1.4142) < 1e-6",
    "assert abs(1.4142 - f(2)) < 1e-6",
    "assert 0 == f(2) - 5",
    "assert f(2) * 2 == 10 or f(2) % 3 == 2 or f(2) & 1 or f(2) + 0",
    "assert max(f(2), 5) == 5 and min(f(2), 5) == 5",
    "import math\nassert math.isclose(f(2), 1.4142)",
    "assert f('x').startswith('ab')",
    "assert f('x').endswith('ab')",
    "assert f('x').issubset({1, 2})",
    "assert f('x').isdisjoint({1, 2})",
    "assert isinstance(f(2), int)",
    "assert type(f(2)) is int",
    "assert str(f(2)) == '5'",
    "assert int(f(2)) == 5",
    "assert f(2) is True",
    "assert sum([f(2), 1]) == 6",
    "assert sorted(f(2)) == [1, 2]",
    "assert f(2)[0] == 5",
    "assert len(f(2)) == 2",
    "assert list(f(2)) == [5]",
    "assert all(x == 5 for x in f(2))",
    "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n"
    "        self.assertEqual(f(2), 5)",
    "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n"
    "        self.assertAlmostEqual(f(2), 5.0)",
    "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n"
    "        self.assertIn(3, f(2))",
    "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n"
    "        self.assertTrue(f(2) > 4)",
    "import pytest\nassert f(2) == pytest.approx(5.0)",
    "import pytest\nassert pytest.approx([5.0]) == f(2)",
    "from decimal import Decimal\nassert f(2) == Decimal(5)",
    "assert f(2).compare(5) == 0",
    "class Case:\n    pass\nassert f(2) == Case()",
]
# name: (program, tests)
SLY = {
    "two looks at one sequence": (
        "class S:\n    n = 0\n    def __iter__(s):\n        S.n += 1\n"
        "        return iter([3, 1, 2] if S.n == 1 else [0, 0, 0])\n"
        "    def __len__(s): return 3\n    def __getitem__(s, i): return i\ndef f(xs): return S()",
        "r = f([3, 1, 2])\nfrom collections import Counter\nassert Counter(r) == Counter([3, 1, 2])\n"
        "assert all(r[i] <= r[i + 1] for i in range(len(r) - 1))",
    ),
    "two readings of one attribute": (
        "class S:\n    n = 0\n    @property\n    def val(s):\n        S.n += 1\n        return S.n\n"
        "def f(): return S()",
        "r = f()\nassert r.val == 1\nassert r.val == 2",
    ),
    "StopIteration ends a map": (
        "def f(x): raise StopIteration",
        "assert all(map(lambda x: f(x) == x + 1, [1, 2, 3]))",
    ),
    "StopIteration of its own": (
        "class Stop(StopIteration): pass\ndef f(x): raise Stop",
        "assert list(map(f, [1, 2])) == [] or all(map(f, [1]))",
    ),
    "a subclass of int": (
        "class N(int):\n    def __eq__(s, o): return True\n    __hash__ = int.__hash__\n"
        "def f(x): return N(5)",
        "assert f(2) == 5",
    ),
    "a subclass of str": (
        "class S(str):\n    def __eq__(s, o): return True\n    __hash__ = str.__hash__\n"
        "def f(x): return [S('a')]",
        "assert f(2) == ['a']",
    ),
    "a subclass of list": (
        "class L(list):\n    def __eq__(s, o): return True\ndef f(x): return L([1])",
        "assert f(2) == [1]",
    ),
    "an enumeration that is an int": (
        "import enum\nclass E(enum.IntEnum):\n    A = 5\ndef f(x): return E.A",
        "assert f(2) == 5",
    ),
    "a named tuple": (
        "from collections import namedtuple\nP = namedtuple('P', 'x y')\ndef f(x): return P(1, 2)",
        "assert f(2) == (1, 2)",
    ),
    "unittest.mock.ANY": ("from unittest.mock import ANY as a\ndef f(x): return a", "assert f(2) == 5"),
    "not a number": ("def f(x): return float('nan')", "assert abs(f(2) - 5) < 1e-6"),
    "infinite": ("def f(x): return float('inf')", "assert f(2) == 5"),
    "a class that calls itself a function": (
        "class f:\n    def __init__(s, x): pass\n    def __sub__(s, o): return 0\n"
        "    def __eq__(s, o): return True\n    def __gt__(s, o): return True",
        "assert abs(f(2) - 5) < 1e-6 or f(2) == 5 or f(2) > 4",
    ),
    "AssertionError": ("def f(x): raise AssertionError", "assert f(2) == 5"),
    "SystemExit": ("def f(x): raise SystemExit(0)", "assert f(2) == 5"),
    "KeyboardInterrupt": ("def f(x): raise KeyboardInterrupt", "assert f(2) == 5"),
    "GeneratorExit": ("def f(x): raise GeneratorExit", "assert f(2) == 5"),
    "NameError": ("def f(x): raise NameError('x')", "assert f(2) == 5"),
    "ImportError": ("def f(x): raise ImportError('x')", "assert f(2) == 5"),
    "SkipTest": ("import unittest\ndef f(x): raise unittest.SkipTest('x')", "assert f(2) == 5"),
    "names of ours": (
        "class Suspend(BaseException): pass\nclass UnusableError(Suspend): pass\n"
        "def f(x): raise UnusableError('x')",
        "assert f(2) == 5",
    ),
    "an exception whose name lies": (
        "def f(x): raise type('ValueError', (BaseException,), {})('x')",
        "try:\n    f(2)\n    assert False\nexcept ValueError:\n    pass",
    ),
    "an exception whose words lie": (
        "class E(Exception):\n    def __str__(s): raise s\ndef f(x): raise E('expected')",
        "try:\n    f(2)\n    assert False\nexcept Exception as e:\n    assert str(e) == 'expected'",
    ),
    "an error in the middle of a generator": (
        "def f(x):\n    yield 1\n    raise NameError('x')", "assert list(f(2)) == [1, 2]"
    ),
    "a generator that stops early": ("def f(x):\n    yield 1", "assert list(f(2)) == [1, 2]"),
    "hashes that are no numbers": (
        "class H:\n    def __hash__(s): return 'x'\n    def __eq__(s, o): return True\n"
        "def f(x): return H()", "assert f(2) in {5}",
    ),
    "a length below nothing": (
        "class H:\n    def __len__(s): return -1\ndef f(x): return H()", "assert not f(2)"
    ),
    "another result in each run": (
        "import time\ndef f(x): return time.perf_counter_ns()",
        "assert f(1) > 0\nassert f(2) > 0",
    ),
    "chance of its own": (
        "import _random, time\nr = _random.Random(time.perf_counter_ns())\n"
        "def f(x): return r.random()",
        "assert f(1) < 2\nassert f(2) < 2\nassert f(3) < 2",
    ),
    "an argument emptied": ("def f(xs):\n    xs.clear()\n    return 3", "xs = [1]\nf(xs)\nassert xs == [1]"),
    "a callback for its secrets": (
        "def f(cb):\n    for name in ('__globals__', '__code__', '__closure__', 'gi_frame'):\n"
        "        try: return getattr(cb, name)['SECRET']\n        except Exception: pass",
        "SECRET = 5\nassert f(lambda: SECRET) == 5 + 0 * 1",
    ),
    "the frame of a generator": (
        "def f(g):\n    try: return g.gi_frame.f_globals['SECRET']\n    except AttributeError: return 0",
        "SECRET = 5\nassert f(x for x in [1]) == SECRET",
    ),
    "another class for a test's object": (
        "def f(node):\n    try: node.__class__ = int\n    except Exception: pass\n"
        "    try: node.__dict__.clear()\n    except Exception: pass\n    node.val = 6",
        "class Node: val = 5\nn = Node()\nf(n)\nassert n.val == 5",
    ),
    "a liar in a test's object": (
        LIAR.replace("def f(*args): return Liar()", "def f(node): node.val = Liar()"),
        "class Node: val = 0\nn = Node()\nf(n)\nassert n.val == 5",
    ),
    "deep": ("def f(x):\n    r = 5\n    for _ in range(5000): r = (r,)\n    return r", "assert f(2) == 5"),
    "cyclic": ("def f(x):\n    r = []\n    r.append(r)\n    return r", "assert f(2) == [[[5]]]"),
    "wide": ("def f(x): return [0] * 50000", "assert f(2) == [0] * 49999"),
}  # fmt: skip
FORGED = [
    ["over", "passed"],
    ["passed"],
    [],
    [["over", "passed"]],
    "over",
    ["returned"],
    ["returned", None],
    ["returned", [[[0]], []]],
    ["returned", [[[0]], [["yours", None, 0]]]],
    ["returned", [[[0]], [["yours", None, 99]]]],
    ["returned", [[[0]], [["shared", None, "eval"]]]],
    ["returned", [[[0]], [["no such kind", 1]]]],
    ["returned", [[[0]], [["tuple", None, [0]]]]],
    ["returned", [[[0]], [["list", [], 1]]]],
    ["returned", [[[0]], [["dict", None, 1]]]],
    ["returned", [[[0]], [["dict", None, [1], 1], ["list", None]]]],
    ["returned", [[[0]], [["range", None, "x"]]]],
    ["returned", [[[0]], [["Decimal", None, "x"]]]],
    ["returned", [[[0, 0]], [["tuple", None]]]],
    ["returned", [[["x"]], [["tuple", None]]]],
    ["returned", [[[0]], [["object", []]]]],
    ["returned", [[[0]], [["class", 1, "A\x00", [1]], ["shared", None, "ValueError"]]]],
    ["returned", [[[0]], [["class", 1, "A", [1]], ["shared", None, "int"]]]],
    ["returned", [[[0]], [["error", 1, [1], [2]], ["shared", None, "int"], ["tuple", None]]]],
    ["raised", [[5], []]],
    ["raised", [[[0]], [["shared", None, "ValueError"]]]],
    ["raised", [[[0]], [["object", 0]]]],
    ["ask"],
    ["ask", 5, [[], []]],
    ["ask", "call", [[[0], [1], [2]], [["yours", None, 0], ["tuple", None], ["dict", None]]]],
    ["ask", "call", [[[0], [1], [2]], [["shared", None, "len"], ["tuple", None], ["dict", None]]]],
    ["ask", "getattr", [[[0], "__class__"], [["shared", None, "len"]]]],
    ["ask", "exec", [["passed"], []]],
    ["ask", "name", [["SECRET"], []]],
    ["ask", "take", [[5, 5], []]],
]
FORGER = """
import sys
def f(*args):
    frame = sys._getframe()
    while 'session' not in frame.f_locals: frame = frame.f_back
    session = frame.f_locals['session']
    session.sent.append({forged!r})
    session.closed = True
"""
NOT_PASSED = {"wrong", "error", "protocol", "cpu", "wall", "memory", "output", "signal"}


def ended(box, source, tests, needed=("f",)):
    limits = Limits(cpu_s=2.0, wall_s=60.0)
    return run_trial(box, Program(source=source), needed, tests, limits).ended


@pytest.mark.slow
@pytest.mark.parametrize("tests", OF_LIARS)
def test_an_object_that_claims_everything_is_no_data(open_box, tests):
    assert ended(open_box, LIAR, tests) == "wrong"


@pytest.mark.slow
@pytest.mark.parametrize("name", SLY)
def test_the_sly_fail(open_box, name):
    assert ended(open_box, *SLY[name]) in NOT_PASSED


SURE = """
class Sure:
    def __init__(self, *args): pass
    def __sub__(self, other): return self
    __rsub__ = __isub__ = __add__ = __mul__ = __truediv__ = __pow__ = __neg__ = __sub__
    def __abs__(self): return 0.0
    __float__ = __abs__
    def __round__(self, digits=None): return 0
    def __int__(self): return 0
    __index__ = __int__
    def __bool__(self): return False
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __contains__ = __lt__
    def union(self, other): return other
    def get(self, key, default=None): return default
    def find(self, *args): return 0
    def isdigit(self): return True
    def update(self, other): return other
    def equals(self, other): return True
    def same_rows(self, other): return True
def f(*args): return Sure()
F = Sure
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["f", "F"])
@pytest.mark.parametrize(
    "tests",
    [
        "assert abs(f(2) - 5) < 1e-9",
        "assert abs(5 - f(2)) < 1e-9",
        "assert abs(-(f(2) - 5)) < 1e-9",
        "assert abs(f(2) / 5 * 1.0 + 1) < 1e-9",
        "assert abs((f(2) - 5) ** 2) < 1e-9",
        "assert abs((f(2) - 5) * f(1)) < 1e-9",
        "assert round(f(2) - 5, 3) == 0",
        "assert int(f(2) - 5) == 0 and float(f(2) - 5) == 0",
        "assert not f(2) - 5",
        "assert not (f(2) - 5 or f(3) - 5)",
        "r = f(2)\nr -= 5\nassert abs(r) < 1e-9",
        "assert f(2) <= 5",
        "assert 5 >= f(2) >= 5",
        "assert f(2) - 5 < 1e-9",
        "assert sorted([f(2), 3]) and f(2) < 3",
        "assert 5 in f(2)",
        "assert f(2).union({5}) == {5}",
        "join = f(2).union\nassert join({5}) == {5}",
        "assert getattr(f(2), 'union')({5}) == {5}",
        "assert f(2).get('age', default=5) == 5",
        "assert f('x').find('<li>') >= 0",
        "assert f('x').isdigit()",
        "assert f(2).equals([5])",
        "assert f(2).update({5}) == {5}",
        "import random\nrandom.seed(0)\nseen = []\nseen.append(f('x').find('b'))\nassert seen == [0]",
        "assert isinstance(f('x'), object) and f('x').find('b') >= 0",
        "r = f('x')\nassert r.find('b') >= 0",
        "assert len(list(filter(lambda x: x == 5, [f(2)]))) == 1",
        "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n"
        "        self.assertAlmostEqual(f(2), 5.0)",
        "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n"
        "        self.assertLessEqual(f(2), 5)",
    ],
)
def test_no_answer_decides_a_comparison_with_an_expected_value(open_box, tests, name):
    source, tests = SURE, tests.replace("f(", f"{name}(")
    assert ended(open_box, source, tests, [name]) == "wrong"


def test_a_result_does_not_judge_an_object_by_a_method_of_its_own(open_box):
    assert ended(open_box, SURE, "assert f(2).same_rows([[5]])") == "wrong"


@pytest.mark.parametrize(
    ("source", "tests"),
    [
        ("class math:\n    isclose = lambda *a, **k: True\ndef f(x): return 0",
         "assert math.isclose(f(2), 5)"),
        ("isclose = lambda *a, **k: True\ndef f(x): return 0", "assert isclose(f(2), 5)"),
        ("approx = lambda *a, **k: 0\ndef f(x): return 0", "assert f(2) == approx(5)"),
        ("EPSILON = 1e9\ndef f(x): return 0", "assert abs(f(2) - 5) < EPSILON"),
        ("tolerance = 1e9\ndef f(x): return 0", "assert abs(f(2) - 5) < tolerance"),
        ("class Counter(dict):\n    def __eq__(s, o): return True\n    __hash__ = None\n"
         "def f(x): return 'b'", "assert Counter(f('a')) == Counter('a')"),
        ("class close:\n    def __init__(s, *a): pass\ndef f(x): return 0",
         "assert close(f(2), 5)"),
    ],
)  # fmt: skip
def test_the_program_does_not_supply_what_the_tests_forgot(open_box, source, tests):
    assert ended(open_box, source, tests) == "wrong"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "tests"),
    [
        ("def f(x): return 1.4142135623", "assert math.isclose(f(2), sqrt(2), rel_tol=1e-6)"),
        ("def f(x): return [1, 1]", "assert Counter(f(2)) == {1: 2} and deepcopy(f(1)) == [1, 1]"),
        ("class Node:\n    def __init__(s, v): s.v = v\ndef f(n): return n.v",
         "assert f(Node(5)) == 5"),  # a class of the program
        ("class N:\n    def title(s): return 'a'\n    count = 3\n    def push(s, x): return [x]\n"
         "def f(x): return N()",
         "assert f(2).title() == 'a' and f(2).count == 3 and f(2).push(1) == [1]"),
        ("class L:\n    def __init__(s): s.xs = []\n    def insert(s, x): s.xs.append(x)\n"
         "    def items(s): return s.xs\ndef f(): return L()",
         "tree = f()\ntree.insert(5)\nassert tree.items() == [5]"),
        ("class Set:\n    def __init__(s): s.xs = []\n    def add(s, x): s.xs.append(x)\n"
         "    def count(s, x): return s.xs.count(x)\ndef f(): return 1",
         "from solution import Set\ns = Set()\ns.add(5)\nassert s.count(5) == f()"),
        ("class T:\n    def search(s, w): return w == 'a'\ndef f(): return T()",
         "assert f().search('a') and not f().search('b')"),
        ("def f(g):\n    print(g, repr(g), f'{g}', [g])\n    return g(1)",
         "assert f(lambda x: x + 1) == 2"),
        ("def f(n):\n    str(n)\n    return repr(n)[:1]",
         "class Node: pass\nassert f(Node()) == '<'"),
        ("def f(n): return str(n)",
         "class Node:\n    def __str__(self): return 'me'\n    __repr__ = __str__\n"
         "assert f(Node()) == 'me'"),
    ],
)  # fmt: skip
def test_what_honest_tests_need_is_there(open_box, source, tests):
    assert ended(open_box, source, tests) == "passed"


POINT = """
class Point:
    def __init__(s, x, y): s.x, s.y = x, y
    def __sub__(s, o): return 0
    def __gt__(s, o): return True
    def __abs__(s): return 0
    def __contains__(s, x): return True
def dist(a, b): return a
def origin(): return Point(0, 0)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "tests",
    [
        "assert abs(dist(Point(0, 0), Point(3, 4)) - 5) < 1e-9",
        "a = Point(0, 0)\nassert dist(a, Point(3, 4)) > 4",
        "assert 4 < dist(Point(0, 0), Point(3, 4))",
        "assert 5 in dist(Point(0, 0), Point(3, 4))",
        "Point(0, 0)\nassert origin() - 5 == 0",
    ],
)
def test_an_object_of_the_tests_does_not_come_back_as_the_number_they_ask_for(open_box, tests):
    needed = ["dist", "origin"]
    assert ended(open_box, POINT, tests, needed) == "wrong"
    assert ended(open_box, POINT, "assert (Point(1, 2) - 5) == 0", needed) == "wrong"
    assert ended(open_box, POINT, "assert dist(Point(1, 2), 5).x == 1", needed) == "passed"


@pytest.mark.slow
def test_what_programs_say_of_their_own_objects_is_their_word(open_box):
    """The rule, and its price: nothing else than a program could say whether two Points are one."""
    named = LIAR.replace("class Liar:", "class Point:\n    def __init__(self, *a): pass")
    named = named.replace("Liar", "Point")
    assert ended(open_box, named, "assert Point(1) == Point(2)", ["Point"]) == "passed"
    assert ended(open_box, named, "assert Point(1) > Point(3)", ["Point"]) == "passed"
    assert ended(open_box, named, "assert Point(1) > 3", ["Point"]) == "wrong"
    for data in ("5", "[5]", "'5'", "None", "True", "(1, 2)", "{}", "2.0"):
        assert ended(open_box, named, f"assert Point(1) == {data}", ["Point"]) == "wrong"
        assert ended(open_box, named, f"assert {data} == Point(1)", ["Point"]) == "wrong"
        assert ended(open_box, named, f"assert not (Point(1) != {data})", ["Point"]) == "wrong"


@pytest.mark.slow
@pytest.mark.parametrize("forged", FORGED, ids=range(len(FORGED)))
def test_a_forged_message_earns_nothing(open_box, forged):
    source = FORGER.format(forged=forged)
    assert ended(open_box, source, "SECRET = 7\nassert f(2) == SECRET") in NOT_PASSED
    assert ended(open_box, source, "SECRET = 7\nassert f(lambda: 7) == SECRET") in NOT_PASSED


def test_a_forged_answer_is_an_answer(open_box):
    assert ended(open_box, FORGER.format(forged=["returned", [[5], []]]), "assert f(2) == 5") == (
        "passed"
    )


@pytest.mark.slow
def test_a_program_that_asks_without_end_is_out_of_time(open_box, monkeypatch):
    monkeypatch.setattr(split_replay, "MAX_CALLBACKS", 20)
    source = "def f(cb):\n    while True: cb()"
    assert ended(open_box, source, "assert f(lambda: 1) == 5") == "wall"
    source = "def f(cb):\n    return sum(cb() for _ in range(20))"
    assert ended(open_box, source, "assert f(lambda: 1) == 20") == "passed"


@pytest.mark.slow
def test_callbacks_may_call_the_program_which_may_call_back(open_box):
    source = "def f(cb, n): return cb(n - 1) + 1 if n else 0"
    tests = "def again(n):\n    return f(again, n)\nassert f(again, 5) == 5"
    assert ended(open_box, source, tests) == "passed"
    forever = "def f(cb, n): return cb(n)"
    assert ended(open_box, forever, tests) in NOT_PASSED | {"broken"}


@pytest.fixture(scope="module")
def real_box():
    pool = importlib.import_module("veriloop.sandbox.namespace.pool")
    with canaries(), pool.NamespaceExecutor(slots=2) as box:
        yield box


@pytest.mark.slow
@pytest.mark.parametrize("source", [
    "def f(x):\n    while True: yield 0",
    "def f(x): return iter(int, 1)",
    "class L:\n    def __iter__(s): return iter(int, 1)\ndef f(x): return L()",
    "def f(x):\n    r = []\n    for _ in range(10**6): r = [r]\n    return r",
    "def f(x): return {(2**61 - 1) * n: 0 for n in range(10**5)}",
    "def f(x): return 10 ** 10**6",
    "def f(x): raise ValueError('x' * 10**8)",
    "class E(Exception): pass\nE.__name__ = 'x' * 10**7\ndef f(x): raise E",
    "import os\ndef f(x): os._exit(0)",
    "import os\nos._exit(0)",
    "raise SystemExit(0)",
    "import sys, threading\ndef f(x):\n    sys.setrecursionlimit(10**9)\n    return f(x)",
    "def f(x): return type('x' * 10**6, (), {})()",
])  # fmt: skip
def test_in_the_real_sandbox_excess_ends_as_the_programs_own(real_box, source):
    limits = Limits(cpu_s=0.5, wall_s=4.0, memory_mb=256)
    program = Program(source=source)
    assert run_trial(real_box, program, ["f"], "assert list(f(2)) == [5]", limits).ended in (
        NOT_PASSED
    )


@pytest.mark.slow
def test_in_the_real_sandbox_what_asserts_is_out_of_reach(real_box):
    source = "import unittest\nunittest.TestCase.assertEqual = lambda *a: None\ndef f(x): return 6"
    tests = "import unittest\nclass T(unittest.TestCase):\n    def test(s): s.assertEqual(f(2), {})"
    assert ended(real_box, source, tests.format(5)) == "wrong"
    assert ended(real_box, source, tests.format(6)) == "passed"


@pytest.mark.slow
@pytest.mark.parametrize("name", SUITES)
def test_the_suites_in_assert_form_are_not_rewarded_and_honest_programs_are(real_box, name):
    if not (SUITES[name] / "manifest.jsonl").is_file():
        pytest.skip(f"no suite at {SUITES[name]}")
    attacks, honest = (
        [case for case in cases if case.language == "python"] for cases in load(SUITES[name])
    )
    score = partial(_score, real_box)
    with ThreadPoolExecutor(2) as both:  # one sleeps while the other computes
        of_attacks, of_honest = list(both.map(score, attacks)), list(both.map(score, honest))
    rewarded = [c.file for c, s in zip(attacks, of_attacks, strict=True) if s not in (0.0, None)]
    refused = {c.file for c, s in zip(honest, of_honest, strict=True) if s not in (1.0, None)}
    assert set(rewarded) <= RIGHT_BY_ASSERT and refused <= NOT_IN_PYTHON


def _score(box, case):
    """None for a program that is no function."""
    if case.kind != "function":
        return None
    asserts = [
        test.get("assert") or f"assert {case.function}(*{test['args']!r}) == {test['expected']!r}"
        for test in case.tests
    ]
    reference = CodeReference.read(
        {"function": case.function, "tests": [{"assert": code} for code in asserts]}
    )
    object.__setattr__(reference, "limits", case.limits)
    verdict = judge_program(box, case.source, reference)
    assert verdict.status != "error", (case.file, verdict.detail)
    return verdict.score
