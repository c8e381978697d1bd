"""Which text of a response is the program."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cpu_budget import cpu_budget
from veriloop.verifiers.code.answer import extract_program

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
    assert extract_program(response) == "x = 1\n"


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
        f"{FENCE}python\nx = 1\n~~~",
        f"````python\nx = 1\n{FENCE}",
        fenced("", "python"),
        fenced("  \n\t\n", "python"),
        f"code: {fenced('x = 1')[:-3]}",
        f"    {FENCE}python\n    x = 1\n    {FENCE}",
    ],
)
def test_there_is_no_program(response):
    assert extract_program(response) is None


def test_a_prompt_that_opens_the_thinking_needs_its_end():
    inside, after = fenced("x = 2"), f"Hm.</think>{chr(10)}{fenced('x = 1')}"
    assert (
        extract_program(inside, prefilled_think=True) is None
        and extract_program(inside) == "x = 2\n"
    )
    assert extract_program(after, prefilled_think=True) == "x = 1\n"


def test_indentation_and_inner_blank_lines_are_the_programs_own():
    body = "def f(x):\n\n    if x:\n\treturn `1`\n\n    return 2"
    assert extract_program(fenced(body)) == body + "\n"
    assert extract_program(f"<answer>\n\n{body}\n\n</answer>") == body + "\n"


def test_a_language_chooses_its_own_fence():
    response = f"{fenced('int x;', 'c++')}\n{fenced('x = 1', 'py')}\n{fenced('{}', 'json')}"
    assert extract_program(response, language="cpp") == "int x;\n"
    assert extract_program(response) == "x = 1\n"
    assert extract_program(response, language="json") == "{}\n"
    assert extract_program(response, language="rust") == "{}\n"


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
    assert extract_program(response, language=language) == "right\n"
    assert extract_program(response, language=tag.lower()) == "right\n"


def test_a_longer_fence_may_hold_a_shorter_one():
    body = f"text = '''\n{FENCE}\n'''"
    assert extract_program(fenced(body, fence="````")) == body + "\n"


@given(st.text(alphabet="`~ax=1 \n<>/", max_size=60) | st.text(max_size=30))
def test_no_text_breaks_it(text):
    for response in (text, f"<answer>{text}</answer>", f"<think>{text}</think>{text}"):
        source = extract_program(response)
        assert source is None or (source.endswith("\n") and source.strip())


@given(st.text(alphabet="abc =\n\t(:1", min_size=1).filter(str.strip))
def test_a_fenced_text_comes_back_whole(text):
    assert extract_program(fenced(text)) == "\n".join(_without_blank_ends(text.split("\n"))) + "\n"


def _without_blank_ends(lines):
    while lines and not lines[0].strip():
        lines = lines[1:]
    return "\n".join(lines).rstrip().split("\n")


PROGRAM = "def f(x):\n    return x + 1"
BRUTE = "def brute(x):\n    return x"
LIST = "1. Do:\n\n   ```python\n   def f(x):\n       return x + 1\n   ```\n2. Run it."
QUOTATION = "> ```python\n> def f(x):\n>     return x + 1\n> ```"


@pytest.mark.parametrize(
    "response",
    [
        f"{fenced(PROGRAM)}\nAnd now:\n{FENCE}python\nprint(",  # the last fence is unclosed
        f"{fenced(PROGRAM)}\n{FENCE}\n",
        f"{fenced(BRUTE)}\nFaster:\n{fenced(PROGRAM)}\nUse:\n{FENCE}python\nf(",
        LIST,
        LIST.replace("\n   ", "\n    "),
        f"1. {FENCE}python\n   def f(x):\n       return x + 1\n   {FENCE}",
        f"1. {FENCE}python\n{PROGRAM}\n{FENCE}",  # the code is not indented like its fence
        f"- a\n  - {FENCE}python\n    def f(x):\n        return x + 1\n    {FENCE}\n",
        QUOTATION,
        f"text\n{QUOTATION}\ntext",
        f"<think>a</think>{fenced(PROGRAM)}",
        f"<think>a</think> <answer>{fenced(PROGRAM)}</answer>",
        f"Let me try.\n{FENCE}python\ndef f(x):\n</think>\n{fenced(PROGRAM)}",  # left open
        f"<think>Mind the </think> tag.\n</think>\n{fenced(PROGRAM)}",
        f"<think>a</think> It has no `<think>` tag.\n{fenced(PROGRAM)}",
        f"The `<answer>` is:\n{fenced(PROGRAM)}",
        fenced(PROGRAM, "python3.11"),
        fenced(PROGRAM, "{.python .numberLines}"),
        fenced(PROGRAM, "python:solution.py"),
    ],
)
def test_the_program_of_a_careful_reader_is_found(response):
    assert extract_program(response) == PROGRAM + "\n"


@pytest.mark.parametrize(
    "response",
    [
        "**Solution**```python\nx = 1\n```",
        "Here it is:```py\nx = 1\n```\nDone.",
        "[PYTHON]\nx = 1\n[/PYTHON]",
        "Code: [PYTHON]\nx = 1\n[/PYTHON] ends.",
        "```\n```python\nx = 1\n```\n```",
        "```python\nx = 1\n```\nTest it:\n```python\nprint(f(3))\n```",
        "```python\nx = 1\n```\nUse it:\n```\nassert solve([1]) == 2\n```",
    ],
)
def test_unusual_fences_hold_the_program(response):
    assert extract_program(response) == "x = 1\n"


@pytest.mark.parametrize(
    ("response", "program"),
    [
        # the helper is given by the prompt, and the program defines something
        ("```python\nx = 1\n```\n```python\ndef g(n):\n    return f(n)\n```",
         "def g(n):\n    return f(n)\n"),
        # a script that reads and prints is a program
        ("```python\nx = 1\n```\n```python\nprint(int(input()) * 2)\n```",
         "print(int(input()) * 2)\n"),
        ("```python\nx = 1\n```\n```python\nfrom math import *\nprint(sqrt(4))\n```",
         "from math import *\nprint(sqrt(4))\n"),
        # text in brackets inside a block is the program's
        ("```python\ns = '[PYTHON]'\nprint(s)\n```", "s = '[PYTHON]'\nprint(s)\n"),
    ],
)  # fmt: skip
def test_a_later_block_that_works_is_the_program(response, program):
    assert extract_program(response) == program


@pytest.mark.parametrize(
    "shown",
    [
        fenced("print(f(3))"),
        fenced("for x in range(3):\n    print(f(x))"),
        fenced("assert f(3) == 4\nassert f(0) == 1", "py"),
        fenced("def test_f():\n    assert f(3) == 4\n\ntest_f()"),
        fenced("import sys\nprint(f'{f(int(sys.argv[1]))}')"),
        fenced(">>> f(3)\n4"),
        fenced("[1, 2, 3]"),
        fenced("4"),
        fenced("    return x + 1  # this line"),
        fenced("print(f(3))") + "\nIt prints\n" + fenced("4", ""),
        fenced("nums = [2, 7]\ntarget = 9"),
        fenced("python solution.py < input", "bash"),
        fenced("f(3) -> 4", "text"),
        fenced("3\n1 2 3", ""),
        fenced("const f = (x) => x + 2;", "javascript"),
    ],
)
@pytest.mark.parametrize("tag", ["python", ""])
def test_what_shows_the_use_of_a_program_does_not_replace_it(shown, tag):
    response = f"{fenced(PROGRAM, tag)}\nExample:\n{shown}\n"
    assert extract_program(response, function="f") == PROGRAM + "\n"
    assert extract_program(response) == PROGRAM + "\n"


@pytest.mark.parametrize(
    "quoted",
    [
        "n = int(input())",
        "print(f(n))",
        "def f(x):\n    return x + 1",
        "for _ in range(2):\n    n += 1",
    ],
)
def test_lines_quoted_from_a_program_do_not_replace_it(quoted):
    lines = ["def f(x):", "    return x + 1", "", "n = int(input())", "for _ in range(2):",
             "    n += 1", "print(f(n))"]  # fmt: skip
    program = "\n".join(lines)
    response = f"{fenced(program)}\nThe key line is\n{fenced(quoted)}\n"
    assert extract_program(response) == program + "\n"


@pytest.mark.parametrize(
    "final",
    [
        "n = int(input())\nprint(n + 1)",
        "import sys\nprint(len(sys.stdin.read()))",
        "n, m = map(int, input().split())\nprint(n + m)",
        "import sys\nw = sys.stdout.write\nw(input())",
        "from pprint import pprint\npprint(input())",
    ],
)
def test_a_program_that_an_earlier_one_contains_replaces_it(final):
    """As after a line for tracing was taken out."""
    draft = f"{final}\nprint('done')"
    assert extract_program(f"{fenced(draft)}\nBetter:\n{fenced(final)}") == final + "\n"


@pytest.mark.parametrize(
    "final",
    [
        "def add(a: int, b: int) -> int:\n    c, d = a, b\n    return c + d",
        "class Solution:\n    def add(self, a: int, b: int) -> int:\n        return a + b",
    ],
)
def test_a_function_that_an_earlier_block_contains_replaces_it(final):
    draft = f"{final}\n\nassert add(1, 1) == 3"
    assert (
        extract_program(f"{fenced(draft)}\nBetter:\n{fenced(final)}", function="add")
        == final + "\n"
    )


@pytest.mark.parametrize(
    "final",
    [
        "def f(x):\n    return x + 2",
        "print(int(input()) + 1)",
        "import sys\ndef brute(x):\n    return x\nprint(brute(int(input())))",
        "# faster than brute(x)\nx = int(input())\nprint(x + 1)",
        "print('brute(x)', int(input()))",
        "brute = int(input())\nprint(brute + 1)",
        "xs = [int(input())]\nprint(xs.brute(1))",
        "def f(x)\n    return x + 1",  # does not compile, and is what the response commits to
        "class Solution:\n    def f(self, x):\n        return x",
    ],
)
def test_a_later_program_replaces_the_draft_before_it(final):
    assert extract_program(f"{fenced(BRUTE)}\nBetter:\n{fenced(final)}") == final + "\n"


def test_the_function_under_test_tells_the_program_from_what_follows_it():
    other = "def plot(xs):\n    print(max(xs))\n\nplot([1, 2])"
    response = f"{fenced(PROGRAM)}\nTo plot it:\n{fenced(other)}"
    assert extract_program(response) == other + "\n"
    assert extract_program(response, function="missing") == other + "\n"
    method = "class Solution:\n    def f(self, x):\n        return x + 1"
    for program in (PROGRAM, method, "f = lambda x: x + 1", "async def f(x): pass"):
        response = f"{fenced(program)}\nTo plot it:\n{fenced(other)}"
        assert extract_program(response, function="f") == program + "\n"


def test_other_languages_have_a_main_or_the_function_under_test():
    program, snippet = "int main() { return 0; }", "std::sort(v.begin(), v.end());"
    response = f"{fenced(program, 'cpp')}\nThe main step:\n{fenced(snippet, 'cpp')}"
    assert extract_program(response, language="cpp") == program + "\n"
    program, use = "const f = (x) => x + 1;", "console.log(f(3));"
    response = f"{fenced(program, 'js')}\n{fenced(use, 'js')}"
    assert extract_program(response, language="javascript", function="f") == program + "\n"
    assert extract_program(response, language="javascript") == use + "\n"


@pytest.mark.parametrize("quotes", ["'''", '"""'])
@pytest.mark.parametrize("indentation", ["", "  ", "    "])
@pytest.mark.parametrize("tag", ["", "python"])
def test_a_fence_in_a_docstring_belongs_to_the_program(quotes, indentation, tag):
    example = f"{indentation}{FENCE}{tag}\n{indentation}f(1)\n{indentation}{FENCE}"
    body = f"def f(x):\n    {quotes}Add.\n\n{example}\n    {quotes}\n    return x + 1"
    assert extract_program(fenced(body)) == body + "\n"
    assert extract_program(f"{fenced(body)}\nUse:\n{fenced('print(f(1))')}") == body + "\n"


@pytest.mark.parametrize(
    "line", ['x = \'"""\'', "# isn't '''", "x = '\\'' + '\"\"\"'", "x = '''a'''", "it's"]
)
def test_quotes_that_open_no_string_do_not_hide_the_end_of_a_block(line):
    assert extract_program(f"{fenced(line)}\n{fenced('y = 1')}") == "y = 1\n"


def test_a_string_without_end_does_not_hide_the_end_of_its_block():
    broken = "def f(x):\n    '''Add.\n    return x + 1"
    assert extract_program(fenced(broken)) == broken + "\n"
    assert extract_program(f"{fenced(broken)}\nFixed:\n{fenced(PROGRAM)}") == PROGRAM + "\n"


@pytest.mark.parametrize(
    "body",
    [
        "TAG = '<answer>'",
        "x = '<answer>' + '</answer>'",
        "def strip(s):\n    return s.split('</think>')[-1]",
        "def f(s):\n    return s.replace('<think>', '')",
        'TEXT = """\n<think>\na\n</think>\n<answer>\n"""',
    ],
)
def test_tags_in_a_program_are_its_own(body):
    for before in ("", "<think>a</think>", f"<think>\n{fenced('x = 2')}\n</think>\n"):
        assert extract_program(before + fenced(body)) == body + "\n"
        assert extract_program(f"{before}<answer>\n{fenced(body)}\n</answer>") == body + "\n"
    assert extract_program(f"a</think>{fenced(body)}", prefilled_think=True) == body + "\n"


@pytest.mark.parametrize(
    "response",
    [
        f"<think>\n{fenced(PROGRAM)}\nso it is",  # nothing after the thinking
        f"<think>\n{fenced(PROGRAM)}\n</think>\nSee above.",
        f"{fenced(PROGRAM)}\n<think>\nHm",
        f"<think>a</think>\n<answer>{fenced(PROGRAM)}",  # an answer that never ends
        f"<answer>{fenced(PROGRAM)}</answer>\n<answer>{fenced(BRUTE)}</answer>",
        f"\u200b{fenced(PROGRAM)[:-3]}\u200b{FENCE}",
        f"{FENCE}python {PROGRAM}{FENCE}",
        f"text\n\n    {FENCE}python\n    x = 1\n    {FENCE}",  # indented text, in no list
    ],
)
def test_what_a_careful_reader_would_not_take_is_no_program(response):
    assert extract_program(response) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece",
    [
        "```", "```python\n", "<answer>", "\n", "`", "~~~\n```\n", " \n", "x\n", "</think>\n",
        "<think>", "```\n</think>\n", "- ", "> ", "1. ```\n", "```python\n'''\n```\n", '"""',
        "```\ndef f():\n f(1)\n```\n", '```python\n\\"""\n```\n', "f'", "```   ", "def ",
        "```python\nf(f(f(\n```\n<think></think>\n", "f (", "a=", "'''\n", "\\\n", ' \\"""',
    ],
)  # fmt: skip
def test_time_grows_with_length_alone(piece):
    with cpu_budget(1.5):
        extract_program(piece * 5_000)
        extract_program(f"<answer>{piece * 5_000}x</answer>")
        extract_program(f"```python\n{piece * 5_000}\n```\n", function="f")


def test_the_tags_of_a_language_open_a_block_of_that_language():
    draft = "Here:```py\nx = 2\n```\nBetter: [PYTHON]\nx = 1\n[/PYTHON]\n"
    assert extract_program(draft) == "x = 1\n"


@pytest.mark.parametrize("line", ["a</think>", "</think> b"])
def test_the_end_of_a_thought_in_a_line_of_a_program_belongs_to_it(line):
    program = f"s = '''\n{line}\n'''\n"
    assert extract_program(fenced(program)) == program


@pytest.mark.parametrize(("thoughts", "program"), [(2, "x = 1\n"), (3, "x = 1\n"), (4, "x = 1\n")])
def test_after_three_thoughts_the_last_end_counts(thoughts, program):
    response = "<think>a</think>b" * thoughts + fenced("x = 1")
    assert extract_program(response) == program
    assert extract_program(f"{response}<think>") is None
    cut = extract_program("<think>a</think>b\n" * thoughts + fenced("x = '</think>'"))
    assert cut == (None if thoughts > 3 else "x = '</think>'\n")
