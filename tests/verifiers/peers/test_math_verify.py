"""math-verify as a plugin, loaded as its page says."""

import pytest

from veriloop.data.problem import Problem
from veriloop.verifiers.pool import VerifierPool

PLUGIN = "veriloop.verifiers.peers.math_verify"
pytestmark = pytest.mark.slow


def test_it_judges_in_the_pool_and_a_bad_reference_is_an_error():
    def problem(gold):
        return Problem(id="p", prompt="", verifier="math_verify", reference={"answer": gold})

    cases = [
        (r"\frac{1}{2}", r"so \boxed{0.5}", (1.0, "graded")),
        (r"\frac{1}{2}", r"so \boxed{2}", (0.0, "graded")),
        (r"\frac{1}{2}", "I do not know", (0.0, "no_answer")),
        ("", r"so \boxed{2}", (None, "error")),
    ]
    with VerifierPool(limit_s=60.0, plugins=[PLUGIN]) as pool:
        verdicts = pool.judge_all([(problem(gold), response) for gold, response, _ in cases])
    assert [(v.score, v.status) for v in verdicts] == [expected for *_, expected in cases]
