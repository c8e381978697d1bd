"""A checkpoint examined by any stage: the sources asked, and everything closed behind it."""

from dataclasses import replace

import pytest

from veriloop.data.problem import Problem
from veriloop.data.sources import SOURCES
from veriloop.pipeline.config.sections import EvaluationConfig, SamplerConfig
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.runs import lineage
from veriloop.pipeline.sampling.torch_engine import TorchSampler
from veriloop.stages.held_out import evaluate_checkpoint
from veriloop.verifiers.registry import fingerprint

pytestmark = pytest.mark.usefixtures("one_pool")


class Anything:
    """General prompts whose exact rule accepts any words."""

    def distinct(self, split, seed, count):
        facts = {"source": "general", "language": "en"}
        return [
            Problem(id=f"general/{split}/{i}", prompt="Hi.", verifier="length",
                    reference={"length": {"at_most": 10_000, "part": "all"}}, facts=facts)
            for i in range(count)
        ]  # fmt: skip


def test_each_source_is_asked_and_the_sampler_closed(tiny_checkpoint, monkeypatch):
    monkeypatch.setitem(SOURCES, "general", Anything())
    closed = []
    monkeypatch.setattr(TorchSampler, "close", lambda self: closed.append(self), raising=False)
    asked = EvaluationConfig(
        sources=("arithmetic", "general"), problems=3, samples=2, temperature=0.7
    )
    said = []
    result = evaluate_checkpoint(
        tiny_checkpoint(), asked, SamplerConfig(engine="torch"), max_tokens=8, say=said.append
    )
    assert (result.problems, result.samples, result.temperature) == (6, 2, 0.7)
    assert result.estimates["general"].value > 0.0 == result.estimates["pass@1"].value
    assert result.estimates["pass@1"].n == 3 and result.estimates["language"].n == 6
    assert len(closed) == 1


def test_prompts_beyond_the_limit_are_refused_with_the_longest(tiny_checkpoint, monkeypatch):
    monkeypatch.setattr("veriloop.stages.held_out.open_judges", None)  # before anything is opened

    class Longer(Anything):
        def distinct(self, split, seed, count):
            problems = super().distinct(split, seed, 3)
            return [replace(p, prompt="1+" * 200 * n + "1") for n, p in enumerate(problems)]

    said = r"--max-prompt 256: 2 of 3 .*, general/test/2, has (\d+) tokens; set --max-prompt \1$"
    with pytest.raises(RecipeError, match=said):
        evaluate_checkpoint(
            tiny_checkpoint(), EvaluationConfig(sources=("general",), problems=3, samples=1),
            SamplerConfig(engine="torch"), max_tokens=4, say=print, max_prompt=256,
            sources={"general": Longer()},
        )  # fmt: skip


def test_answers_end_at_the_stop_strings(tiny_checkpoint, monkeypatch):
    asked = []

    class Noting(TorchSampler):
        def sample(self, prompts, sampling, told=None):
            asked.append(sampling)
            return super().sample(prompts, sampling, told)

    def opened(config, checkpoint, *, max_length, say):
        del config, max_length, say
        return Noting(checkpoint)

    monkeypatch.setattr("veriloop.stages.held_out.open_sampler", opened)
    evaluate_checkpoint(
        tiny_checkpoint(), EvaluationConfig(problems=1, samples=1), SamplerConfig(engine="torch"),
        max_tokens=4, say=print, stop=("</answer>",),
    )  # fmt: skip
    assert {sampling.stop for sampling in asked} == {("</answer>",)} and len(asked) == 2


def test_the_sampler_has_room_for_the_longest_prompt(tiny_checkpoint, monkeypatch):
    rooms = []

    def opened(config, checkpoint, *, max_length, say):
        rooms.append(max_length)
        return TorchSampler(checkpoint)

    monkeypatch.setattr("veriloop.stages.held_out.open_sampler", opened)

    class Long(Anything):
        def distinct(self, split, seed, count):
            return [replace(p, prompt="1+" * 200 + "1") for p in super().distinct(split, seed, 1)]

    for source in (Anything(), Long()):
        evaluate_checkpoint(
            tiny_checkpoint(), EvaluationConfig(sources=("general",), problems=1, samples=1),
            SamplerConfig(engine="torch"), max_tokens=4, say=print, sources={"general": source},
        )  # fmt: skip
    assert rooms[0] == 256 + 4 < 400 < rooms[1]


@pytest.mark.slow
def test_the_seed_decides_the_samples(tiny_checkpoint):
    asked = EvaluationConfig(problems=4, samples=2)

    def length(seed):
        engine = SamplerConfig(engine="torch")
        found = evaluate_checkpoint(
            tiny_checkpoint(), asked, engine, max_tokens=16, say=print, seed=seed
        )
        return found.flat()

    assert length(1) == length(1) != length(2)


def test_a_checkpoint_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(RecipeError, match=str(tmp_path)):
        evaluate_checkpoint(
            tmp_path / "none", EvaluationConfig(problems=1), SamplerConfig(engine="torch"),
            max_tokens=4, say=print,
        )  # fmt: skip


def test_the_verifiers_of_an_evaluation_are_noted_in_the_folder_of_its_stage(
    tiny_checkpoint, tmp_path
):
    evaluate_checkpoint(
        tiny_checkpoint(), EvaluationConfig(problems=1, samples=1), SamplerConfig(engine="torch"),
        max_tokens=4, say=print, directory=tmp_path,
    )  # fmt: skip
    noted = lineage.verifier_fingerprints(tmp_path)
    assert noted == fingerprint(noted) and "number" in noted
