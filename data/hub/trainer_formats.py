"""Problems in the row formats of other trainers, with a label from which they can be read back.

The label is JSON text, `{"verifier": ..., "reference": ..., "facts": ...}`; the reward service and
the adapters of these trainers read it.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from veriloop.data.hub.layout import Layout, Row, UnusableRow, text
from veriloop.data.problem import Problem

# Exported columns by trainer; `reference` names those of the label and the problem's id.
LAYOUTS: Mapping[str, Layout] = {
    "verl": Layout(
        kind="labelled",
        ask=("{prompt.0.content}",),
        reference={"label": "extra_info.label", "id": "extra_info.id"},
    ),
    "trl": Layout(
        kind="labelled", ask=("{prompt.0.content}",), reference={"label": "label", "id": "id"}
    ),
    "openrlhf": Layout(kind="labelled", ask=("{input}",), reference={"label": "label", "id": "id"}),
    "mot": Layout(
        kind="labelled", ask=("{messages.0.content}",), reference={"label": "label", "id": "id"}
    ),
}


class UnlabelledError(ValueError):
    """A file of no known set was not exported."""

    def __init__(self, name: str, row: Row) -> None:
        self.lack = f"{name}: none of its columns ({', '.join(row)}) holds a veriloop label"
        super().__init__(
            f"{self.lack}; name the known set that it belongs to, or the columns of the question "
            "and the answer, and the verifier"
        )

    def export_first(self, path: str) -> str:
        """The message where no columns can be named."""
        return (
            f"{self.lack}; name the known set that it belongs to, as in gsm8k={path}, or export it "
            f"first, with its columns and verifier: veriloop data export {path} --question ... "
            "--answer ... --verifier ... --to trl --output EXPORTED.jsonl"
        )


def label(problem: Problem) -> str:
    """What a verifier needs to judge an answer, as JSON text."""
    fields = {"verifier": problem.verifier, "reference": problem.reference, "facts": problem.facts}
    return json.dumps(fields, ensure_ascii=False)


def plain_answer(problem: Problem) -> str:
    """The reference as text if it is a single value, else the label."""
    values = list(problem.reference.values())
    single = len(values) == 1 and isinstance(values[0], str | int)
    return str(values[0]) if single else label(problem)


def layout_of(row: Row, name: str) -> Layout:
    """The trainer layout of a labelled row. Raises UnlabelledError if it has none."""
    for layout in LAYOUTS.values():
        question_column = layout.ask[0].strip("{}").partition(".")[0]
        content: Any = row
        for step in layout.reference["label"].split("."):
            content = content.get(step) if isinstance(content, Mapping) else None
        if question_column in row and isinstance(content, str) and '"verifier"' in content:
            return layout
    raise UnlabelledError(name, row)


def problem_of(row: Row, layout: Layout, prompt: str) -> Problem:
    """The problem in a labelled row. Raises UnusableRow."""
    try:
        fields = json.loads(text(row, layout.reference["label"]))
        return Problem(
            id=text(row, layout.reference["id"]),
            prompt=prompt,
            verifier=fields["verifier"],
            reference=fields["reference"],
            facts=fields["facts"],
        )
    except (ValueError, KeyError, TypeError):
        raise UnusableRow("an unreadable label") from None


def trl(problem: Problem) -> dict[str, Any]:
    """TRL, conversational and prompt-only; the other columns go to the reward functions."""
    return {
        "prompt": [{"role": "user", "content": problem.prompt}],
        "solution": plain_answer(problem),
        "label": label(problem),
        "id": problem.id,
    }


def trl_completion(problem: Problem, answer: str) -> dict[str, Any]:
    """TRL, conversational, with a completion."""
    return {**trl(problem), "completion": [{"role": "assistant", "content": answer}]}


def verl(problem: Problem) -> dict[str, Any]:
    """verl's Parquet row."""
    source, split, number = [*problem.id.split("/", 2), "", ""][:3]
    return {
        "data_source": str(problem.facts.get("source") or source),
        "prompt": [{"role": "user", "content": problem.prompt}],
        "ability": "code" if problem.verifier == "code_tests" else "math",
        "reward_model": {"style": "rule", "ground_truth": plain_answer(problem)},
        "extra_info": {
            "split": split,
            "index": int(number) if number.isdigit() else 0,
            "id": problem.id,
            "prompt": problem.prompt,  # verl's reward functions are not given the one above
            "label": label(problem),
        },
    }


def openrlhf(problem: Problem) -> dict[str, Any]:
    """OpenRLHF's `--data.input_key input --data.label_key label`."""
    return {"input": problem.prompt, "label": label(problem), "id": problem.id}


def mixture_of_thoughts(problem: Problem, answer: str, tokens: int) -> dict[str, Any]:
    """Mixture-of-Thoughts: a conversation, its length in tokens and its source."""
    return {
        "messages": [
            {"role": "user", "content": problem.prompt},
            {"role": "assistant", "content": answer},
        ],
        "num_tokens": tokens,
        "source": str(problem.facts.get("source") or problem.id.partition("/")[0]),
        "label": label(problem),
        "id": problem.id,
    }


PROMPT_ONLY: Mapping[str, Callable[[Problem], dict[str, Any]]] = {
    "trl": trl,
    "verl": verl,
    "openrlhf": openrlhf,
}
