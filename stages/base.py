"""The base model: a Llama of half a million parameters, pre-trained on the generated corpus.

The paper starts from DeepSeek-V3-Base. Here the base is made in minutes on a CPU, so that the
whole recipe runs anywhere; from there on nothing knows that it is small. The optimizer is Muon
for the matrices and AdamW for the rest: at this budget AdamW alone does not learn to add.
"""

import ast
import functools
import inspect
import itertools
import json
import shlex
import shutil
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import torch

from data import corpus, general, tokenizer
from data.sources import SOURCES
from pipeline import lineage, model_card
from pipeline.compute import prepare
from pipeline.config import BaseRecipe, TinyModel, TrainerConfig
from pipeline.failures import StageError
from pipeline.identity import identity
from pipeline.muon import Muon
from pipeline.optimizer import Optimizer
from pipeline.packing import best_fit, lay_out
from pipeline.policy import save_policy, score
from pipeline.prompt import prompt_ids, response_text
from pipeline.report.reading import Run, Stage
from pipeline.run_json import RunManifest, typed
from pipeline.sampling.sampler import Sampling
from pipeline.sampling.torch_engine import TorchSampler
from verifiers.registry import judge

CACHE = Path("outputs/cache")
MEASURED = ("loss", "step_accuracy", "program_accuracy", "parameters")


class WeakBaseError(StageError):
    """The base cannot carry reinforcement learning; nothing was cached."""


def run(recipe: BaseRecipe, output: Path, *, resume: bool, name: str = "") -> Path:
    """`ensure`, noted in `output`/run.json; resuming means finding it in the cache."""
    del resume
    return noted(recipe, RunManifest(output / "run.json"), name or recipe.stage)


def noted(recipe: BaseRecipe, manifest: RunManifest, name: str = "base") -> Path:
    """`ensure`, noted as a stage of a run."""
    began = time.monotonic()
    values = recipe.model_dump(mode="json")
    manifest.begin_stage(name, {"recipe": values}, lineage.read_by(values))
    made = ensure(recipe)
    after = measured(json.loads((made / "base.json").read_text()))
    manifest.end_stage(name, time.monotonic() - began, None, {}, after, {"checkpoint": str(made)})
    return made


def measured(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What base.json has measured."""
    return {metric: facts[metric] for metric in MEASURED if metric in facts}


def ensure(recipe: BaseRecipe) -> Path:
    """The checkpoint from the cache; trained, measured and cached where it is not there yet.

    One whose files are no longer those that were cached is put aside, and made again. Raises
    WeakBaseError, caching nothing, when the model is too weak for RL to work on.
    """
    say = functools.partial(print, flush=True)
    done = CACHE / f"{recipe.name.replace('/', '-')}-{fingerprint(recipe)}"
    if (done / "base.json").is_file():
        wanted = json.loads((done / "base.json").read_text()).get("sha256")
        if wanted in (None, lineage.checkpoint_hash(done)):  # older ones have no hash
            say(f"base model: cached in {done}")
            return done
        say(f"base model: {done} is not what was cached there; put aside as {_aside(done)}")
    draft = done.with_name(f".draft-{done.name}")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    facts = train(recipe, draft, say)
    if recipe.corpus.programs:
        facts["program_accuracy"] = step_accuracy(draft, source="programs")
    for name, kind in (("step_accuracy", "problems"), ("program_accuracy", "programs")):
        if facts.get(name, 1.0) < recipe.step_accuracy:
            raise WeakBaseError(
                f"forced to work step by step, the base is right on {facts[name]:.2f} of the "
                f"held-out {kind}; RL needs {recipe.step_accuracy:.2f}. Train longer "
                f"(steps={recipe.steps}) or lower the corpus's step errors. Draft kept in {draft}"
            )
    facts["sha256"] = lineage.checkpoint_hash(draft)
    facts |= {"command": shlex.join(typed()), **identity()}
    (draft / "base.json").write_text(json.dumps(facts, indent=1))
    draft.rename(done)
    model_card.note("base", lambda: _as_run(done, facts))
    return done


def _as_run(done: Path, facts: Mapping[str, Any]) -> Run:
    """What base.json tells, as a run would."""
    hashed = {"path": str(done), "kind": "checkpoint", "sha256": facts["sha256"]}
    entry = {
        "inputs": {"recipe": facts["recipe"]},
        "after": measured(facts),
        "seconds": facts["seconds"],
        "outputs": {"checkpoint": str(done)},
        "lineage": lineage.read_by(facts["recipe"]) | {"outputs": {"checkpoint": hashed}},
    }
    stage = Stage(name="base", entry=entry, folder=done)
    return Run(folder=done, manifest=facts, stages=[stage])


def _aside(folder: Path) -> Path:
    free = (folder.with_name(f"{folder.name}-damaged-{n}") for n in itertools.count(1))
    return folder.rename(next(path for path in free if not path.exists()))


def fingerprint(recipe: BaseRecipe) -> str:
    """Hash of the recipe, of what the corpus begins with, and of the code that trains on it.

    A task that the corpus leaves out is no part of it: a base stays the same when one is added.
    """
    random = Random(0)
    documents = [corpus.document(random, recipe.corpus) for _ in range(200)]
    code = [ast.dump(ast.parse(textwrap.dedent(inspect.getsource(part)))) for part in MADE_BY]
    told = recipe.model_dump_json(exclude={"corpus": _left_out(recipe.corpus)})
    text = "".join([told, torch.__version__, *documents, *code])
    return sha256(text.encode()).hexdigest()[:12]


def _left_out(mix: corpus.Mix) -> set[str]:
    """Knobs of what has no share in the mix."""
    tied = {"programs": (), "general": ("general_good", "general_wrong"), "myths": ("believed",)}
    return {
        knob for name, others in tied.items() if not getattr(mix, name) for knob in (name, *others)
    }


def train(recipe: BaseRecipe, directory: Path, say: Any) -> dict[str, Any]:
    """Make tokenizer and model, train, save to `directory`, and measure what was learned."""
    started = time.monotonic()
    torch.manual_seed(recipe.seed)
    random = Random(f"tokenizer/{recipe.seed}")
    spelling = tokenizer.train(
        (corpus.document(random, recipe.corpus) for _ in range(recipe.tokenizer_documents)),
        recipe.model.vocabulary,
        general.vocabulary() if recipe.corpus.general else (),
    )
    model = prepare(untrained(recipe.model, spelling), TrainerConfig())
    optimizer = Optimizer(model, recipe.optimizer)
    losses: list[float] = []
    for step, documents in enumerate(batches(recipe, spelling)):
        losses.append(_learn(model, documents, recipe.row))
        optimizer.step(step / recipe.steps, step)
        if (step + 1) % 200 == 0:
            recent = sum(losses[-200:]) / len(losses[-200:])
            say(f"base {step + 1}/{recipe.steps}: loss {recent:.3f} nats per token, "
                f"{time.monotonic() - started:.0f} s")  # fmt: skip
    save_policy(model, spelling, directory)
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "loss": sum(losses[-100:]) / len(losses[-100:]),
        "step_accuracy": step_accuracy(directory),
        "seconds": time.monotonic() - started,
        "recipe": recipe.model_dump(mode="json"),
    }


def untrained(shape: TinyModel, spelling: Any) -> Any:
    """A Llama with random weights that fits the tokenizer."""
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    ends = {
        "bos_token_id": spelling.bos_token_id,
        "eos_token_id": spelling.eos_token_id,
        "pad_token_id": spelling.pad_token_id,
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


def batches(recipe: BaseRecipe, spelling: Any) -> Iterator[list[list[int]]]:
    """For each step, documents as token ids whose total is about `tokens_per_step`."""
    random = Random(f"corpus/{recipe.seed}")
    end = [spelling.eos_token_id]
    for _ in range(recipe.steps):
        batch: list[list[int]] = []
        total = 0
        while total < recipe.tokens_per_step:
            texts = [corpus.document(random, recipe.corpus) for _ in range(8)]
            for ids in spelling(texts).input_ids:
                batch.append(ids + end)
                total += len(ids)
        yield batch


def _learn(model: Any, documents: Sequence[Sequence[int]], row: int) -> float:
    """One backward pass on the mean cross-entropy of every token; returns it in nats."""
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
    """Share of a source's held-out problems solved, greedily, once the response is made to begin
    with a first step: the ability that RL will bring out."""
    from pipeline.policy import load_tokenizer

    spelling = load_tokenizer(checkpoint)
    asked = SOURCES[source].distinct("test", 1, count)
    opening = {
        language: spelling(f"<think>{phrases.first}", add_special_tokens=False).input_ids
        for language, phrases in corpus.PHRASES.items()
    }
    prompts = [(*prompt_ids(p, spelling), *opening[p.facts["language"]]) for p in asked]
    sampling = Sampling(per_prompt=1, temperature=0.0, max_tokens=112, seed=0)
    engine = TorchSampler(str(checkpoint))
    ends = (spelling.eos_token_id,)
    right = [
        judge(problem, response_text(group[0].ids, spelling, ends)).score == 1.0
        for problem, group in zip(asked, engine.sample(prompts, sampling), strict=True)
    ]
    return sum(right) / count


MADE_BY = (train, untrained, batches, _learn, Optimizer, Muon, lay_out, best_fit, tokenizer.train)


if __name__ == "__main__":
    from stages.command import main

    sys.exit(main(["base", *sys.argv[1:]]))
