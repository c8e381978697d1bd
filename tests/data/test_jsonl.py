"""Lines end at line feeds alone, in every file that the project reads by lines."""

import ast
import codecs
import json
from pathlib import Path

import pytest

from veriloop.data.jsonl import numbered_lines, read_rows

ROOT = Path(__file__).parents[2]
FOLDERS = [
    "benchmarks",
    "data",
    "examples",
    "pipeline",
    "sandbox",
    "scripts",
    "stages",
    "verifiers",
]
SEPARATORS = "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e\r"
SYSTEM = "a file of the kernel, whose lines are ASCII"
FAILURE = "the message of a failed program, shown to people"
PRINTED = "a line that this project printed"
DOCSTRING = "a docstring of this project"
SPLITLINES = {  # file: why Python's own notion of a line is meant there
    "benchmarks/faults/files.py": FAILURE,
    "benchmarks/faults/inputs.py": FAILURE,
    "benchmarks/footprint.py": SYSTEM,
    "benchmarks/gpu.py": PRINTED,
    "benchmarks/grpo_turns.py": SYSTEM,
    "benchmarks/memory.py": PRINTED,
    "benchmarks/mutants.py": "the source of this project",
    "benchmarks/mutation.py": "the source of this project",
    "benchmarks/report.py": PRINTED,
    "benchmarks/sandbox_suite.py": FAILURE,
    "benchmarks/suite_child.py": FAILURE,
    "examples/trl_grpo.py": DOCSTRING,
    "pipeline/doctor/finding.py": FAILURE,
    "pipeline/doctor/hardware.py": SYSTEM,
    "pipeline/doctor/isolation.py": FAILURE,
    "pipeline/doctor/packages.py": "requirements files of this project and the output of pip",
    "pipeline/report/model_card.py": DOCSTRING,
    "pipeline/runs/provenance.py": SYSTEM,
    "pipeline/training/measurements.py": SYSTEM,
    "sandbox/docker/stream.py": FAILURE,
    "sandbox/host.py": SYSTEM,
    "sandbox/interpreter.py": FAILURE,
    "sandbox/namespace/binds.py": SYSTEM,
    "sandbox/namespace/cgroup.py": SYSTEM,
    "sandbox/namespace/classify.py": FAILURE,
    "sandbox/namespace/deadline.py": SYSTEM,
    "sandbox/namespace/requests.py": SYSTEM,
    "sandbox/namespace/slot.py": FAILURE,
    "sandbox/process_leaks.py": SYSTEM,
    "sandbox/remote/outcomes.py": FAILURE,
    "sandbox/suite.py": FAILURE,
    "scripts/core_alone.py": FAILURE,
    "scripts/filler_names.py": DOCSTRING,
    "scripts/local_image.py": DOCSTRING,
    "scripts/resolve_beside_peers.py": DOCSTRING,
    "scripts/turn_files.py": "the source of this project",
    "stages/commands/serving.py": "tokens that a person typed into a file",
    "stages/summary.py": "a table drawn by rich",
    "verifiers/math/decide.py": "an answer: every separator of lines in Unicode counts as one",
    "verifiers/reasoning_gym.py": "an answer: every separator of lines in Unicode counts as one",
}


def users_of_splitlines():
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if any(isinstance(n, ast.Attribute) and n.attr == "splitlines" for n in nodes):
                yield path.relative_to(ROOT).as_posix()


@pytest.mark.slow
def test_lines_are_split_by_splitlines_only_where_a_reason_is_given():
    assert set(users_of_splitlines()) == set(SPLITLINES), "read JSONL with veriloop.data.jsonl"


def test_a_row_may_hold_every_other_separator_of_lines(tmp_path):
    rows = [{"text": f"one{mark}two"} for mark in SEPARATORS]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    assert list(read_rows(path)) == rows
    assert [number for number, _ in numbered_lines(path)] == list(range(1, len(rows) + 1))


@pytest.mark.parametrize("text", ['{"a": 1}\n{"a": 2}', '{"a": 1}\r\n{"a": 2}\r\n'])
def test_the_last_line_feed_may_be_missing_and_windows_may_have_written_it(tmp_path, text):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(text.encode())
    assert list(read_rows(path)) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        (b'{"a": "\xff"}', "line 2: not UTF-8: "),
        (b'{"a": ', "line 2: not JSON: "),
        (b"", "line 2: not JSON: a blank line"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(tmp_path, line, mistake):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1}\n' + line + b'\n{"a": 3}\n')
    with pytest.raises(ValueError, match=f"{path}.*{mistake}"):
        list(read_rows(path))


def test_a_byte_order_mark_and_blank_lines_at_the_end_are_no_rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(codecs.BOM_UTF8 + b'{"a": 1}\n{"a": 2}\n\n \n')
    assert list(read_rows(path)) == [{"a": 1}, {"a": 2}]


def test_an_integer_of_too_many_digits_is_named_as_such(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": ' + "1" * 5000 + "}\n")
    with pytest.raises(ValueError, match="line 1: Exceeds the limit"):
        list(read_rows(path))
