"""Which names of an assert statement the program must define, and which are never the program's."""

import pytest

PROGRAM = """from collections import Counter
import hashlib

class Node:
    def __init__(self, value):
        self.value = value

def encoded(text):
    return text[::-1]

def decoded(text):
    return text[::-1]

def doubled(number):
    return number * 2

def value_of(node):
    return node.value

SEVEN = 7
"""


def results(ask, service, program, *tests):
    body = {"program": program, "tests": list(tests), "max_execution_time": 5.0}
    answer = ask(service.url, "/test_program", body)
    assert answer.status == 200, answer.body
    return answer.json["results"]


def test_a_test_may_use_several_names_of_the_program_and_those_of_libraries(ask, service):
    right = (
        "assert decoded(encoded('ab')) == 'ab'",
        "assert doubled(1) == 2 and encoded('ab') == 'ba'",
        "assert list(map(doubled, [1, 2])) == [2, 4]",
        "assert (lambda g: g(2))(doubled) == 4",
        "assert value_of(Node(3)) == 3",
        "assert doubled(3.5) == SEVEN",
        "assert SEVEN == 7",
        "assert Counter(encoded('aab')) == Counter('aab')",
        "import math\nassert math.isclose(doubled(1.0), 2.0)",
        "assert math.isclose(doubled(1.0), 2.0)",
        "assert hashlib.md5(encoded('a').encode()).hexdigest()[0] == '0'",
        "def holds():\n    assert doubled('a') == 'aa'\nholds()",
        "from solution import doubled as f\nassert f(1) == 2",
    )
    assert results(ask, service, PROGRAM, *right) == [1] * len(right)
    wrong = ("assert decoded(encoded('ab')) == 'ba'", "assert list(map(doubled, [1])) == [1]")
    assert results(ask, service, PROGRAM, *wrong, "assert halved(2) == 1") == [0, 0, 0]


def test_a_name_of_a_library_is_the_program_s_in_a_test_without_others(ask, service):
    program = "def gcd(a, b):\n    return 5\ndef sum(a, b):\n    return 6\n"
    tests = ("assert gcd(4, 6) == 5", "assert sum(10, 15) == 6", "assert len(str(gcd(4, 6))) == 1")
    assert results(ask, service, program, *tests) == [1, 1, 1]


def test_a_program_cannot_replace_what_tests_compare_with(ask, service):
    program = (
        "def abs(x): return 0\ndef isclose(a, b): return True\ndef doubled(x): return x"
        "\nclass Counter:\n    def __eq__(self, other): return True\n"
    )
    tests = (
        "assert abs(doubled(1.0) - 2.0) < 1e-6",
        "assert isclose(doubled(1.0), 2.0)",
        "assert Counter([doubled(1)]) == Counter([2])",
    )
    assert results(ask, service, program, *tests) == [0, 0, 0]


@pytest.mark.parametrize(
    ("test", "told"),
    [
        ("assert True", "test 1: a test must use a name that the program defines, got []"),
        ("assert len([1]) == sum([1])", "defines, got ['len', 'sum']"),
        ("assert f(", "test 1: a test is not valid Python: "),
    ],
)
def test_a_test_that_uses_nothing_of_the_program_is_refused_by_its_number(ask, service, test, told):
    body = {"program": PROGRAM, "tests": ["assert doubled(1) == 2", test]}
    answer = ask(service.url, "/test_program", body)
    assert answer.status == 422 and told in answer.json["detail"]
