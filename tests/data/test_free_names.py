"""Names that tests read and do not bind are found in every scope, called ones first."""

import pytest

from veriloop.data.free_names import UNPARSABLE, free_names


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("assert f(g(1)) == 2", "f g"),
        ("assert A == f(g(1), A)", "f g A"),
        ("assert b == a\nassert a == b", "b a"),
        ("assert list(map(f, [1])) == [2]", "list map f"),
        ("x = f(2)\nassert x == 4", "f"),
        ("assert (lambda g: g(2))(f) == 4", "f"),
        ("assert [f for f in g(1)] == f(2)", "g f"),
        ("def check(c):\n    y = f(c)\n    assert y\ncheck(1)", "f"),
        ("def check():\n    global q\n    q = f(1)\ncheck()\nassert q", "f"),
        ("class T:\n    y = 1\n    def run(self):\n        return self.y + y", "y"),
        ("try:\n    f()\nexcept Bad as bad:\n    raise bad", "f Bad"),
        ("match f(1):\n    case [a, *b]:\n        assert a == b", "f"),
        ("import math\nfrom re import sub as s\nassert math.pi == s(f)", "f"),
        ("from solution import f as g, h\nfrom solution import *\nassert h(1) == g(2)", "f h"),
        ("assert __name__ == f.__doc__", "f"),
        ("x += f(1)\ndel y", "f"),
        ("f = 3\nassert f", ""),
        ("assert True", ""),
    ],
)
def test_names_that_are_read_and_not_bound_are_found(code, names):
    assert free_names(code) == names.split()


@pytest.mark.parametrize("code", ["assert f(", "\0", "\ud800", f"assert {'-' * 5000}1"])
def test_what_is_no_code_is_refused(code):
    with pytest.raises(UNPARSABLE):
        free_names(code)
