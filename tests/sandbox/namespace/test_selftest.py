"""Each test of a layer runs in a fork and reports its result, a refusal or a fault of the test."""

import json
import subprocess
import sys

import pytest

CODE = """
import json
from veriloop.sandbox.namespace.selftest import _test

def step():
    {body}

print(json.dumps(_test(step)), flush=True)
"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return 'ABI 4'", ["", "ABI 4"]),
        ("return None", ["", ""]),
        ("raise PermissionError(1, 'not permitted')", ["[Errno 1] not permitted", ""]),
        ("raise KeyError('x')", ["KeyError: 'x'", ""]),
        ("raise SystemExit(3)", ["the test did not return", ""]),
        ("raise KeyboardInterrupt", ["the test did not return", ""]),
        ("import os; os.abort()", ["the attempt died", ""]),
    ],
)
def test_a_layer_is_tested_in_a_fork_that_never_returns(body, expected):
    ran = subprocess.run(
        [sys.executable, "-c", CODE.format(body=body)], capture_output=True, text=True, check=True
    )
    assert [json.loads(line) for line in ran.stdout.splitlines()] == [expected]
