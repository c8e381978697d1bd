"""The page on reports has every health check with the rule that decides it."""

import re

from tests.docs.reader import section
from veriloop.pipeline.report.checks import QUESTIONS


def test_every_health_check_is_in_the_table_with_its_rule():
    page = section("docs/report.md", "Health")
    rows = re.findall(r"^\| ([^|]+\?) \| ([^|]+) \| [^|]+ \|$", page, re.MULTILINE)
    assert rows == [(question.asks, question.rule) for question in QUESTIONS]
