"""Items as data sets have them: their tests accept right programs, and refuse wrong ones."""

# ruff: noqa: E501 -- programs and their tests as they come

import pytest

from veriloop.sandbox.executor import Program
from veriloop.sandbox.limits import Limits
from veriloop.verifiers.code.outcome import Outcome
from veriloop.verifiers.code.split_harness import run_trial

# name of the item: (needed names, tests, right program, wrong programs)
ITEMS = {
    # MBPP: asserts in a row
    "similar_elements": (
        "similar",
        "assert set(similar((3, 4, 5, 6), (5, 7, 4, 10))) == set((4, 5))\n"
        "assert set(similar((1, 2), (5, 7))) == set()",
        "def similar(a, b): return tuple(set(a) & set(b))",
        ["def similar(a, b): return a", "def similar(a, b): return None"],
    ),
    "heap": (
        "largest",
        "import heapq as hq\nassert largest([25, 35, 22, 85], 2) == hq.nlargest(2, [25, 35, 22, 85])",
        "import heapq\ndef largest(xs, n): return heapq.nlargest(n, xs)",
        ["def largest(xs, n): return xs[:n]"],
    ),
    "area": (
        "area",
        "import math\nassert math.isclose(area(10), 314.159, rel_tol=1e-3)\n"
        "assert abs(area(5) - 78.54) < 0.01",
        "import math\ndef area(r): return math.pi * r * r",
        ["def area(r): return 3 * r * r", "def area(r): return float('nan')"],
    ),
    "tuples": (
        "pairs",
        "assert pairs([1, 2, 3]) == [(1, 2), (2, 3)]\nassert pairs([]) == []",
        "def pairs(xs): return list(zip(xs, xs[1:]))",
        ["def pairs(xs): return [[a, b] for a, b in zip(xs, xs[1:])]"],
    ),
    "nested": (
        "deepest",
        "assert deepest([1, [2, [3, [4]]]]) == 4 and deepest([]) == 1",
        "def deepest(x): return 1 + max(map(deepest, x), default=0) if type(x) is list else 0",
        ["def deepest(x): return len(x)"],
    ),
    "counting": (
        "count",
        "from collections import Counter\nassert count('abca') == Counter('abca')\n"
        "assert count('') == {}",
        "from collections import Counter\ndef count(s): return Counter(s)",
        ["def count(s): return {c: 1 for c in s}"],
    ),
    "big": (
        "factorial",
        "import math\nassert factorial(2000) == math.factorial(2000)",
        "def factorial(n):\n    r = 1\n    for i in range(2, n + 1): r *= i\n    return r",
        ["def factorial(n): return float('inf')"],
    ),
    "odd_values": (
        "same",
        "from decimal import Decimal\nfrom fractions import Fraction\nfrom datetime import date\n"
        "for value in (Decimal('1.50'), Fraction(1, 3), date(2024, 2, 29), range(3), 2j, b'x',\n"
        "              frozenset({1}), None, True, {(1, 2): {3}}, bytearray(b'y'), slice(1, 2)):\n"
        "    assert same(value) == value and type(same(value)) is type(value)",
        "def same(value): return value",
        ["def same(value): return str(value)"],
    ),
    "generator": (
        "fib",
        "from itertools import islice\nassert list(islice(fib(), 10))[-3:] == [21, 34, 55]\n"
        "g = fib()\nassert [next(g), next(g), next(g)] == [1, 1, 2]",
        "def fib():\n    a = b = 1\n    while True:\n        yield a\n        a, b = b, a + b",
        ["def fib():\n    yield from range(100)", "def fib(): yield 1"],
    ),
    "lazy": (
        "squares",
        "assert list(squares([1, 2, 3])) == [1, 4, 9]\nassert sum(squares(range(40))) == 20540",
        "def squares(xs): return map(lambda x: x * x, xs)",
        ["def squares(xs): return iter(xs)"],
    ),
    "views": (
        "keys",
        "d = keys({'a': 1, 'b': 2})\nassert list(d) == ['a', 'b'] and 'a' in d and len(d) == 2",
        "def keys(d): return d.keys()",
        ["def keys(d): return d.values()"],
    ),
    "raises": (
        "root",
        "try:\n    root(-1)\n    assert False, 'no error'\nexcept ValueError as e:\n"
        "    assert 'negative' in str(e)\nassert root(4) == 2",
        "def root(x):\n    if x < 0: raise ValueError('negative number')\n    return x ** 0.5",
        ["def root(x): return x ** 0.5",
         "def root(x):\n    if x < 0: raise ValueError('no')\n    return x ** 0.5",
         "def root(x):\n    if x < 0: raise TypeError('negative')\n    return x ** 0.5"],
    ),
    # in place
    "in_place_list": (
        "rotate",
        "xs = [1, 2, 3, 4]\nassert rotate(xs, 1) is None\nassert xs == [4, 1, 2, 3]",
        "def rotate(xs, k): xs[:] = xs[-k:] + xs[:-k]",
        ["def rotate(xs, k): xs = xs[-k:] + xs[:-k]", "def rotate(xs, k): return xs[-k:] + xs[:-k]"],
    ),
    "in_place_nested": (
        "zero",
        "grid = [[1, 0], [1, 1]]\nrow = grid[1]\nzero(grid)\n"
        "assert grid == [[0, 0], [1, 0]] and grid[1] is row",
        "def zero(g):\n    r, c = {(i, j) for i, x in enumerate(g) for j, v in enumerate(x)"
        " if not v}.pop()\n    for i in range(len(g)):\n        for j in range(len(g)):\n"
        "            if i == r or j == c: g[i][j] = 0",
        ["def zero(g): g[:] = [[0, 0], [1, 0]]", "def zero(g): pass"],
    ),
    "in_place_kinds": (
        "grow",
        "d, s, b = {'a': [1]}, {1}, bytearray(b'x')\ngrow(d, s, b)\n"
        "assert (d, s, b) == ({'a': [1, 2], 'b': 3}, {1, 4}, bytearray(b'xy'))",
        "def grow(d, s, b):\n    d['a'].append(2); d['b'] = 3; s.add(4); b.extend(b'y')",
        ["def grow(d, s, b):\n    d['b'] = 3; s.add(4); b.extend(b'y')"],
    ),
    "aliases": (
        "touch",
        "a = [0]\nassert touch(a, a) == 2 and a == [0, 1]\nb = []\nassert touch(a, b) == 1 and b == [1]",
        "def touch(a, b):\n    b.append(1)\n    return len(a) if a is b else 1",
        ["def touch(a, b):\n    b = b + [1]\n    return 2"],
    ),
    "returns_argument": (
        "dedupe",
        "xs = [1, 1, 2]\nassert dedupe(xs) is xs and xs == [1, 2]",
        "def dedupe(xs):\n    xs[:] = dict.fromkeys(xs)\n    return xs",
        ["def dedupe(xs): return list(dict.fromkeys(xs))"],
    ),
    "remove_element": (
        "Solution",
        "nums = [3, 2, 2, 3]\nk = Solution().removeElement(nums, 3)\n"
        "assert k == 2 and sorted(nums[:k]) == [2, 2]",
        "class Solution:\n    def removeElement(self, nums, val):\n"
        "        nums[:] = [n for n in nums if n != val]\n        return len(nums)",
        ["class Solution:\n    def removeElement(self, nums, val):\n        return 2"],
    ),
    # HumanEval
    "check_candidate": (
        "has_close",
        "\n\nMETADATA = {\n    'author': 'jt',\n    'dataset': 'test'\n}\n\n\n"
        "def check(candidate):\n    assert candidate([1.0, 2.0, 3.9], 0.3) == False\n"
        "    assert candidate([1.0, 2.8, 3.0], 0.3) == True\n",
        "def has_close(xs, t):\n    return any(abs(a - b) < t for i, a in enumerate(xs)"
        " for b in xs[:i])",
        ["def has_close(xs, t): return True", "def has_close(xs, t): return 0"],
    ),
    "check_called": (
        "strlen",
        "def check(candidate):\n    assert candidate('abc') == 3, 'message'\n\ncheck(strlen)",
        "def strlen(s): return len(s)",
        ["def strlen(s): return 4"],
    ),
    "helper_of_the_prompt": (
        "find_zero",
        "def poly(xs, x): return sum(c * x ** i for i, c in enumerate(xs))\n"
        "import math, random, copy\ndef check(candidate):\n    rng = random.Random(42)\n"
        "    for _ in range(5):\n        coeffs = [rng.randint(-9, 9), rng.randint(1, 9)]\n"
        "        solution = candidate(copy.deepcopy(coeffs))\n"
        "        assert math.fabs(poly(coeffs, solution)) < 1e-4",
        "def find_zero(xs): return -xs[0] / xs[1]",
        ["def poly(xs, x): return sum(c * x ** i for i, c in enumerate(xs))\n"
         "def find_zero(xs): return 0.0", "poly = lambda *a: 0.0\ndef find_zero(xs): return 0.0"],
    ),
    # KodCode: pytest functions that import the solution
    "kodcode": (
        "is_palindrome",
        "from solution import is_palindrome\n\ndef test_yes():\n    assert is_palindrome('abba')\n"
        "\ndef test_no():\n    assert not is_palindrome('abc')\n",
        "def is_palindrome(s): return s == s[::-1]",
        ["def is_palindrome(s): return True", "def is_palindrome(s): return False"],
    ),
    "pytest_raises": (
        "parse",
        "import pytest\nfrom solution import *\n\ndef test_it():\n"
        "    with pytest.raises(ValueError, match='empty') as info:\n        parse('')\n"
        "    assert 'empty' in str(info.value) and info.type is ValueError\n"
        "    pytest.raises(TypeError, parse, None)\n    assert parse('1.5') == pytest.approx(1.5)",
        "def parse(s):\n    if s == '': raise ValueError('empty text')\n    return float(s)",
        ["def parse(s): return float(s)",
         "def parse(s):\n    if not s: raise ValueError('empty')\n    return float(s)",
         "def parse(s):\n    if s == '': raise ValueError('empty text')\n    return float(s) + 1"],
    ),
    "parametrized": (
        "fizz",
        "import pytest\nimport solution\n\n@pytest.mark.parametrize('n, text', "
        "[(3, 'Fizz'), (5, 'Buzz'), (4, '4')])\ndef test_fizz(n, text):\n"
        "    assert solution.fizz(n) == text\n\n@pytest.mark.slow\nclass TestMore:\n"
        "    @pytest.mark.parametrize('n', [15, 30])\n    def test_both(self, n):\n"
        "        assert solution.fizz(n) == 'FizzBuzz'",
        "def fizz(n): return 'Fizz' * (n % 3 == 0) + 'Buzz' * (n % 5 == 0) or str(n)",
        ["def fizz(n): return 'Fizz' if n % 3 == 0 else 'Buzz' if n % 5 == 0 else str(n)"],
    ),
    "unittest": (
        "add",
        "import unittest\nfrom solution import add\n\nclass TestAdd(unittest.TestCase):\n"
        "    def setUp(self):\n        self.two = 2\n    def test_sum(self):\n"
        "        self.assertEqual(add(self.two, 3), 5)\n        self.assertAlmostEqual(add(.1, .2), .3)\n"
        "    def test_error(self):\n        with self.assertRaises(TypeError):\n            add(1, 'x')",
        "def add(a, b): return a + b",
        ["def add(a, b): return 5", "def add(a, b): return int(a) + int(b)"],
    ),
    "constants": (
        "MODULUS",
        "from solution import MODULUS, power\nassert MODULUS == 97 and power(2, 7) == 31",
        "MODULUS = 97\ndef power(a, b): return a ** b % MODULUS",
        ["MODULUS = 98\ndef power(a, b): return 31"],
    ),
    "state_in_globals": (
        "visit",
        "assert visit('a') == 1 and visit('b') == 1 and visit('a') == 2",
        "seen = {}\ndef visit(k):\n    seen[k] = seen.get(k, 0) + 1\n    return seen[k]",
        ["def visit(k): return 1"],
    ),
    "two_functions": (
        "encode decode",
        "s = 'hello'\nassert encode(s) != s\nassert decode(encode(s)) == s",
        "def encode(s): return s[::-1]\ndef decode(s): return s[::-1]",
        ["def encode(s): return s + '!'\ndef decode(s): return s"],
    ),
    # classes
    "stack": (
        "Stack",
        "s = Stack()\nassert s.is_empty()\ns.push(1)\ns.push(2)\nassert len(s) == 2 and s.pop() == 2\n"
        "assert not s.is_empty() and s.size == 1\ntry:\n    s.pop(); s.pop()\n"
        "    assert False\nexcept IndexError:\n    pass",
        "class Stack:\n    def __init__(self): self.xs = []\n    def push(self, x): self.xs.append(x)\n"
        "    def pop(self): return self.xs.pop()\n    def is_empty(self): return not self.xs\n"
        "    def __len__(self): return len(self.xs)\n    @property\n"
        "    def size(self): return len(self.xs)",
        ["class Stack:\n    def __init__(self): self.xs = []\n"
         "    def push(self, x): self.xs.append(x)\n    def pop(self): return self.xs.pop(0)\n"
         "    def is_empty(self): return not self.xs\n    def __len__(self): return len(self.xs)\n"
         "    size = 1"],
    ),
    "vector": (
        "Vector",
        "v = Vector(1, 2)\nassert v + Vector(3, 4) == Vector(4, 6)\nassert v * 2 == Vector(2, 4)\n"
        "assert 2 * v != v and repr(v) == 'Vector(1, 2)'\nassert abs(Vector(3, 4)) == 5.0\n"
        "assert Vector(1, 2) in {Vector(1, 2)} and v[0] == 1 and tuple(v) == (1, 2)\n"
        "assert Vector(0, 0) < v and f'{v}' == 'Vector(1, 2)' and isinstance(v, Vector)\n"
        "v += Vector(1, 1)\nassert (v.x, v.y) == (2, 3)",
        "from dataclasses import dataclass\n@dataclass(frozen=True, order=True)\nclass Vector:\n"
        "    x: float\n    y: float\n    def __add__(s, o): return Vector(s.x + o.x, s.y + o.y)\n"
        "    def __mul__(s, k): return Vector(s.x * k, s.y * k)\n    __rmul__ = __mul__\n"
        "    def __abs__(s): return (s.x ** 2 + s.y ** 2) ** 0.5\n"
        "    def __getitem__(s, i): return (s.x, s.y)[i]\n"
        "    def __repr__(s): return f'Vector({s.x}, {s.y})'",
        ["class Vector:\n    def __init__(s, x, y): s.x, s.y = x, y\n"
         "    def __eq__(s, o): return True"],
    ),
    "bank": (
        "Account",
        "from solution import Account, InsufficientFunds\na = Account(10)\na.deposit(5)\ntry:\n"
        "    a.withdraw(100)\nexcept InsufficientFunds as e:\n"
        "    assert e.missing == 85 and str(e) == 'missing 85' and isinstance(e, ValueError)\n"
        "else:\n    assert False\nassert a.balance == 15\na.owner = 'me'\nassert a.owner == 'me'",
        "class InsufficientFunds(ValueError):\n    def __init__(s, n):\n"
        "        super().__init__(f'missing {n}'); s.missing = n\n"
        "class Account:\n    def __init__(s, b): s.balance = b\n    def deposit(s, n): s.balance += n\n"
        "    def withdraw(s, n):\n        if n > s.balance: raise InsufficientFunds(n - s.balance)\n"
        "        s.balance -= n",
        ["class InsufficientFunds(ValueError): missing = 85\n"
         "class Account:\n    def __init__(s, b): s.balance = b\n    def deposit(s, n): s.balance += n\n"
         "    def withdraw(s, n): raise ValueError('missing 85')"],
    ),
    "context": (
        "Timer",
        "with Timer() as t:\n    t.tick()\nassert t.ticks == 1 and t.closed\ntry:\n"
        "    with Timer() as u:\n        raise KeyError('x')\nexcept KeyError:\n    pass\n"
        "assert u.closed",
        "class Timer:\n    ticks = 0\n    closed = False\n    def __enter__(s): return s\n"
        "    def tick(s): s.ticks += 1\n    def __exit__(s, *e): s.closed = e[0] in (None, KeyError)",
        ["class Timer:\n    ticks = 1\n    closed = False\n    def __enter__(s): return s\n"
         "    def tick(s): pass\n    def __exit__(s, *e): pass"],
    ),
    "container": (
        "Bag",
        "b = Bag([3, 1])\nb['k'] = 5\nassert b['k'] == 5 and 'k' in b and 'z' not in b\ndel b['k']\n"
        "assert 'k' not in b and bool(b) and [x for x in b] == [3, 1] and list(reversed(b)) == [1, 3]",
        "class Bag:\n    def __init__(s, xs): s.xs = xs; s.d = {}\n"
        "    def __setitem__(s, k, v): s.d[k] = v\n    def __getitem__(s, k): return s.d[k]\n"
        "    def __delitem__(s, k): del s.d[k]\n    def __contains__(s, k): return k in s.d\n"
        "    def __iter__(s): return iter(s.xs)\n    def __reversed__(s): return iter(s.xs[::-1])",
        ["class Bag(dict):\n    def __init__(s, xs): s.xs = xs"],
    ),
    "iterator_class": (
        "Countdown",
        "assert list(Countdown(3)) == [3, 2, 1]\nc = Countdown(2)\nassert next(c) == 2\n"
        "assert next(c) == 1 and next(c, None) is None",
        "class Countdown:\n    def __init__(s, n): s.n = n\n    def __iter__(s): return s\n"
        "    def __next__(s):\n        if not s.n: raise StopIteration\n        s.n -= 1\n"
        "        return s.n + 1",
        ["class Countdown(list):\n    def __init__(s, n): super().__init__(range(n))"],
    ),
    "enum": (
        "turn",
        "from solution import Light, turn\nassert turn(Light.RED) is Light.GREEN\n"
        "assert turn(Light.GREEN) == Light.RED and Light.RED.value == 1 and Light.RED != Light.GREEN\n"
        "assert [one.name for one in Light] == ['RED', 'GREEN']",
        "import enum\nclass Light(enum.Enum):\n    RED = 1\n    GREEN = 2\n"
        "def turn(x): return Light.GREEN if x is Light.RED else Light.RED",
        ["import enum\nclass Light(enum.Enum):\n    RED = 1\n    GREEN = 2\n"
         "def turn(x): return Light.GREEN"],
    ),
    "inheritance": (
        "Square",
        "s = Square(3)\nassert isinstance(s, Shape) and not isinstance(3, Shape)\n"
        "assert s.area() == 9 and Square.sides == 4 and Square.unit().area() == 1\n"
        "s.side = 4\nassert s.area() == 16 and hasattr(s, 'side') and not hasattr(s, 'radius')",
        "class Shape:\n    pass\nclass Square(Shape):\n    sides = 4\n"
        "    def __init__(s, a): s.side = a\n    def area(s): return s.side ** 2\n"
        "    @classmethod\n    def unit(c): return c(1)",
        ["class Shape:\n    pass\nclass Square:\n    sides = 4\n    def __init__(s, a): s.side = a\n"
         "    def area(s): return s.side ** 2\n    @classmethod\n    def unit(c): return c(1)"],
    ),
    "linked_list_of_the_program": (
        "build",
        "head = build([1, 2, 3])\nassert head.val == 1 and head.next.next.val == 3\n"
        "assert head.next.next.next is None\nout = []\nwhile head:\n    out.append(head.val)\n"
        "    head = head.next\nassert out == [1, 2, 3]",
        "class Node:\n    def __init__(s, v, n=None): s.val, s.next = v, n\n"
        "def build(xs):\n    head = None\n    for x in reversed(xs): head = Node(x, head)\n"
        "    return head",
        ["class Node:\n    def __init__(s, v, n=None): s.val, s.next = v, n\n"
         "def build(xs): return Node(xs[0], Node(xs[-1]))"],
    ),
    "linked_list_of_the_tests": (
        "Solution",
        "class ListNode:\n    def __init__(self, val=0, next=None):\n        self.val, self.next = val, next\n"
        "head = ListNode(1, ListNode(2, ListNode(3)))\nout = Solution().reverse(head)\nvals = []\n"
        "while out:\n    vals.append(out.val)\n    out = out.next\nassert vals == [3, 2, 1]\n"
        "assert head.next is None",
        "class Solution:\n    def reverse(self, head):\n        before = None\n        while head:\n"
        "            head.next, before, head = before, head, head.next\n        return before",
        ["class Solution:\n    def reverse(self, head): return head"],
    ),
    # callables
    "key_function": (
        "sort_by",
        "assert sort_by(['aa', 'b'], len) == ['b', 'aa']\n"
        "assert sort_by([3, 1, 2], key=lambda x: -x) == [3, 2, 1]",
        "def sort_by(xs, key): return sorted(xs, key=key)",
        ["def sort_by(xs, key): return sorted(xs)", "def sort_by(xs, key): return xs"],
    ),
    "callback": (
        "walk",
        "seen = []\nwalk([1, [2, 3]], seen.append)\nassert seen == [1, 2, 3]\n"
        "def stop(x):\n    raise StopIteration(x)\ntry:\n    walk([7], stop)\n    assert False\n"
        "except (RuntimeError, StopIteration):\n    pass",
        "def walk(xs, f):\n    for x in xs:\n        walk(x, f) if isinstance(x, list) else f(x)",
        ["def walk(xs, f):\n    for x in xs: f(x)"],
    ),
    "errors_of_callbacks": (
        "retry",
        "class Flaky(Exception):\n    pass\ntries = []\ndef work():\n    tries.append(1)\n"
        "    if len(tries) < 3: raise Flaky('again')\n    return 'done'\n"
        "assert retry(work, 3) == 'done'\ntries.clear()\ntry:\n    retry(work, 2)\n    assert False\n"
        "except Flaky as e:\n    assert str(e) == 'again'",
        "def retry(f, n):\n    for i in range(n):\n        try: return f()\n"
        "        except Exception:\n            if i == n - 1: raise",
        ["def retry(f, n):\n    try: return f()\n    except Exception: return 'done'"],
    ),
    "returned_function": (
        "compose",
        "inc = lambda x: x + 1\nf = compose(inc, str)\nassert f(1) == '2' and compose()(5) == 5\n"
        "assert compose(inc) is not inc and f(compose(inc)(1)) == '3'",
        "def compose(*fs):\n    def run(x):\n        for f in fs: x = f(x)\n        return x\n"
        "    return run",
        ["def compose(*fs): return lambda x: str(x + 1)"],
    ),
    "decorator": (
        "memoize",
        "calls = []\n@memoize\ndef slow(x):\n    calls.append(x)\n    return x * x\n"
        "assert slow(3) == 9 and slow(3) == 9 and calls == [3] and slow(4) == 16",
        "def memoize(f):\n    known = {}\n    def inner(x):\n        if x not in known: known[x] = f(x)\n"
        "        return known[x]\n    return inner",
        ["def memoize(f): return f", "def memoize(f): return lambda x: 9"],
    ),
    "random_and_time_free": (
        "shuffle token check",
        "a = shuffle([1, 2, 3, 4])\nassert sorted(a) == [1, 2, 3, 4]\nassert len(token()) == 8\n"
        "assert check(token(), 8)",
        "import random, secrets, uuid\ndef shuffle(xs):\n    random.shuffle(xs)\n    return xs\n"
        "def token(): return secrets.token_hex(4)\ndef check(t, n): return len(t) == n",
        ["def shuffle(xs): return [1]\ndef token(): return ''\ndef check(t, n): return False"],
    ),
    "lru": (
        "LRUCache",
        "c = LRUCache(2)\nc.put(1, 1)\nc.put(2, 2)\nassert c.get(1) == 1\nc.put(3, 3)\n"
        "assert c.get(2) == -1 and c.get(3) == 3",
        "from collections import OrderedDict\nclass LRUCache:\n    def __init__(s, n): s.n, s.d = n, "
        "OrderedDict()\n    def get(s, k):\n        if k not in s.d: return -1\n"
        "        s.d.move_to_end(k)\n        return s.d[k]\n    def put(s, k, v):\n        s.d[k] = v\n"
        "        s.d.move_to_end(k)\n        if len(s.d) > s.n: s.d.popitem(last=False)",
        ["class LRUCache(dict):\n    def __init__(s, n): pass\n"
         "    def get(s, k): return dict.get(s, k, -1)\n    def put(s, k, v): s[k] = v"],
    ),
}  # fmt: skip
WRONG = [(name, number) for name, item in ITEMS.items() for number in range(len(item[3]))]


def tried(box, needed, tests, source):
    return run_trial(
        box, Program(source=source), needed.split(), tests, Limits(cpu_s=2.0, wall_s=60.0)
    )


def test_there_are_forty_items():
    assert len(ITEMS) >= 40 and all(item[3] for item in ITEMS.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", ITEMS)
def test_a_right_program_passes(open_box, name):
    needed, tests, right, _ = ITEMS[name]
    assert tried(open_box, needed, tests, right) == Outcome("passed")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), WRONG)
def test_a_wrong_program_does_not(open_box, name, number):
    needed, tests, _, wrong = ITEMS[name]
    assert tried(open_box, needed, tests, wrong[number]).ended in ("wrong", "error")
