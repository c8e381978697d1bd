"""The format of a program: whether a response has one that can be extracted."""

from veriloop.data.problem import Problem
from veriloop.verifiers.code.answer import extract_program
from veriloop.verifiers.registry import verifier
from veriloop.verifiers.verdict import Verdict, no_answer


@verifier(
    "code_answer",
    reference={},
    accepts="<think>one line</think>```python\nprint(1)\n```",
    rejects=(
        "print(1)",
        "<think>```python\nprint(1)\n```</think>",
        "```python\nprint(1)",
        "``` \n```",
    ),
    kind="text",
)
def check(problem: Problem, response: str) -> Verdict:
    """1 if the response has a program, which is the verdict's `answer`; it is not run.

    `reference["language"]`: the language whose fences are preferred, by default "python".
    """
    program = extract_program(
        response,
        language=problem.reference.get("language", "python"),
        prefilled_think=problem.facts.get("prefilled_think", False),
    )
    return no_answer("no program") if program is None else Verdict(score=1.0, answer=program)
