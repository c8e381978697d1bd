"""Miniatures of recipes for real models: a random model of the same architecture, rows in the
schema of the same sets, and every size cut down. All else is the recipe's own."""

import json
import runpy
from collections import Counter
from pathlib import Path
from types import MappingProxyType

import pytest
import torch
import yaml
from datasets import Dataset

from tests.chatml import with_chatml
from veriloop.data.sources import SOURCES
from veriloop.pipeline.config.load import read, read_values, validate, with_flags
from veriloop.pipeline.model.policy import load_tokenizer, save_policy
from veriloop.pipeline.model.scalar_head import load_classifier
from veriloop.pipeline.rollouts import grade
from veriloop.pipeline.sampling.sampler import Completion
from veriloop.stages import stage_run, teacher_data
from veriloop.stages.cli import main
from veriloop.verifiers.registry import judge
from veriloop.verifiers.verdict import Verdict

ROOT = Path(__file__).parents[2]

QWEN2 = {"vocab_size": 151936, "tie_word_embeddings": True, "num_key_value_heads": 2}
SMALL_QWEN2 = {"hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14,
               "intermediate_size": 4864}  # fmt: skip
ARCHITECTURES = {  # as the config.json of the published model has them
    "0.5B": ("qwen2", QWEN2 | SMALL_QWEN2),
    "1.5B": ("qwen2", QWEN2 | {"hidden_size": 1536, "num_hidden_layers": 28,
                               "num_attention_heads": 12, "intermediate_size": 8960}),
    "3B": ("qwen2", QWEN2 | {"hidden_size": 2048, "num_hidden_layers": 36,
                             "num_attention_heads": 16, "intermediate_size": 11008}),
    "7B": ("qwen2", {"hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28,
                     "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064,
                     "tie_word_embeddings": False}),
    "32B": ("qwen2", {"hidden_size": 5120, "num_hidden_layers": 64, "num_attention_heads": 40,
                      "num_key_value_heads": 8, "intermediate_size": 27648, "vocab_size": 152064,
                      "tie_word_embeddings": False}),
    "1.7B": ("qwen3", {"hidden_size": 2048, "num_hidden_layers": 28, "num_attention_heads": 16,
                       "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 6144,
                       "vocab_size": 151936, "tie_word_embeddings": True}),
    "135M": ("llama", {"hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9,
                       "num_key_value_heads": 3, "intermediate_size": 1536, "vocab_size": 49152,
                       "tie_word_embeddings": True}),
    "81M": ("llama", {"hidden_size": 576, "num_hidden_layers": 15, "num_attention_heads": 9,
                      "num_key_value_heads": 3, "intermediate_size": 1536, "vocab_size": 49152,
                      "tie_word_embeddings": True}),
    "zephyr": ("mistral", {"hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 32000,
                           "num_attention_heads": 32, "num_key_value_heads": 8,
                           "intermediate_size": 14336, "sliding_window": 4096,
                           "tie_word_embeddings": False}),
}  # fmt: skip
MODELS = {
    "models/Qwen2-0.5B": "0.5B", "models/Qwen2.5-0.5B": "0.5B", "models/Qwen2.5-1.5B": "1.5B",
    "models/Qwen2.5-Math-1.5B": "1.5B", "models/Qwen2.5-3B": "3B", "models/Qwen2.5-7B": "7B",
    "models/Qwen2.5-Math-7B": "7B", "models/Qwen2.5-Math-7B-32k": "7B",
    "models/Qwen2.5-7B-Instruct-1M": "7B", "models/Qwen2.5-32B": "32B",
    "models/Qwen3-1.7B-Base": "1.7B",
    "models/zephyr-7b-sft-full": "zephyr", "models/r1-zero": "1.5B", "models/r1-sft": "1.5B",
    "models/r1-cold-start": "1.5B", "models/r1-reasoning": "1.5B",
    "models/SmolLM2-135M-Instruct": "135M", "models/smollm2-cold-start": "135M",
    "models/smollm2-reasoning": "135M", "models/SmolLM2-15-layers": "81M",
    "models/smollm2-student": "81M",
}  # fmt: skip
SMOLLM2 = ("135M", "81M")  # whose BOS token begins a turn
SMALL = {
    "vocab_size": 400, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "initializer_range": 0.05,
    "max_position_embeddings": 32768, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
CHAT = (
    "{{ bos_token }}{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}"
    "{% if m['role'] == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)

HUB = runpy.run_path(str(ROOT / "tests/data/hub/conftest.py"))["ROWS"]  # the published schemas
TACO = {"problem": "", "solutions": [""], "tests": "", "starter_code": ""}  # as rLLM reads it


def talk(n):
    answers = {side: [{"role": "user", "content": f"Hello {n}?"},
                      {"role": "assistant", "content": f"{said} {n}"}]
               for side, said in (("chosen", "Good day"), ("rejected", "What"))}  # fmt: skip
    return {"prompt": f"Hello {n}?", **answers}


def asked(n):
    before = HUB["dapo_math"][0]["prompt"][0]
    return {"prompt": [before | {"content": before["content"].replace("17*2", f"{n}*2")}]}


CHANGES = {  # what makes row n of a set another one; the other columns are as they were
    "gsm8k": lambda n: {
        "question": f"Ann has one pear, and then {n}?", "answer": f"1+{n}={n + 1}\n#### {n + 1}",
    },
    "svamp": lambda n: {
        "Question": f"How many pears are one and {n}?", "Equation": f"( {n}.0 + 1.0 )",
        "Answer": n + 1.0,
    },
    "math": lambda n: {
        "problem": f"What is $1+{n}$?", "solution": f"\\boxed{{{n + 1}}}",
        "level": f"Level {n % 5 + 1}",
    },
    "math500": lambda n: {"problem": f"Which number follows ${n}$?", "answer": str(n + 1)},
    "aime24": lambda n: {"problem": f"Find ${n}+2$.", "answer": str(n + 2)},
    "countdown": lambda n: {"nums": [n, n + 1, 3], "target": 2 * n + 4},
    "dapo_math": asked,
    "mbpp": lambda n: {"task_id": n, "text": f"Write function number {n} to add."},
    "humaneval_plus": lambda n: {
        "task_id": f"HumanEval/{n}",
        "prompt": HUB["humaneval"][0]["prompt"].replace("a + 1", f"a + 1, number {n}"),
    },
    "deepcoder_taco": lambda n: {
        "problem": f"Add {n} to the number.", "solutions": [f"print(int(input()) + {n})"],
        "tests": json.dumps({"inputs": ["1\n", "5\n"], "outputs": [f"{n + 1}\n", f"{n + 5}\n"]}),
    },
    "general": talk,
}  # fmt: skip
LIKE = HUB | {"deepcoder_taco": [TACO], "general": HUB["ultrafeedback_binarized"]}
SPLITS = ("train", "test", "train_prefs", "test_prefs")


class EverySecond:
    """Stands in for the verifiers: of the answers to a question every second one is right, so
    that a random model earns rewards that differ."""

    def __init__(self, *_, **__):
        self.seen = Counter()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def judge_all(self, tasks):
        return [Verdict(score=self.score(problem)) for problem, _ in tasks]

    def score(self, problem):
        self.seen[problem.id, problem.verifier] += 1
        return float(self.seen[problem.id, problem.verifier] % 2)

    def begin_to_warm(self, names):
        pass

    def fingerprint(self, names):
        return {name: "1+test" for name in names}

    def close(self):
        pass


class CountingEngine:
    """A fake teacher engine: thinks in many words and adds one to the last number."""

    name, version = "knowing", 0

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def sample(self, prompts, sampling, told=None):
        del told
        return [[self.answer(p, wrong) for wrong in range(sampling.per_prompt)] for p in prompts]

    def answer(self, prompt, wrong):
        text = self.tokenizer.decode(prompt)
        number = int("".join(c if c.isdigit() else " " for c in text).split()[-1])
        thought = " ".join(f"I count to {at} and then further on." for at in range(6))
        said = f"<think>{thought}</think><answer>{number + 1 + wrong}</answer>"
        ids = (
            *self.tokenizer(said, add_special_tokens=False).input_ids,
            self.tokenizer.eos_token_id,
        )
        return Completion(ids=ids, logp=(0.0,) * len(ids), finish="stop")

    def close(self):
        pass


class InProcessVerifiers(EverySecond):
    """Runs the real verifiers in this process."""

    def judge_all(self, tasks):
        return [judge(problem, response) for problem, response in tasks]


@pytest.fixture(scope="session")
def checkpoints(tiny_checkpoint, tmp_path_factory):
    """Folder with a small random model of each architecture, by its name in ARCHITECTURES."""
    from transformers import AutoConfig, AutoModelForCausalLM

    folder = tmp_path_factory.mktemp("architectures")
    tokenizer = load_tokenizer(tiny_checkpoint())
    tokenizer.chat_template = CHAT
    chatml = with_chatml(tokenizer)
    for seed, (name, (kind, shape)) in enumerate(ARCHITECTURES.items()):
        torch.manual_seed(seed)  # a student is no copy of its teacher
        own = chatml if name in SMOLLM2 else tokenizer
        ends = {"bos_token_id": own.bos_token_id, "eos_token_id": own.eos_token_id}
        room = {"vocab_size": max(SMALL["vocab_size"], len(own))}
        model = AutoModelForCausalLM.from_config(
            AutoConfig.for_model(kind, **shape | SMALL | ends | room), dtype=torch.float32
        )
        save_policy(model, own, folder / name)
    classifier = load_classifier(folder / "1.5B", tokenizer)
    classifier.save_pretrained(folder / "reward")
    tokenizer.save_pretrained(folder / "reward")
    return folder


@pytest.fixture
def published(tmp_path, monkeypatch):
    """A folder with the published models of the recipes; of each there is only its config.json."""
    for name, size in MODELS.items():
        kind, values = ARCHITECTURES[size]
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.json").write_text(json.dumps({"model_type": kind, **values}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def place(tmp_path, checkpoints, monkeypatch):
    """A folder with all that the recipes name, to work in; nothing is fetched."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "models").mkdir()
    for path, name in MODELS.items():
        (tmp_path / path).symlink_to(checkpoints / name)
    (tmp_path / "models/r1-reward").symlink_to(checkpoints / "reward")
    for name, change in CHANGES.items():
        (tmp_path / "sets" / name).mkdir(parents=True)
        for first, split in enumerate(SPLITS):
            rows = [LIKE[name][0] | change(n) for n in range(5 + 40 * first, 35 + 40 * first)]
            assert all(row.keys() == LIKE[name][0].keys() for row in rows), "another schema"
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (tmp_path / "sets" / name / f"{split}.jsonl").write_text(text)
    monkeypatch.chdir(tmp_path)
    pairs = ["--path", "sets/general", "--to", "trl", "--output", "data/ultrafeedback.jsonl"]
    assert main(["data", "export", "ultrafeedback_binarized", *pairs]) == 0
    talks = [{"messages": talk(n)["chosen"]} for n in range(9)]
    Dataset.from_list(talks).to_parquet(tmp_path / "data/general.parquet")
    lines = [json.dumps(one) + "\n" for one in talks]
    (tmp_path / "data/general.jsonl").write_text("".join(lines))
    (tmp_path / "data/rejection.jsonl").write_text("".join(lines))
    return tmp_path


SIZES = {
    "rl": {
        "steps": 2, "rollout.prompts": 2, "rollout.per_prompt": 2, "rollout.max_tokens": 12,
        "rollout.max_prompt": 1200, "algorithm.minibatches": 1,
    },
    "collected": {
        "collect.questions": 6, "collect.per_prompt": 2, "collect.at_once": 3, "collect.rows": 0,
        "collect.max_prompt": 1200, "data.held_out": 1, "data.max_tokens": 2000, "batch": 2,
        "filters.max_tokens": 0, "max_tokens": 12,
    },
    "pairs": {"data.held_out": 4, "batch": 8},
    "distilled": {"data.held_out": 1, "data.max_tokens": 2000, "batch": 4, "max_tokens": 12},
    "worked": {"data.rows": 8, "data.held_out": 1, "data.max_tokens": 2000, "batch": 4,
               "max_tokens": 12},
    "sampled pairs": {"rollout.prompts": 4, "rollout.per_prompt": 2, "rollout.max_tokens": 12,
                      "rollout.max_prompt": 1200, "batch": 2},
    "on policy": {"steps": 2, "rollout.prompts": 2, "rollout.per_prompt": 2,
                  "rollout.max_tokens": 12, "rollout.max_prompt": 1200},
}  # fmt: skip
KINDS = {
    "zero": "rl", "reasoning_rl": "rl", "preference_rl": "rl", "cold_start": "collected",
    "rejection_sft": "collected", "preference": "pairs", "reward_model": "pairs",
    "distill": "distilled", "sft": "worked",
}  # fmt: skip


def kind_of(recipe):
    """The key of SIZES for a recipe."""
    if recipe.stage == "preference" and recipe.schedule.samples:
        return "sampled pairs"
    on_policy = recipe.stage == "distill" and recipe.method == "on_policy"
    return "on policy" if on_policy else KINDS[recipe.stage]


def cut_down(name, changes=MappingProxyType({})):
    """The keys of a recipe with these changes, its sizes cut down, and its sets in files."""
    values = with_flags(read_values(name), changes)
    recipe = validate(values, name)
    small = dict(SIZES[kind_of(recipe)])
    small |= {"trainer.row": 256, "trainer.rows": 2, "checkpoint.every": 0, "tensorboard": False}
    if "epochs" in values:
        small["epochs"] = 1
    if "sampler" in values:
        small["sampler"] = {"engine": "torch"}
        sources = values["evaluation"]["sources"]
        small["evaluation"] = {"sources": sources, "problems": 2, "samples": 1}
        small["sets"] = in_files(values, recipe)
    if values.get("reward", {}).get("overlong"):
        small["reward.overlong"] = 6
    if recipe.stage == "rejection_sft":
        small["general.source"] = "data/general.jsonl"
    return with_flags(values, small)


def in_files(values, recipe):
    """Each source of the recipe that is not generated, from the folder that `place` has written."""
    given = values.get("sets", {})
    parts = (values, values.get("collect", {}), values.get("data", {}))
    names = {*recipe.evaluation.sources, *(n for part in parts for n in part.get("problems", ()))}
    names |= {other for one in given.values() for other in one.get("against", ())}
    sets = {
        name: one if "gym" in one else one | {"path": f"sets/{name}", "repo": ""}
        for name, one in ((name, given.get(name, {})) for name in sorted(names - {*SOURCES}))
    }
    return {n: one | ({"held_out": 0.4} if "held_out" in one else {}) for n, one in sets.items()}


@pytest.fixture
def miniature(place, monkeypatch):
    """Function: the words that run a recipe cut down, judged by stand-ins."""
    monkeypatch.setattr(grade, "VerifierPool", EverySecond)
    monkeypatch.setattr(stage_run, "sandbox_facts", lambda *_: {})
    monkeypatch.setattr(teacher_data, "sandbox_facts", lambda *_: {})
    monkeypatch.setattr(
        teacher_data, "open_sampler", lambda _, start, **__: CountingEngine(load_tokenizer(start))
    )
    monkeypatch.setattr(teacher_data, "open_verifiers", lambda *_, **__: InProcessVerifiers())

    def words(name, *more):
        values = whole(name, place) if read(name).stage == "r1" else cut_down(name)
        (place / "recipe.yaml").write_text(yaml.safe_dump(values))
        return [read(name).stage.replace("_", "-"), "recipe.yaml", "--output", "run", *more]

    return words


def whole(name, place):
    """The list of a whole run without goals, each stage's recipe cut down in a file of its own."""
    values = read_values(name)
    for stage in values["stages"]:
        path = place / f"{stage['name']}.yaml"
        path.write_text(yaml.safe_dump(cut_down(stage["recipe"], stage.pop("set", {}))))
        stage["recipe"] = str(path)
        stage.pop("goals", None)
    return values
