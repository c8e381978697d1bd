"""`veriloop verifier`: list verifiers, start a new one, hold one to what all of them promise."""

import json
import keyword
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from pipeline.failures import RecipeError
from stages.verify_command import find
from verifiers.contract import Finding, examine
from verifiers.registry import all_verifiers, judge

USAGE = (
    "veriloop verifier ls | new NAME [--folder DIR] | check NAME [--plugin FILE] [--json FILE] "
    "[--help]"
)
WORDS = {True: "kept", False: "BROKEN", None: "-"}

PLUGIN = '''"""The answer is the text of the reference, spelled backwards: change this."""

from data.problem import Problem
from verifiers.answer import final_answer
from verifiers.registry import verifier
from verifiers.verdict import Verdict


@verifier(
    "{name}",
    reference={{"text": "abc"}},  # a problem,
    accepts="<think>from the end</think> <answer>cba</answer>",  # a response that solves it,
    rejects=("<answer>abc</answer>", "<answer>cb</answer>", "cba"),  # near misses,
    other=({{"text": "one"}}, "<answer>eno</answer>"),  # and another problem with its solution
    components=("right_length",),  # the same keys in every verdict
)
def check(problem: Problem, response: str) -> Verdict:
    """1 when the final answer is `reference["text"]` backwards.

    Raises KeyError without that key: whatever is raised becomes an `error`, which has no score
    and is never trained on.
    """
    backwards = problem.reference["text"][::-1]
    prefilled = problem.facts.get("prefilled_think", False)
    answer = final_answer(response, prefilled_think=prefilled)
    if answer is None:
        return Verdict(score=0.0, status="no_answer", detail="no final answer")
    right = answer == backwards
    parts = {{"right_length": float(len(answer) == len(backwards))}}
    detail = "" if right else "not backwards"
    return Verdict(score=float(right), answer=answer, detail=detail, components=parts)
'''
TEST = '''"""{name} keeps what every verifier promises, and some cases of its own."""

from pathlib import Path

import pytest

from verifiers.contract import examine
from verifiers.registry import get, judge, load_plugin

load_plugin(str(Path(__file__).with_name("{name}.py")))


def test_it_keeps_every_promise():
    broken = [found for found in examine(get("{name}"), judge) if found.kept is False]
    assert not broken


@pytest.mark.parametrize(
    ("text", "response", "score"),
    [("ab", "<answer>ba</answer>", 1.0), ("ab", "<answer>ab</answer>", 0.0), ("ab", "ba", 0.0)],
)
def test_the_answer_is_spelled_backwards(text, response, score):
    assert judge(get("{name}").problem({{"text": text}}), response).score == score
'''


@dataclass(frozen=True, kw_only=True)
class New:
    """Write NAME.py, a verifier that works, and test_NAME.py beside it; then change both."""

    name: Annotated[str, tyro.conf.Positional]
    folder: str = "."


@dataclass(frozen=True, kw_only=True)
class Check:
    """Try a verifier on its examples and on attacks made from them, and print what held."""

    name: Annotated[str, tyro.conf.Positional]
    plugin: list[str] = field(default_factory=list)  # files or modules of further verifiers
    json: Annotated[str, tyro.conf.arg(help="also write the findings to this file")] = ""


def command(words: Sequence[str]) -> int:
    """Carry out one verb; 1 when a promise is broken. Raises RecipeError for anything else."""
    match list(words):
        case ["verifier", "ls"]:
            for name, one in sorted(all_verifiers().items()):
                print(f"{name:<22}{one.kind:<9}{', '.join(one.components)}".rstrip())
        case ["verifier", "new", *flags]:
            return _new(tyro.cli(New, args=flags, prog="veriloop verifier new"))
        case ["verifier", "check", *flags]:
            return _check(tyro.cli(Check, args=flags, prog="veriloop verifier check"))
        case [_, *rest] if {"-h", "--help"} & set(rest):
            print(f"usage: {USAGE}")
        case [_, *rest]:
            told = f"veriloop verifier {' '.join(rest)}: not understood. Usage: {USAGE}"
            raise RecipeError(told)
    return 0


def _new(options: New) -> int:
    name = options.name
    if not (name.isidentifier() and name.islower()) or keyword.iskeyword(name):
        raise RecipeError(f"{name!r} must be a name of lower-case letters, digits and _")
    if name in all_verifiers():
        raise RecipeError(f"verifier {name!r} exists already; choose another name")
    folder = Path(options.folder)
    made = {folder / f"{name}.py": PLUGIN, folder / f"test_{name}.py": TEST}
    for path in made:
        if path.exists():
            raise RecipeError(f"{path} exists already; nothing was written")
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in made.items():
        path.write_text(text.format(name=name), encoding="utf-8")
        print(path)
    print(f"next: veriloop verifier check {name} --plugin {folder / name}.py")
    return 0


def _check(options: Check) -> int:
    one = find(options.name, options.plugin)
    findings = list(examine(one, judge))
    print(f"{one.name} (version {one.version}, kind {one.kind})")
    if one.needs:
        print(f"needs {one.needs}")
    print(table(findings))
    if options.json:
        rows = [
            {"promise": each.promise, "kept": each.kept, "detail": each.detail} for each in findings
        ]
        Path(options.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return 1 if any(each.kept is False for each in findings) else 0


def table(findings: Sequence[Finding]) -> str:
    """One line per promise: its name, kept, BROKEN or -, and what was seen."""
    width = max(len(each.promise) for each in findings)
    return "\n".join(
        f"{each.promise:<{width}}  {WORDS[each.kept]:<6}  {each.detail}" for each in findings
    )


if __name__ == "__main__":
    from stages.command import main

    sys.exit(main(["verifier", *sys.argv[1:]]))
