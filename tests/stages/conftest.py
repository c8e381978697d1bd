"""Fixtures of several stages: a fake teacher, stop requests, the recorded stage."""

import json
import re
from contextlib import contextmanager

import pytest

from veriloop.data import arithmetic
from veriloop.data.corpus import PHRASES
from veriloop.pipeline.model.policy import load_tokenizer
from veriloop.pipeline.sampling.sampler import Completion
from veriloop.pipeline.training import trainer
from veriloop.pipeline.training.stop import StopRequest
from veriloop.stages import stage_run, teacher_data
from veriloop.verifiers import registry
from veriloop.verifiers.registry import fingerprint, judge


class ArithmeticEngine:
    """A fake engine: works each sum out, completion k off by k."""

    name, version = "knowing", 0

    def __init__(self, tokenizer):
        self.tokenizer, self.asked = tokenizer, []

    def sample(self, prompts, sampling, told=None):
        del told
        self.asked.append(len(prompts))
        return [
            [self.completion(prompt, wrong) for wrong in range(sampling.per_prompt)]
            for prompt in prompts
        ]

    def completion(self, prompt, wrong):
        text = self.tokenizer.decode(prompt)
        chain = arithmetic.parse(re.findall(r"\d+(?:[+-]\d+)+", text)[-1])
        phrases = PHRASES["zh" if re.search("[一-鿿]", text) else "en"]
        said, value = "", chain.value + wrong
        while chain.rest:
            chain = chain.step()
            said += f"{phrases.then if said else phrases.first}{chain}{phrases.stop}"
        answer = f"<think>{said}</think><answer>{value}</answer>"
        ids = (*self.tokenizer(answer, add_special_tokens=False).input_ids, 2)
        return Completion(ids=ids, logp=(0.0,) * len(ids), finish="stop")

    def close(self):
        pass


class InProcessVerifiers:
    """Runs the verifiers in this process."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def judge_all(self, tasks):
        return [judge(problem, response) for problem, response in tasks]

    def fingerprint(self, names):
        return fingerprint(names)


@pytest.fixture
def teacher(tiny_checkpoint, monkeypatch):
    """A checkpoint whose engine knows its sums; `engine.asked` counts the questions of a round."""
    folder = tiny_checkpoint()
    engine = ArithmeticEngine(load_tokenizer(folder))
    monkeypatch.setattr(teacher_data, "open_sampler", lambda *_, **__: engine)
    monkeypatch.setattr(stage_run, "open_judges", lambda *_, **__: InProcessVerifiers())
    return folder, engine


@pytest.fixture
def collected_values(teacher):
    """Values that the recipes of cold start and rejection sampling share."""
    return {
        "name": "test",
        "start": str(teacher[0]),
        "teacher": str(teacher[0]),
        "collect": {"questions": 12, "per_prompt": 2, "at_once": 5},
        "filters": {"min_words": 2, "distinct": 0.0},
        "epochs": 1,
        "batch": 4,
        "optimizer": {"learning_rate": 1e-3},
        "sampler": {"engine": "torch"},
        "evaluation": {"problems": 8},
        "examine": False,
        "checkpoint": {"every": 1, "keep": 99},
        "tensorboard": False,
    }


@pytest.fixture
def changed_verifiers(tmp_path_factory, monkeypatch):
    """Function: from now on the code of every verifier is another."""

    def change():
        path = tmp_path_factory.mktemp("verifiers") / "other.py"
        path.write_text("# other code")
        monkeypatch.setattr(registry, "source_files", lambda modules: [path])

    return change


class StopAfter(StopRequest):
    """Asks for a stop before anything is done: the run ends after its first step."""

    def __enter__(self):
        opened = super().__enter__()
        self.requested = True
        return opened


@pytest.fixture
def stopping(monkeypatch):
    """Function: a block in which every training loop stops after its first step."""

    @contextmanager
    def block():
        with monkeypatch.context() as patched:
            patched.setattr(trainer, "StopRequest", StopAfter)
            yield

    return block


@pytest.fixture
def stage():
    """Function: the last entry of a folder's run.json."""

    def last(output):
        return json.loads((output / "run.json").read_text())["stages"][-1]

    return last


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder without outputs/, to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def no_hub(monkeypatch):
    """A missing folder such as models/none reads like an id: no test looks it up on the hub."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
