"""A verifier that does what the response tells it to; loaded as a plugin by the pool's tests."""

import itertools
import os
import sys
import time

from veriloop.sandbox.backends import resolve
from veriloop.verifiers.registry import verifier
from veriloop.verifiers.verdict import Verdict


def _scored(score, **more):
    return Verdict(score=score, components={"half": score / 2}, **more)


def _torch_loaded():
    return _scored(float("torch" in sys.modules), answer=str(os.getpid()))


def _sleep_a_little():
    time.sleep(0.2)
    return _scored(1.0)


def _work():
    time.sleep(0.9)
    return _scored(1.0)


ACTIONS = {
    "backend": lambda: _scored(1.0, answer=resolve()),
    "behave": lambda: _scored(1.0),
    "hang": lambda: time.sleep(600),
    "hang holding the interpreter": lambda: sum(itertools.repeat(0)),
    "exit 7": lambda: os._exit(7),
    "exit 0": lambda: os._exit(0),
    "sys.exit": lambda: sys.exit("bye"),
    "raise": lambda: 1 // 0,
    "bomb": lambda: bytearray(8 << 30),
    "none": lambda: None,
    "nan component": lambda: Verdict(score=1.0, components={"half": float("nan")}),
    "score two": lambda: Verdict(score=2.0),
    "odd answer": lambda: Verdict(score=1.0, answer=object()),
    "torch?": _torch_loaded,
    "sleep": _sleep_a_little,
    "work": _work,
}


@verifier(
    "misbehaves",
    reference={},
    accepts="behave",
    rejects=("something else",),
    seconds=lambda problem: problem.reference.get("states", 0.0),
    components=("half",),
)
def check(problem, response):
    return ACTIONS.get(response, lambda: _scored(0.0))()
