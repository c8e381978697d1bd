"""A program that begins as the prompts of the code sets say can use what the starter code uses."""

import pytest

from veriloop.data.hub.sets import SETS
from veriloop.verifiers.code.reference import CodeReference
from veriloop.verifiers.code.tests import judge_program

STARTER = "class Solution:\n    def total(self, xs: List[int]) -> Optional[int]:\n        "


@pytest.mark.parametrize("name", ["apps", "taco", "livecodebench"])
def test_the_starter_code_of_a_prompt_runs(open_box, name):
    (paragraph,) = (part for part in SETS[name].ask if "{starter_code}" in part)
    block = paragraph.replace("{starter_code}", STARTER).split("```python\n")[1]
    source = block.removesuffix("\n```") + "return sum(xs)\n"
    tests = [{"args": [[1, 2]], "expected": 3}]
    reference = CodeReference.read({"function": "total", "tests": tests})
    assert judge_program(open_box, source, reference).score == 1.0
