"""A number of things is told in words that fit it."""

import pytest

from veriloop.data.counts import counted


@pytest.mark.parametrize(
    ("number", "told"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (1024, "1,024 rows")]
)
def test_one_thing_is_singular_and_any_other_number_plural(number, told):
    assert counted(number, "row") == told
