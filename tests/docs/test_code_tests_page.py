"""The examples of the page on code tests are references, whose right program passes."""

import json
import re
from dataclasses import fields

import pytest
import yaml

from tests.docs.reader import blocks, section
from veriloop.data.problem import Problem
from veriloop.pipeline.config.datasets import SetConfig
from veriloop.pipeline.rollouts.sources import sources_of
from veriloop.sandbox.executor import Stdin
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.probe import probe
from veriloop.verifiers.code.reference import CodeReference, DataTest
from veriloop.verifiers.registry import get

PAGE = section("docs/code_tests.md")
*REFERENCES, ROW = map(json.loads, blocks(PAGE, "json"))
TEST = DataTest(invocation=Stdin(data=b""), checker_input="", expected="")
CALLED = "def add(a, b):\n    return a + b"
READS = "a, b = map(int, input().split())\nprint(a + b)"


@pytest.mark.parametrize("reference", REFERENCES)
def test_each_kind_of_tests_is_passed_by_a_right_program(reference):
    if not probe().tier:
        pytest.skip("no sandbox here")
    program = CALLED if "function" in reference else READS
    problem = Problem(id="a/b/0", prompt="Add.", verifier="code_tests", reference=reference)
    verdict = get("code_tests").check(problem, f"<answer>```python\n{program}\n```</answer>")
    assert (verdict.score, verdict.status) == (1.0, "graded")


def test_the_row_of_a_file_is_a_problem_by_the_mapping_of_the_recipe(tmp_path):
    (block,) = blocks(PAGE, "yaml")
    path = tmp_path / "programs.jsonl"
    path.write_text(json.dumps(ROW) + "\n")
    config = yaml.safe_load(block)["sets"]["mine"] | {"path": str(path), "held_out": 0.0}
    sources, _ = sources_of(["mine"], {"mine": SetConfig.model_validate(config)})
    problem = sources["mine"].problem("rl", 0, 0)
    assert problem.prompt == ROW["task"] and problem.verifier == "code_tests"
    reference = CodeReference.read(problem.reference)
    assert (reference.function, reference.limits) == ("add", Limits(cpu_s=2.0, memory_mb=256))


def test_the_table_has_every_key_and_default_of_a_reference():
    table = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", PAGE, re.MULTILINE))
    assert list(table) == ["tests", *(f.name for f in fields(CodeReference) if f.name != "tests")]
    assert table["language"] == f"`{CodeReference(tests=[TEST]).language}`"
