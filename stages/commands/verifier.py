"""`veriloop verifier`: list verifiers, create one, check one against the verifier contract."""

import json
import keyword
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from veriloop.pipeline.errors import RecipeError
from veriloop.stages.commands.parse import PluginOptions, Verbs, run_verb
from veriloop.stages.commands.verify import find
from veriloop.verifiers.contract import Finding, examine
from veriloop.verifiers.registry import all_verifiers, judge

LABELS = {True: "kept", False: "BROKEN", None: "-"}

PLUGIN = '''"""The answer is the text of the reference, spelled backwards: change this."""

from veriloop.data.problem import Problem
from veriloop.verifiers.answer import final_answer
from veriloop.verifiers.registry import verifier
from veriloop.verifiers.verdict import Verdict


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

from veriloop.verifiers.contract import examine
from veriloop.verifiers.registry import get, judge, load_plugin

load_plugin(str(Path(__file__).with_name("{name}.py")))


def test_it_keeps_every_promise():
    broken = [promise for promise in examine(get("{name}"), judge) if promise.kept is False]
    assert not broken


@pytest.mark.parametrize(
    ("text", "response", "score"),
    [("ab", "<answer>ba</answer>", 1.0), ("ab", "<answer>ab</answer>", 0.0), ("ab", "ba", 0.0)],
)
def test_the_answer_is_spelled_backwards(text, response, score):
    assert judge(get("{name}").problem({{"text": text}}), response).score == score
'''
QUESTIONS = "".join(
    json.dumps({"question": f"Spell {word} backwards.", "text": word}) + "\n"
    for word in ("abc", "one", "sun", "tree", "stone", "river", "north", "light", "paper", "green")
)
TRL = '''"""GRPO in TRL with the verifier {name}: python {folder}/{name}_trl.py MODEL [STEPS]."""

import sys

import torch
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

from veriloop.verifiers.adapters.trl import reward
from veriloop.verifiers.registry import load_plugin


def with_prompt(row: dict) -> dict:
    return {{"prompt": row["question"] + " Put the answer within <answer> and </answer>.\\n"}}


def main(model: str, steps: str = "20") -> None:
    load_plugin("{folder}/{name}.py")
    questions = load_dataset("json", data_files="{folder}/{name}.jsonl", split="train")
    cuda = torch.cuda.is_available()
    config = GRPOConfig(
        output_dir="outputs/{name}-trl",
        max_steps=int(steps),
        num_generations=8,
        max_completion_length=64,
        logging_steps=1,
        report_to=[],
        use_cpu=not cuda,
        bf16=cuda,
    )
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=reward("{name}", column="text"),  # the column with the reference
        args=config,
        train_dataset=questions.map(with_prompt),
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":  # verifiers judge in processes that import this file
    main(*sys.argv[1:])
'''
RECIPE = """# R1-Zero with the verifier {name}; change start and the questions.
stage: zero
name: {name}
start: recipes/tiny/base.yaml  # or the folder of a Hugging Face checkpoint
plugins: [{folder}/{name}.py]
sets:
  {name}:
    path: {folder}/{name}.jsonl
    question: ["{{question}}"]
    verifier: {name}
    reference: {{text: text}}  # key of the reference: column of the file
    held_out: 0.3
problems: {{{name}: 1.0}}
evaluation: {{sources: [{name}], problems: 4, samples: 1}}
steps: 20
rollout: {{prompts: 4, per_prompt: 8, max_tokens: 64}}
optimizer: {{learning_rate: 1.6e-4, warmup_steps: 5}}
"""


@dataclass(frozen=True, kw_only=True)
class List(PluginOptions):
    """List the verifiers: name, kind and components."""


@dataclass(frozen=True, kw_only=True)
class New:
    """Write an example verifier, its test, questions, a recipe of RL and a program for TRL."""

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME", help="the new name")]
    folder: str = "."  # folder to write to


@dataclass(frozen=True, kw_only=True)
class Check(PluginOptions):
    """Check a verifier against the contract, on its examples and on attacks made from them."""

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME", help="a verifier")]
    json: Annotated[str, tyro.conf.arg(help="also write the findings to this file")] = ""


def command(words: Sequence[str]) -> int:
    """Run one verb; 1 when `check` finds a broken promise. Raises RecipeError for user mistakes."""
    return run_verb(words, VERBS, "List, create or check verifiers.")


def _list(_: List) -> int:
    for name, verifier in sorted(all_verifiers().items()):
        print(f"{name:<22}{verifier.kind:<9}{', '.join(verifier.components)}".rstrip())
    return 0


def _new(options: New) -> int:
    name = options.name
    if not (name.isidentifier() and name.islower()) or keyword.iskeyword(name):
        raise RecipeError(f"{name!r} must be a name of lower-case letters, digits and _")
    if name in all_verifiers():
        raise RecipeError(f"verifier {name!r} exists already; choose another name")
    folder = Path(options.folder)
    contents = {
        folder / f"{name}.py": PLUGIN.format(name=name),
        folder / f"test_{name}.py": TEST.format(name=name),
        folder / f"{name}.jsonl": QUESTIONS,
        folder / f"{name}.yaml": RECIPE.format(name=name, folder=folder),
        folder / f"{name}_trl.py": TRL.format(name=name, folder=folder),
    }
    for path in contents:
        if path.exists():
            raise RecipeError(f"{path} exists already; nothing was written")
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in contents.items():
        path.write_text(text, encoding="utf-8")
        print(path)
    print(f"next: veriloop verifier check {name} --plugin {folder / name}.py")
    print(f"      veriloop zero {folder / name}.yaml")
    print(f"      python {folder / name}_trl.py MODEL")
    return 0


def _check(options: Check) -> int:
    verifier = find(options.name)
    findings = list(examine(verifier, judge))
    print(f"{verifier.name} (version {verifier.version}, kind {verifier.kind})")
    if verifier.needs:
        print(f"needs {verifier.needs}")
    print(table(findings))
    if options.json:
        rows = [
            {"promise": finding.promise, "kept": finding.kept, "detail": finding.detail}
            for finding in findings
        ]
        Path(options.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return 1 if any(finding.kept is False for finding in findings) else 0


def table(findings: Sequence[Finding]) -> str:
    """One line per promise of the contract: its name, kept, BROKEN or -, and the detail."""
    width = max(len(finding.promise) for finding in findings)
    return "\n".join(
        f"{finding.promise:<{width}}  {LABELS[finding.kept]:<6}  {finding.detail}"
        for finding in findings
    )


VERBS: Verbs = {"ls": (List, _list), "new": (New, _new), "check": (Check, _check)}
