"""The lists on the page of the command line are those of the code."""

import re
from pathlib import Path

from veriloop.pipeline.config.fields import EXECUTION_SETTINGS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/cli.md").read_text()
PACKAGE = ("data", "sandbox", "verifiers", "pipeline", "stages")
VARIABLE = re.compile(r"\bVERILOOP_[A-Z_]*[A-Z]\b")


def names(text):
    return re.findall(r"`([^`\s]+)`", text)


def variables_in_the_code():
    files = [path for folder in PACKAGE for path in (ROOT / folder).rglob("*.py")]
    return {name for path in files for name in VARIABLE.findall(path.read_text())}


def test_the_settings_of_execution_are_those_that_may_differ_when_a_run_is_resumed():
    (listed,) = re.findall(
        r"<!-- settings of execution: [^\n]* -->\n(.*?)<!-- end of settings -->", TEXT, re.DOTALL
    )
    assert names(listed) == list(EXECUTION_SETTINGS)


def test_every_environment_variable_of_the_package_is_in_the_table_once():
    (_, section) = TEXT.split("\n## Environment variables\n")
    rows = re.findall(r"^\| (`VERILOOP_[^|]*) \|", section.split("\n## ")[0], re.MULTILINE)
    listed = [name for row in rows for name in names(row)]
    assert sorted(listed) == sorted(variables_in_the_code())
