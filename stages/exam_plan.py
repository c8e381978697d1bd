"""What a checkpoint is asked on published sets: the flags, and what they come to for each set."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from data.hub.exam import Exam, exam
from pipeline.config import SamplerConfig
from pipeline.failures import RecipeError
from pipeline.sampling.early import engine_of
from pipeline.sampling.sampler import Sampling
from pipeline.scribe import Scribe

LONGEST = 32_768  # tokens of an answer in the paper
SAMPLES = ((100, 64), (300, 16))  # answers to each question of sets of up to so many questions
FEWEST = 4  # answers to each question of larger ones


@dataclass(frozen=True, kw_only=True)
class Options:
    """Evaluate a Hugging Face checkpoint on published sets, each on its own.

    Answers are kept as they come: the same command, given again, samples only what is missing.
    """

    checkpoint: tyro.conf.Positional[str]  # folder with config.json, weights and tokenizer
    set: Annotated[
        tuple[str, ...], tyro.conf.arg(help="by name: math500 aime24; of a file: math500=FILE")
    ]
    split: str = ""  # of every set; by default the one it holds out
    limit: int | None = None  # questions of a set, drawn by its name; by default all
    samples: Annotated[
        int | None,
        tyro.conf.arg(help="answers to a question; by default 64, 16 or 4, by the set's size"),
    ] = None
    k: tuple[int, ...] = ()  # of pass@k and maj@k; by default the samples
    temperature: float = 0.6
    top_p: float = 0.95
    max_tokens: Annotated[
        int | None,
        tyro.conf.arg(help="of an answer; by default 32,768, or what the model has room for"),
    ] = None
    template: Literal["r1_zero", "chat"] = "r1_zero"  # chat: the model's own
    system: str = ""  # message before the question, in a chat
    seed: int = 1
    verifier_workers: int = 1
    verifier_service: Annotated[
        str, tyro.conf.arg(help="URL of a reward service that judges instead of workers here")
    ] = ""
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    output: str = "outputs/evaluations"  # folder of the answers
    json: Annotated[str, tyro.conf.arg(help="also write the figures to this file")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExamPlan:
    """What is asked of one set."""

    exam: Exam
    sampling: Sampling
    ks: Sequence[int]  # each at most the samples
    room: int  # tokens of the longest prompt and an answer

    def facts(self, options: Options, checkpoint_sha256: str) -> dict[str, Any]:
        """What an answer hangs on, but its number."""
        return {
            "set": self.exam.name,
            "split": self.exam.split,
            "questions_sha256": self.exam.sha256,
            "checkpoint_sha256": checkpoint_sha256,
            "template": options.template,
            "system": options.system,
            "temperature": self.sampling.temperature,
            "top_p": self.sampling.top_p,
            "max_tokens": self.sampling.max_tokens,
            "seed": self.sampling.seed,
            "engine": engine_of(options.sampler),
            "dtype": options.sampler.dtype,
        }


def exam_plans(options: Options, scribe: Scribe, positions: int) -> list[ExamPlan]:
    """One for each set. `positions`: tokens that the model has room for. Raises RecipeError."""
    names = [asked.partition("=")[0] for asked in options.set]
    if len({*names}) != len(names) or not names:
        raise RecipeError(f"--set {' '.join(options.set)}: at least one, and each once")
    if options.limit is not None and options.limit < 1:
        raise RecipeError(f"--limit {options.limit} must be at least 1")
    if options.system and options.template != "chat":
        raise RecipeError(f"--system {options.system!r:.40} is read by --template chat alone")
    return [_exam_plan(asked, options, scribe, positions) for asked in options.set]


def answers_path(folder: Path, facts: dict[str, Any]) -> Path:
    """Where the answers under these facts are kept."""
    told = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return folder / f"{facts['set']}-{told[:12]}.jsonl"


def positions_of(checkpoint: Path) -> int:
    """Tokens that a model has room for."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(str(checkpoint)).get_text_config()
    return int(config.max_position_embeddings)


def _exam_plan(asked: str, options: Options, scribe: Scribe, positions: int) -> ExamPlan:
    name, _, path = asked.partition("=")
    try:
        whole = exam(name, path, options.split)
        prompt = max(len(scribe.prompt(problem)) for problem in whole.problems)
        sampling = Sampling(
            per_prompt=_samples(options, len(whole.problems)),
            temperature=options.temperature,
            top_p=options.top_p,
            max_tokens=_max_tokens(options, prompt, positions),
            seed=options.seed,
        )
        ks = _ks(options, sampling.per_prompt)
    except (ValueError, FileNotFoundError) as mistake:
        raise RecipeError(f"--set {asked}: {mistake}") from mistake
    return ExamPlan(
        exam=whole if options.limit is None else whole.first(options.limit),
        sampling=sampling,
        ks=ks,
        room=prompt + sampling.max_tokens,
    )


def _samples(options: Options, questions: int) -> int:
    if options.temperature == 0:
        if options.samples not in (None, 1):
            raise ValueError("--temperature 0 gives one answer to a question: --samples 1")
        return 1
    if options.samples is not None:
        return options.samples
    return next((samples for most, samples in SAMPLES if questions <= most), FEWEST)


def _max_tokens(options: Options, prompt: int, positions: int) -> int:
    room = positions - prompt
    if room < 1 or (options.max_tokens or 1) > room:
        raise ValueError(
            f"a prompt of {prompt} tokens leaves {max(room, 0)} of the model's {positions} "
            f"positions for an answer; --max-tokens is {options.max_tokens or LONGEST}"
        )
    return options.max_tokens or min(LONGEST, room)


def _ks(options: Options, samples: int) -> tuple[int, ...]:
    beyond = [k for k in options.k if not 1 <= k <= samples]
    if beyond:
        raise ValueError(f"--k {beyond[0]} must lie in 1 to {samples}, the answers to a question")
    return options.k or (samples,)
