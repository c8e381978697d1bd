"""Base model: a small Llama, pre-trained on a generated corpus.

Paper (DeepSeek-R1, arXiv 2501.12948v2, section 2): training starts from DeepSeek-V3-Base. This
stage makes a stand-in within minutes on a CPU, so that the whole recipe runs anywhere; every later
stage accepts any Hugging Face checkpoint instead.

Input: a base recipe. Output: a checkpoint in outputs/cache, keyed by the recipe, the corpus and
the training code, with its metrics in base.json; WeakBaseError if it is too weak for RL.

`recipes/tiny/base.yaml` trains about 580 k parameters for 1,200 steps of about 2,048 tokens. Muon
trains the matrices of the blocks and AdamW the rest: at this budget AdamW alone does not learn to
add. `compute: bfloat16` halves the size of what both passes multiply, `auto` where the CPU can.
"""

import ast
import fcntl
import inspect
import itertools
import json
import os
import shlex
import shutil
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from random import Random
from secrets import token_hex
from typing import Any

import torch

from veriloop.data import corpus, general
from veriloop.data.sources import SOURCES
from veriloop.data.tokenizer import train as train_tokenizer
from veriloop.pipeline.config.pretraining import BaseRecipe, TinyModel
from veriloop.pipeline.config.sections import Compute, TrainerConfig
from veriloop.pipeline.errors import StageError
from veriloop.pipeline.model.packing import best_fit, lay_out
from veriloop.pipeline.model.policy import save_policy, score
from veriloop.pipeline.model.prepare import prepare
from veriloop.pipeline.report import model_card
from veriloop.pipeline.report.read_run import Run, Stage
from veriloop.pipeline.rollouts.generate import prompt_ids, response_text
from veriloop.pipeline.runs import lineage
from veriloop.pipeline.runs.atomic_write import fsync
from veriloop.pipeline.runs.console import activity, say
from veriloop.pipeline.runs.manifest import AGAIN, RunManifest, failure_recorded, recorded, typed
from veriloop.pipeline.runs.provenance import computes_bfloat16, cpu_flags, identity
from veriloop.pipeline.sampling.sampler import Sampling
from veriloop.pipeline.training.muon import Muon
from veriloop.pipeline.training.optimizer import Optimizer
from veriloop.verifiers.registry import judge

CACHE = Path("outputs/cache")
METRICS = ("loss", "step_accuracy", "program_accuracy", "parameters")


class WeakBaseError(StageError):
    """The base is too weak for reinforcement learning; nothing was cached."""


def run(recipe: BaseRecipe, output: Path, *, resume: bool, name: str = "") -> Path:
    """Train or load the base and record it in `output`/run.json; a cached base needs no resume."""
    del resume
    return record_base(recipe, RunManifest(output / "run.json"), name or recipe.stage)


def record_base(recipe: BaseRecipe, manifest: RunManifest, name: str = "base") -> Path:
    """`ensure`, recorded as a stage of a run, unless the run has it on record."""
    began = time.monotonic()
    values = recipe.model_dump(mode="json")
    entry = recorded(manifest.path).get(name, {})
    folder = _entry_of(recipe)
    done = entry.get("status") == "done" and AGAIN not in entry
    same = done and entry["inputs"]["recipe"] == values
    made = entry.get("lineage", {}).get("outputs", {}).get("checkpoint")
    if same and made and made["path"] == str(folder) and not lineage.state(made):
        say(f"base model: cached in {folder}")
        return folder
    manifest.begin_stage(name, {"recipe": values}, lineage.read_by(values))
    with failure_recorded(manifest, name, lambda: time.monotonic() - began):
        folder = ensure(recipe)
        after = _metrics(json.loads((folder / "base.json").read_text()))
        outputs = {"checkpoint": str(folder)}
        manifest.end_stage(name, time.monotonic() - began, None, {}, after, outputs)
        return folder


def _metrics(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {metric: facts[metric] for metric in METRICS if metric in facts}


def ensure(recipe: BaseRecipe) -> Path:
    """The cached checkpoint, or a new one, trained, measured and cached.

    A cached checkpoint whose files changed is moved aside and trained again. Raises WeakBaseError,
    and caches nothing, if the model is too weak for RL.
    """
    folder = _entry_of(recipe)
    if _is_whole(folder):
        say(f"base model: cached in {folder}")
        return folder
    if (folder / "base.json").is_file():
        with suppress(FileNotFoundError):  # another run has moved it
            aside = _move_aside(folder)
            say(f"base model: {folder} changed since it was cached; moved to {aside}")
    with _new_draft(folder) as draft:
        return _trained(recipe, folder, draft)


def _entry_of(recipe: BaseRecipe) -> Path:
    """Where the cache has the recipe's checkpoint, if it has one."""
    return CACHE / f"{recipe.name.replace('/', '-')}-{fingerprint(recipe)}"


def _is_whole(folder: Path) -> bool:
    """Whether a checkpoint is cached here and as it was when it was cached."""
    if not (folder / "base.json").is_file():
        return False
    sha256 = json.loads((folder / "base.json").read_text()).get("sha256")
    return sha256 in (None, lineage.checkpoint_hash(folder))  # old caches have no hash


@contextmanager
def _new_draft(folder: Path) -> Iterator[Path]:
    """A new folder to train this entry in, locked until the block or the process ends.

    Another run may be training the same base. Drafts that no run holds are removed: those of killed
    runs, and bases that were too weak.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    for path in folder.parent.glob(".draft-*"):
        with suppress(OSError), _held(path):  # BlockingIOError for one in use
            shutil.rmtree(path)
    with ExitStack() as stack:
        while True:
            draft = folder.with_name(f".draft-{folder.name}-{token_hex(8)}")
            draft.mkdir()
            try:
                stack.enter_context(_held(draft))
            except (BlockingIOError, FileNotFoundError):  # another run is removing it
                continue
            except OSError:  # a file system without locks, where no run removes drafts
                pass
            if draft.exists():
                break
        yield draft


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """A block that holds the lock of a folder. Raises BlockingIOError if another process does."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _trained(recipe: BaseRecipe, folder: Path, draft: Path) -> Path:
    """Train in `draft` and make it the entry `folder`, which is returned. Raises as `ensure`."""
    with activity("training the base model"):
        facts = train(recipe, draft, say)
        if recipe.corpus.programs:
            facts["program_accuracy"] = step_accuracy(draft, source="programs")
    for metric, problems in (("step_accuracy", "problems"), ("program_accuracy", "programs")):
        if facts.get(metric, 1.0) < recipe.step_accuracy:
            raise WeakBaseError(
                f"forced to work step by step, the base is right on {facts[metric]:.2f} of the "
                f"held-out {problems}; RL needs {recipe.step_accuracy:.2f}. Train longer "
                f"(steps={recipe.steps}) or lower the corpus's step errors. Kept in {draft} until "
                "a base is trained again"
            )
    facts["sha256"] = lineage.checkpoint_hash(draft)
    facts |= {"command": shlex.join(typed()), **identity()}
    (draft / "base.json").write_text(json.dumps(facts, indent=1))
    if not _published(draft, folder):
        say(f"base model: another run has cached {folder} meanwhile; using it")
        return folder
    model_card.write_card("base", lambda: _as_run(folder, facts))
    return folder


def _published(draft: Path, folder: Path) -> bool:
    """Make the draft the cached entry, atomically and whole on disk. False, with the draft removed,
    if another process has done so before."""
    for path in (*draft.rglob("*"), draft):
        fsync(path)
    try:
        draft.rename(folder)
    except OSError:
        if not (folder / "base.json").is_file():
            raise
        shutil.rmtree(draft)
        return False
    fsync(folder.parent)
    return True


def _as_run(folder: Path, facts: Mapping[str, Any]) -> Run:
    """The facts of base.json as a run of one stage, for the model card."""
    checkpoint = {"path": str(folder), "kind": "checkpoint", "sha256": facts["sha256"]}
    entry = {
        "inputs": {"recipe": facts["recipe"]},
        "after": _metrics(facts),
        "seconds": facts["seconds"],
        "outputs": {"checkpoint": str(folder)},
        "lineage": lineage.read_by(facts["recipe"]) | {"outputs": {"checkpoint": checkpoint}},
    }
    stage = Stage(name="base", entry=entry, folder=folder)
    return Run(folder=folder, manifest=facts, stages=[stage])


def _move_aside(folder: Path) -> Path:
    names = (folder.with_name(f"{folder.name}-damaged-{n}") for n in itertools.count(1))
    return folder.rename(next(path for path in names if not path.exists()))


def fingerprint(recipe: BaseRecipe) -> str:
    """Hash of the recipe, a sample of the corpus, torch's version and the training code.

    Settings of tasks that have no share in the corpus are left out, so that a new task does not
    change existing bases.
    """
    random = Random(0)
    documents = [corpus.document(random, recipe.corpus) for _ in range(200)]
    code = [ast.dump(ast.parse(textwrap.dedent(inspect.getsource(part)))) for part in HASHED_CODE]
    settings = recipe.model_dump_json(exclude={"corpus": _unused_settings(recipe.corpus)})
    text = "".join([settings, torch.__version__, *documents, *code])
    return sha256(text.encode()).hexdigest()[:12]


def _unused_settings(mix: corpus.Mix) -> set[str]:
    """Settings of corpus tasks with no share in the mix."""
    related = {"programs": (), "general": ("general_good", "general_wrong"), "myths": ("believed",)}
    return {
        setting
        for task, others in related.items()
        if not getattr(mix, task)
        for setting in (task, *others)
    }


def train(recipe: BaseRecipe, directory: Path, say: Any) -> dict[str, Any]:
    """Train a tokenizer and a model, save them to `directory`, and measure."""
    started = time.monotonic()
    torch.manual_seed(recipe.seed)
    random = Random(f"tokenizer/{recipe.seed}")
    tokenizer = train_tokenizer(
        (corpus.document(random, recipe.corpus) for _ in range(recipe.tokenizer_documents)),
        recipe.model.vocabulary,
        general.vocabulary() if recipe.corpus.general else (),
    )
    compute = precision_of(recipe)
    if recipe.compute == "auto":
        say(f"base: compute is {compute} on this CPU")
    trainer = TrainerConfig(compute=compute)
    model = prepare(untrained(recipe.model, tokenizer), trainer)
    optimizer = Optimizer(model, recipe.optimizer)
    losses: list[float] = []
    for step, documents in enumerate(batches(recipe, tokenizer)):
        losses.append(_backward(model, documents, recipe.row))
        optimizer.step(step / recipe.steps, step)
        if (step + 1) % 200 == 0:
            recent = sum(losses[-200:]) / len(losses[-200:])
            say(f"base {step + 1}/{recipe.steps}: loss {recent:.3f} nats per token, "
                f"{time.monotonic() - started:.0f} s")  # fmt: skip
    save_policy(model, tokenizer, directory)
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "loss": sum(losses[-100:]) / len(losses[-100:]),
        "step_accuracy": step_accuracy(directory),
        "seconds": time.monotonic() - started,
        "compute": compute,
        "recipe": recipe.model_dump(mode="json"),
    }


def precision_of(recipe: BaseRecipe) -> Compute:
    """The precision of both passes on this CPU."""
    if recipe.compute != "auto":
        return recipe.compute
    flags = cpu_flags()
    return "bfloat16" if flags and computes_bfloat16(flags) else "float32"


def untrained(shape: TinyModel, tokenizer: Any) -> Any:
    """A Llama with random weights for the tokenizer."""
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    ends = {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=shape.vocabulary,
            hidden_size=shape.hidden,
            intermediate_size=shape.feed_forward,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.heads,
            max_position_embeddings=1024,
            tie_word_embeddings=shape.tied,
            dtype="float32",
            **ends,
        )
    )
    model.generation_config = GenerationConfig(**ends)
    return model


def batches(recipe: BaseRecipe, tokenizer: Any) -> Iterator[list[list[int]]]:
    """Yield each step's documents as token ids, about `tokens_per_step` in all."""
    random = Random(f"corpus/{recipe.seed}")
    end = [tokenizer.eos_token_id]
    for _ in range(recipe.steps):
        batch: list[list[int]] = []
        total = 0
        while total < recipe.tokens_per_step:
            texts = [corpus.document(random, recipe.corpus) for _ in range(8)]
            for ids in tokenizer(texts).input_ids:
                batch.append(ids + end)
                total += len(ids)
        yield batch


def _backward(model: Any, documents: Sequence[Sequence[int]], row: int) -> float:
    """Backward pass of the mean cross-entropy of all tokens; returns it in nats."""
    lengths = [len(d) - 1 for d in documents]
    packed = lay_out(documents, best_fit(lengths, max(row, *lengths)))
    logp_M, _ = score(
        model,
        packed.ids_RT,
        packed.positions_RT,
        packed.targets_RT,
        packed.sequence_RT >= 0,
        temperature=1.0,
        chunk=1 << 20,
    )
    loss = -logp_M.sum() / sum(lengths)
    loss.backward()
    return loss.item()


def step_accuracy(checkpoint: Path, count: int = 200, source: str = "arithmetic") -> float:
    """Share of held-out problems solved greedily when the response is forced to begin with a step.

    It measures the ability that RL builds on.
    """
    from veriloop.pipeline.model.policy import load_tokenizer
    from veriloop.pipeline.sampling.torch_engine import TorchSampler  # loads transformers

    tokenizer = load_tokenizer(checkpoint)
    problems = SOURCES[source].distinct("test", 1, count)
    opening = {
        language: tokenizer(f"<think>{phrases.first}", add_special_tokens=False).input_ids
        for language, phrases in corpus.PHRASES.items()
    }
    prompts = [(*prompt_ids(p, tokenizer), *opening[p.facts["language"]]) for p in problems]
    sampling = Sampling(per_prompt=1, temperature=0.0, max_tokens=112, seed=0)
    engine = TorchSampler(str(checkpoint))
    ends = (tokenizer.eos_token_id,)
    right = [
        judge(problem, response_text(group[0].ids, tokenizer, ends)).score == 1.0
        for problem, group in zip(problems, engine.sample(prompts, sampling), strict=True)
    ]
    return sum(right) / count


HASHED_CODE = (
    train,
    untrained,
    batches,
    _backward,
    Optimizer,
    Muon,
    lay_out,
    best_fit,
    train_tokenizer,
    prepare,
    score,
)


if __name__ == "__main__":
    from veriloop.stages.cli import entry

    sys.exit(entry("base"))
