"""Which text of a response is the program."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifiers.code_answer import program

FENCE = "```"


def fenced(body, tag="python", fence=FENCE):
    return f"{fence}{tag}\n{body}\n{fence}"


@pytest.mark.parametrize(
    "response",
    [
        "<answer>x = 1</answer>",
        "<answer>\nx = 1\n</answer>",
        f"<answer>\n{fenced('x = 1')}\n</answer>",
        f"<answer>{fenced('x = 1', 'py')}</answer>",
        f"<answer>Here it is:\n{fenced('x = 1', '')}\nDone.</answer>",
        f"<think>Try.\n{fenced('x = 2')}\n</think>\n{fenced('x = 1')}",
        "<think><answer>x = 2</answer></think><answer>x = 1</answer>",
        f"{fenced('x = 2')}\nBetter:\n{fenced('x = 1')}\nThat is all.",
        f"{fenced('x = 1', 'Python')}\nIt prints:\n{fenced('2', 'text')}",
        f"{fenced('x = 1', 'python3')}\nIt prints:\n{fenced('2', '')}",
        fenced("x = 1", ""),
        fenced("x = 1", "{.python}"),
        fenced("x = 1", ' python title="a.py"'),
        fenced("x = 1", fence="~~~"),
        fenced("x = 1", fence="`````"),
        f"   {FENCE}python\n   x = 1\n   {FENCE}",
        f"{FENCE}python\r\nx = 1\r\n{FENCE}\r\n",
        f"{FENCE}python\n\n  \nx = 1\n\n\n{FENCE}   ",
        f"a <think> b </think> c </think> {chr(10)}{fenced('x = 1')}",
    ],
)  # fmt: skip
def test_the_program_is_found(response):
    assert program(response) == "x = 1\n"


@pytest.mark.parametrize(
    "response",
    [
        "",
        "x = 1",
        "`x = 1`",
        "<answer></answer>",
        "<answer> \n </answer>",
        "<answer>x = 1",
        "x = 1</answer>",
        "</answer>x = 1<answer>",
        "<answer>x = 1</answer><answer>x = 2</answer>",
        "<answer>x = 1</answer><answer>x = 1</answer>",
        "<answer><answer>x = 1</answer></answer>",
        f"<answer></answer>{fenced('x = 1')}",
        f"<answer>\n{FENCE}python\nx = 1\n</answer>",
        f"<think>{fenced('x = 1')}",
        f"{fenced('x = 1')}<think>",
        f"<think>a</think>{fenced('x = 1')}<think>b",
        f"{FENCE}python\nx = 1",
        f"{fenced('x = 1')}\nAnd now:\n{FENCE}python\nx = 2",
        f"{FENCE}python\nx = 1\n~~~",
        f"````python\nx = 1\n{FENCE}",
        fenced("", "python"),
        fenced("  \n\t\n", "python"),
        f"code: {fenced('x = 1')[:-3]}",
        f"    {FENCE}python\n    x = 1\n    {FENCE}",
    ],
)
def test_there_is_no_program(response):
    assert program(response) is None


def test_a_prompt_that_opens_the_thinking_needs_its_end():
    inside, after = fenced("x = 2"), f"Hm.</think>{chr(10)}{fenced('x = 1')}"
    assert program(inside, prefilled_think=True) is None and program(inside) == "x = 2\n"
    assert program(after, prefilled_think=True) == "x = 1\n"


def test_indentation_and_inner_blank_lines_are_the_programs_own():
    body = "def f(x):\n\n    if x:\n\treturn `1`\n\n    return 2"
    assert program(fenced(body)) == body + "\n"
    assert program(f"<answer>\n\n{body}\n\n</answer>") == body + "\n"


def test_a_language_chooses_its_own_fence():
    response = f"{fenced('int x;', 'c++')}\n{fenced('x = 1', 'py')}\n{fenced('{}', 'json')}"
    assert program(response, language="cpp") == "int x;\n"
    assert program(response) == "x = 1\n"
    assert program(response, language="json") == "{}\n"
    assert program(response, language="rust") == "{}\n"


@pytest.mark.parametrize(
    ("tag", "language"),
    [
        ("cpp", "cpp"), ("C++", "cpp"), ("cc", "cpp"), ("c", "c"), ("js", "javascript"),
        ("node", "javascript"), ("javascript", "javascript"), ("sh", "bash"), ("shell", "bash"),
        ("bash", "bash"), ("sql", "sql"), ("sqlite", "sql"),
    ],
)  # fmt: skip
def test_a_fence_may_call_a_language_by_any_of_its_names(tag, language):
    response = f"{fenced('right', tag)}\n{fenced('x = 1', 'python')}\n{fenced('out', 'text')}"
    assert program(response, language=language) == "right\n"
    assert program(response, language=tag.lower()) == "right\n"


def test_a_longer_fence_may_hold_a_shorter_one():
    body = f"text = '''\n{FENCE}\n'''"
    assert program(fenced(body, fence="````")) == body + "\n"


@given(st.text(alphabet="`~ax=1 \n<>/", max_size=60) | st.text(max_size=30))
def test_no_text_breaks_it(text):
    for response in (text, f"<answer>{text}</answer>", f"<think>{text}</think>{text}"):
        found = program(response)
        assert found is None or (found.endswith("\n") and found.strip())


@given(st.text(alphabet="abc =\n\t(:1", min_size=1).filter(str.strip))
def test_a_fenced_text_comes_back_whole(text):
    assert program(fenced(text)) == "\n".join(_without_blank_ends(text.split("\n"))) + "\n"


def _without_blank_ends(lines):
    while lines and not lines[0].strip():
        lines = lines[1:]
    return "\n".join(lines).rstrip().split("\n")


@pytest.mark.parametrize(
    "piece", ["```", "```python\n", "<answer>", "\n", "`", "~~~\n```\n", " \n", "x\n"]
)
def test_time_grows_with_length_alone(piece):
    began = time.process_time()
    program(piece * 20_000)
    program(f"<answer>{piece * 20_000}x</answer>")
    assert time.process_time() - began < 1.5
