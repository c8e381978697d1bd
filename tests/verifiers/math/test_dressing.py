"""Colours, layout and the word for a minus sign are no part of an answer's value."""

import pytest

from veriloop.verifiers.math.dressing import undressed


@pytest.mark.parametrize(
    ("answer", "bare"),
    [
        (r"\color{red}{7}", "{7}"),
        (r"\textcolor{red}{7}", "{7}"),
        (r"{\color{blue} 7}", "{ 7}"),
        (r"\colorbox{yellow}{7}", "{7}"),
        (r"\begin{aligned} x &= 2 \\ y &= 3 \end{aligned}", "x  = 2, y  = 3"),
        (r"\begin{aligned} x &= 2+3 \\ &= 5 \end{aligned}", "x  = 2+3 = 5"),
        (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}"),
        ("negative 8", "-8"),
        ("minus $8$", "-$8$"),
        (r"\text{negative } 8", "-8"),
        ("负8", "-8"),
        ("minus seven", "minus seven"),
        ("5 minus 3", "5 minus 3"),
        ("7", "7"),
    ],
)
def test_only_the_dressing_is_removed(answer, bare):
    assert undressed(answer) == bare
