"""Instruction following: the 54 checks of IFEval and IFEvalG, by their ids."""

import ast
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import veriloop.verifiers.text.ifeval
import veriloop.verifiers.text.ifevalg  # noqa: F401  both modules register their checks
from veriloop.data.problem import Problem
from veriloop.verifiers.answer import after_think
from veriloop.verifiers.registry import verifier
from veriloop.verifiers.text.instruction_text import CHECKS, follows
from veriloop.verifiers.verdict import Verdict, no_answer

MODES = ("strict", "loose")
SCORINGS = ("share", "all")

REFERENCE: dict[str, Any] = {
    "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words"],
    "kwargs": [{}, {"num_words": 5, "relation": "at least"}],
}
EXAMPLE: dict[str, Any] = {  # of every verifier that takes instructions
    "accepts": "<think>no, commas</think>Seven words and not a single comma.",
    "rejects": (
        "Seven words, and not a single comma.",
        "Three words only.",
        "<think>Seven words and not a single comma.</think>",
    ),
    "other": (
        {"instruction_id_list": ["detectable_format:title"], "kwargs": [{}]},
        "<think></think><<A, title>>",
    ),
    "kind": "text",
}

Instructions = Sequence[tuple[str, Mapping[str, Any]]]


def followed(text: str, instructions: Instructions, *, loose: bool = False) -> list[bool]:
    """For each instruction, whether the text follows it; an id may occur several times.

    `loose` also tries the text without its first line, its last line and its asterisks, as IFEval
    does. Raises KeyError and ValueError like `follows`.
    """
    texts = variants(text) if loose else [text]
    return [any(follows(variant, id, kwargs) for variant in texts) for id, kwargs in instructions]


def variants(text: str) -> list[str]:
    """The eight texts of IFEval's loose accuracy."""
    lines = text.split("\n")
    cuts = [text, *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))]
    return [*cuts, *(cut.replace("*", "") for cut in cuts)]


def instructed_text(response: str, *, prefilled_think: bool = False) -> str:
    """The text that instructions apply to: after the thinking, without answer tags."""
    text = (after_think(response, prefilled_think=prefilled_think) or "").strip()
    inside = text.removeprefix("<answer>").removesuffix("</answer>")
    return inside.strip() if len(text) - len(inside) == len("<answer></answer>") else text


def read_instructions(reference: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """IFEval's `instruction_id_list` and `kwargs`, or open-instruct's `ground_truth`.

    Raises ValueError if there are no ids, or if the numbers of ids and kwargs differ.
    """
    truth = reference.get("ground_truth")
    if isinstance(truth, str):
        try:
            truth = json.loads(truth)
        except ValueError:  # open-instruct also writes Python's notation
            truth = ast.literal_eval(truth)
    if truth is not None:
        reference = truth[0] if isinstance(truth, list) else truth
    ids = reference.get("instruction_id_list", reference.get("instruction_id"))
    arguments = reference.get("kwargs") or [None] * len(ids or ())
    if not ids or isinstance(ids, str) or len(ids) != len(arguments):
        raise ValueError(f"instruction_id_list {ids!r} needs as many kwargs, got {arguments!r}")
    return [(id, kwargs or {}) for id, kwargs in zip(ids, arguments, strict=True)]


@verifier(
    "constraints",
    version="3",
    reference={**REFERENCE, "scoring": "all"},
    **EXAMPLE,
    components=("instructions", "share_followed", "all_followed"),
)
def check(problem: Problem, response: str) -> Verdict:
    """The share of the instructions that the text after the thinking follows.

    `reference["scoring"]`: "share" (the default) or "all"; `reference["mode"]`: "strict" (the
    default) or "loose".
    """
    reference = problem.reference
    mode, scoring = reference.get("mode", "strict"), reference.get("scoring", "share")
    if mode not in MODES or scoring not in SCORINGS:
        raise ValueError(
            f"mode must be one of {MODES}, got {mode!r}; "
            f"scoring must be one of {SCORINGS}, got {scoring!r}"
        )
    instructions = read_instructions(reference)
    text = instructed_text(response, prefilled_think=problem.facts.get("prefilled_think", False))
    results = followed(text, instructions, loose=mode == "loose")
    parts = {
        "instructions": float(len(results)),
        "share_followed": sum(results) / len(results),
        "all_followed": float(all(results)),
    }
    missed = [id for (id, _), ok in zip(instructions, results, strict=True) if not ok]
    detail = f"not followed: {', '.join(missed)}" if missed else ""
    if not text.strip():
        return replace(no_answer("no text"), components=parts)
    score = parts["share_followed" if scoring == "share" else "all_followed"]
    return Verdict(score=score, detail=detail, components=parts)


assert len(CHECKS) == 54, "25 of IFEval and 29 of IFEvalG"
