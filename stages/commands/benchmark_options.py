"""Flags of `veriloop evaluate --set`, and the plan that they give for each set."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from veriloop.data.hub.benchmark_set import BenchmarkSet, load_benchmark_set
from veriloop.data.hub.sets import SETS
from veriloop.data.hub.trainer_formats import UnlabelledError
from veriloop.pipeline.config.fields import Count
from veriloop.pipeline.config.sections import SamplerConfig
from veriloop.pipeline.config.user_code import check_template, template_identity
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.rollouts.generate import RolloutGenerator
from veriloop.pipeline.sampling.prelaunch import engine_of
from veriloop.pipeline.sampling.sampler import Sampling
from veriloop.stages.commands.parse import BoundedJudgeOptions, system_message

LONGEST = 32_768  # tokens of an answer in the paper
SAMPLES = ((100, 64), (300, 16))  # (questions, answers per question) of sets up to that size
FEWEST = 4  # answers per question of larger sets


@dataclass(frozen=True, kw_only=True)
class Options(BoundedJudgeOptions):
    """Evaluate a Hugging Face checkpoint on whole published sets.

    Answers are stored as they are sampled: the same command run again samples only missing ones.
    """

    checkpoint: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(metavar="CHECKPOINT", help="folder with config.json, weights, tokenizer"),
    ]
    set: Annotated[
        tuple[str, ...],
        tyro.conf.arg(help="sets: math500 aime24; from a file: math500=FILE"),
    ]
    split: str = ""  # split of every set; empty: its held-out split
    limit: int | None = None  # questions per set, in a fixed shuffled order; default: all
    samples: Annotated[
        Count | None,
        tyro.conf.arg(help="answers per question; default: 64, 16 or 4, by the size of the set"),
    ] = None
    k: tuple[int, ...] = ()  # values of k for pass@k and maj@k; empty: the number of samples
    temperature: float = 0.6  # 0: greedy
    top_p: float = 0.95
    max_tokens: Annotated[
        Count | None,
        tyro.conf.arg(help="tokens per answer; default: 32,768, or what the model has room for"),
    ] = None
    stop: tuple[str, ...] = ()  # strings that end an answer, besides EOS
    template: str = "r1_zero"  # chat: the model's own; or a Jinja file
    system: str = ""  # system message of the chat: a text, or the name r1 or boxed
    seed: int = 1
    verifier_workers: Count = 1  # verifier processes
    verifier_service: Annotated[
        str | tuple[str, ...],
        tyro.conf.arg(
            metavar="URL [URL ...]", help="reward services to use instead of workers, by URL"
        ),
    ] = ""
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    output: str = "outputs/evaluations"  # folder for the answers
    json: Annotated[str, tyro.conf.arg(help="also write the metrics to this file")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExamPlan:
    """Questions and sampling settings of one set."""

    exam: BenchmarkSet
    sampling: Sampling
    ks: Sequence[int]  # each at most the samples
    room: int  # tokens of the longest prompt plus an answer
    prompts_sha256: str  # of the ids of all prompts of the set

    def facts(self, options: Options, checkpoint_sha256: str) -> dict[str, Any]:
        """Everything that determines an answer, except its number."""
        facts = {
            "set": self.exam.name,
            "split": self.exam.split,
            "questions_sha256": self.exam.sha256,
            "prompts_sha256": self.prompts_sha256,
            "checkpoint_sha256": checkpoint_sha256,
            "template": template_identity(options.template),
            "system": options.system,
            "temperature": self.sampling.temperature,
            "top_p": self.sampling.top_p,
            "max_tokens": self.sampling.max_tokens,
            "seed": self.sampling.seed,
            "engine": engine_of(options.sampler),
            "dtype": options.sampler.dtype,
        }
        return facts | ({"stop": list(self.sampling.stop)} if self.sampling.stop else {})


def exam_plans(options: Options, scribe: RolloutGenerator, positions: int | None) -> list[ExamPlan]:
    """A plan for each set; raises RecipeError. `positions`: context length in tokens."""
    names = [name.partition("=")[0] for name in options.set]
    if len({*names}) != len(names) or not names:
        raise RecipeError(f"--set {' '.join(options.set)}: at least one, and each once")
    if options.limit is not None and options.limit < 1:
        raise RecipeError(f"--limit {options.limit} must be at least 1")
    system_message(options.system, options.template)
    try:
        check_template(options.template)
    except ValueError as mistake:
        raise RecipeError(f"--template: {mistake}") from mistake
    try:
        shared = Sampling(
            per_prompt=1 if options.samples is None else options.samples,
            temperature=options.temperature,
            top_p=options.top_p,
            max_tokens=LONGEST if options.max_tokens is None else options.max_tokens,
            stop=options.stop,
            seed=options.seed,
        )
    except ValueError as mistake:
        raise RecipeError(f"flags: {mistake}") from mistake
    return [_exam_plan(word, options, shared, scribe, positions) for word in options.set]


def answers_path(folder: Path, facts: dict[str, Any]) -> Path:
    """The file of the answers that these facts determine."""
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return folder / f"{facts['set']}-{digest[:12]}.jsonl"


def _exam_plan(
    word: str, options: Options, shared: Sampling, scribe: RolloutGenerator, positions: int | None
) -> ExamPlan:
    name, _, path = word.partition("=")
    try:
        whole = load_benchmark_set(name, path, options.split)
        prompts = [list(scribe.prompt(problem)) for problem in whole.problems]
        prompt = max(map(len, prompts))
        sampling = replace(
            shared,
            per_prompt=_samples(options, len(whole.problems)),
            max_tokens=_max_tokens(options, prompt, positions),
        )
        ks = _ks(options, sampling.per_prompt)
    except UnlabelledError as mistake:
        raise RecipeError(f"--set {word}: {mistake.export_first(path)}") from mistake
    except (ValueError, FileNotFoundError) as mistake:
        path = "" if "=" in word or word in SETS else ". A file of your own: --set NAME=PATH"
        raise RecipeError(f"--set {word}: {mistake}{path}") from mistake
    return ExamPlan(
        exam=whole if options.limit is None else whole.first(options.limit),
        sampling=sampling,
        ks=ks,
        room=prompt + sampling.max_tokens,
        prompts_sha256=hashlib.sha256(json.dumps(prompts).encode()).hexdigest(),
    )


def _samples(options: Options, questions: int) -> int:
    if options.temperature == 0:
        if options.samples not in (None, 1):
            raise ValueError("--temperature 0 gives one answer to a question: --samples 1")
        return 1
    if options.samples is not None:
        return options.samples
    return next((samples for most, samples in SAMPLES if questions <= most), FEWEST)


def _max_tokens(options: Options, prompt: int, positions: int | None) -> int:
    if positions is None:
        return options.max_tokens or LONGEST
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
        raise ValueError(f"--k {beyond[0]} must be 1 to {samples}, the answers per question")
    return options.k or (samples,)
