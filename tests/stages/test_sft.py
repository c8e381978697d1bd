"""Supervised fine-tuning as a stage: from any file in TRL's layout, resumed to the same bits."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM

from veriloop.data.generated_rows import general_answers, worked_sums
from veriloop.data.template import CHAT
from veriloop.pipeline.config.sft import SFTRecipe
from veriloop.pipeline.errors import RecipeError, StageError, Stopped
from veriloop.pipeline.model.policy import load_tokenizer
from veriloop.pipeline.rl.metrics import reproducible
from veriloop.pipeline.runs.record import read_metrics
from veriloop.stages import sft
from veriloop.stages.cli import main
from veriloop.stages.resumption import allowing


@pytest.fixture
def recipe(tiny_checkpoint):
    """Factory of small recipes on an untrained model."""

    def build(**changes):
        values = {
            "name": "test",
            "start": str(tiny_checkpoint()),
            "data": {"source": "arithmetic", "rows": 20, "held_out": 4},
            "batch": 8,
            "optimizer": {"learning_rate": 3e-3, "schedule": "cosine", "floor": 0.1},
            "sampler": {"engine": "torch"},
            "checkpoint": {"every": 1, "keep": 99},
            "tensorboard": False,
        }
        return SFTRecipe.model_validate(values | changes)

    return build


@pytest.fixture
def file(tmp_path):
    """Factory of JSONL files."""

    def write(rows):
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    return write


def test_evaluations_end_answers_at_the_stop_strings_of_the_recipe(recipe, monkeypatch):
    asked = []

    class Nothing:
        def flat(self):
            return {}

    def noted(*_, **named):
        asked.append(named["stop"])
        return Nothing()

    monkeypatch.setattr(sft, "evaluate_checkpoint", noted)
    deps = SimpleNamespace(
        tokenizer=SimpleNamespace(chat_template=None), console=SimpleNamespace(note=print),
        record=None, evaluations=lambda _: None, directory=None,
    )  # fmt: skip
    measured = SimpleNamespace(measure=dict)
    asks = recipe(examine=True, stop=["</answer>"])
    sft._evaluated(SimpleNamespace(deps=deps), measured, asks, Path(), step=0)
    assert asked == [("</answer>",)]


@pytest.mark.slow
def test_it_learns_to_write_as_it_is_shown(recipe, tmp_path, stage):
    made = sft.run(recipe(epochs=6), tmp_path, resume=False)
    told = stage(tmp_path)
    assert (told["name"], told["status"]) == ("sft", "done")
    assert told["outputs"]["checkpoint"] == str(made) and told["outputs"]["data"] == "arithmetic"
    assert (told["outputs"]["rows"], told["outputs"]["held_out"]) == (16, 4)
    assert told["after"]["eval_loss"] < 0.8 * told["before"]["eval_loss"]
    assert told["after"]["eval_mean_token_accuracy"] > told["before"]["eval_mean_token_accuracy"]
    rows = read_metrics(tmp_path / "sft" / "metrics.jsonl")
    assert len(rows) == 12 and rows[-1]["loss"] < rows[0]["loss"]
    assert rows[-1]["eval_loss"] == told["after"]["eval_loss"]
    assert rows[0]["learning_rate"] == 3e-3 and 3e-4 < rows[-1]["learning_rate"] < 5e-4
    AutoModelForCausalLM.from_pretrained(made)


@pytest.mark.slow
def test_any_layout_of_a_file_is_learned(recipe, file, tmp_path, stage):
    user, said = {"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}
    source = file(
        [
            {"prompt": "1+1?", "completion": "2"},
            {"prompt": [user], "completion": [said]},
            {"messages": [user, said, user, said]},
            {"text": "1+1=2"},
        ]
    )
    tokens = {}
    for turns in ("all", "last"):
        data = {"source": source, "turns": turns}
        sft.run(recipe(data=data, epochs=1), tmp_path / turns, resume=False)
        tokens[turns] = stage(tmp_path / turns)["outputs"]["learned_tokens"]
    assert tokens["all"] == tokens["last"] + 2  # one answer of one token, and its end
    assert stage(tmp_path / "all")["before"] == {}  # nothing held out, nothing examined


def test_a_file_may_be_used_in_part(recipe, file):
    rows = [{"prompt": f"{n}?", "completion": "2"} for n in range(6)]
    found = sft.load_rows(recipe(data={"source": file(rows), "rows": 4}).data)
    assert [row.prompt for row in found] == ["0?", "1?", "2?", "3?"]
    with pytest.raises(RecipeError, match=r"data\.rows=7: .* has 6 rows"):
        sft.load_rows(recipe(data={"source": file(rows), "rows": 7}).data)


def test_what_is_wrong_with_a_file_is_named(recipe, file):
    with pytest.raises(RecipeError, match=r"data\.source: .*line 1: .*'completions' is near"):
        sft.load_rows(recipe(data={"source": file([{"prompt": "p", "completions": "c"}])}).data)


def test_the_template_is_the_models_own_or_that_of_the_rl_stages(recipe, tmp_path):
    start = recipe().start
    tokenizer = load_tokenizer(start)
    tokenizer.chat_template = "{{ messages[0]['content'] }}"
    other = tmp_path / "other"
    AutoModelForCausalLM.from_pretrained(start).save_pretrained(other)
    tokenizer.save_pretrained(other)
    for template, wanted in (("own", tokenizer.chat_template), ("r1_zero", CHAT)):
        asked = recipe(data={"source": "arithmetic", "rows": 4, "template": template})
        assert sft.open_tokenizer(other, asked.data).chat_template == wanted


@pytest.mark.parametrize(
    ("rows", "chat", "asked"),
    [("own", CHAT, "chat"), ("own", None, "r1_zero"), ("r1_zero", CHAT, "r1_zero")],
)
def test_held_out_problems_are_asked_in_the_template_of_the_rows(
    recipe, monkeypatch, tmp_path, rows, chat, asked
):
    templates = []

    def fake(*_, template, **__):
        templates.append(template)
        return SimpleNamespace(flat=dict)

    monkeypatch.setattr(sft, "evaluate_checkpoint", fake)
    changed = recipe(examine=True, data={"source": "arithmetic", "rows": 4, "template": rows})
    tokenizer, console = SimpleNamespace(chat_template=chat), SimpleNamespace(note=print)
    deps = SimpleNamespace(
        tokenizer=tokenizer, console=console, evaluations=lambda _: None, directory=None
    )
    objective = sft.SFTObjective(gradient=lambda _: {}, measure=dict)
    sft._evaluated(SimpleNamespace(deps=deps), objective, changed, tmp_path, step=0)
    assert templates == [asked]


@pytest.mark.slow
def test_worked_solutions_of_a_source_are_learned(recipe, tmp_path, stage):
    sets = {"sums": {"gym": "chain_sum", "settings": {"max_terms": 3, "max_digits": 1}}}
    data = {"problems": {"sums": 1.0}, "rows": 20, "held_out": 4}
    sft.run(recipe(sets=sets, data=data), tmp_path, resume=False)
    told = stage(tmp_path)["outputs"]
    assert (told["data"], told["rows"], told["held_out"]) == ("sums", 16, 4)


@pytest.mark.slow
def test_too_few_worked_solutions_begin_no_run(recipe, tmp_path):
    sets = {"sums": {"gym": "chain_sum", "settings": {"max_terms": 2, "max_digits": 1}}}
    asked = recipe(sets=sets, data={"problems": {"sums": 1.0}, "rows": 500})
    with pytest.raises(RecipeError, match=r"data\.problems: sums: \d+ different questions"):
        sft.run(asked, tmp_path / "run", resume=False)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_run_that_stops_goes_on_to_the_same_bits(recipe, tmp_path, stopping, stage):
    whole = sft.run(recipe(), tmp_path / "whole", resume=False)
    with stopping():
        for at in (1, 2):
            with pytest.raises(Stopped, match=f"stopped after step {at} of 4"):
                sft.run(recipe(), tmp_path / "broken", resume=at > 1)
    with pytest.raises(RecipeError, match="epochs: 2 -> 5"):
        sft.run(recipe(epochs=5), tmp_path / "broken", resume=True)
    broken = sft.run(recipe(), tmp_path / "broken", resume=True)
    assert (broken / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    both = [stage(tmp_path / name) for name in ("whole", "broken")]
    assert both[0]["before"] == both[1]["before"] and both[0]["after"] == both[1]["after"]
    metrics = [read_metrics(tmp_path / n / "sft" / "metrics.jsonl") for n in ("whole", "broken")]
    assert [*map(reproducible, metrics[0])] == [*map(reproducible, metrics[1])]
    assert sft.run(recipe(), tmp_path / "broken", resume=True) == broken


@pytest.mark.slow
def test_a_run_does_not_go_on_with_other_data(recipe, file, tmp_path, stopping, stage):
    rows = [{"prompt": f"{n}?", "completion": "2"} for n in range(16)]
    asked = recipe(data={"source": file(rows)})
    with stopping(), pytest.raises(Stopped):
        sft.run(asked, tmp_path / "run", resume=False)
    file([*rows[:-1], {"prompt": "15?", "completion": "3"}])
    with pytest.raises(RecipeError, match=r"has changed \(file data.source = \S+: \w+ -> \w+\)"):
        sft.run(asked, tmp_path / "run", resume=True)
    begun = stage(tmp_path / "run")
    with allowing(["file"]), stopping(), pytest.raises(Stopped):
        sft.run(asked, tmp_path / "run", resume=True)
    file(rows)
    sft.run(asked, tmp_path / "run", resume=True)
    ended = stage(tmp_path / "run")
    assert [change["name"] for change in ended["allowed_changes"]] == ["data.source", "data"]
    assert ended["lineage"]["inputs"] == begun["lineage"]["inputs"]
    assert len(ended["outputs"]["data_sha256"]) == 64


@pytest.mark.slow
def test_a_failure_of_any_kind_is_recorded_and_the_stage_resumes(
    recipe, tmp_path, monkeypatch, stage
):
    sft.run(recipe(), tmp_path / "whole", resume=False)
    real = sft.gradient
    for failure, reason in [
        (StageError("not what was asked for"), "not what was asked for"),
        (RecipeError("no such thing"), "no such thing"),
        (OSError(28, "No space left on device"), "OSError: [Errno 28] No space left on device"),
        (ZeroDivisionError("a bug"), "ZeroDivisionError: a bug"),
    ]:
        taken = []

        def gradient(*inputs, failure=failure, taken=taken):
            taken.append(inputs)
            if len(taken) == 2:
                raise failure
            return real(*inputs)

        folder = tmp_path / type(failure).__name__
        with monkeypatch.context() as patched:
            patched.setattr(sft, "gradient", gradient)
            with pytest.raises(type(failure)) as met:
                sft.run(recipe(), folder, resume=False)
        assert met.value is failure
        told = stage(folder)
        assert (told["status"], told["outputs"]) == ("failed", {"failure": reason})
        assert told["seconds"] > 0 and told["before"] == told["after"] == {}
        made = sft.run(recipe(), folder, resume=True)
        assert stage(folder)["status"] == "done"
        whole = tmp_path / "whole" / made.relative_to(folder) / "model.safetensors"
        assert (made / "model.safetensors").read_bytes() == whole.read_bytes()


def test_a_file_that_is_not_there_begins_no_run(recipe, tmp_path):
    with pytest.raises(FileNotFoundError):
        sft.run(recipe(data={"source": "none.jsonl"}), tmp_path / "run", resume=False)
    assert not (tmp_path / "run").exists()


def test_an_unavailable_gpu_begins_no_run(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RecipeError, match=r"trainer.device=cuda:1: .* auto and cpu are available"):
        sft.run(recipe(trainer={"device": "cuda:1"}), tmp_path / "run", resume=False)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_evaluations_at_both_ends_are_recorded(recipe, tmp_path, monkeypatch, stage):
    asked = []

    def fake(checkpoint, evaluation, sampler, *, max_tokens, say, keep, template, **more):
        keep([])
        assert list(more["sources"]) == ["arithmetic"] and template == "chat"
        assert more["error_share"] == 0.5
        asked.append((checkpoint, evaluation.problems, sampler.engine, max_tokens))
        flat = {"pass@1": len(asked) / 10, "format": 0.5}
        return type("Evaluation", (), {"flat": lambda _: flat})()

    monkeypatch.setattr(sft, "evaluate_checkpoint", fake)
    changed = recipe(examine=True, evaluation={"problems": 3}, max_tokens=8)
    made = sft.run(changed, tmp_path, resume=False)
    assert asked == [(Path(changed.start), 3, "torch", 8), (made, 3, "torch", 8)]
    assert stage(tmp_path)["before"]["pass@1"] == 0.1 and stage(tmp_path)["after"]["pass@1"] == 0.2
    kept = sorted(path.name for path in (tmp_path / "sft/evaluated").iterdir())
    assert kept[0] == "step_000000.parquet" and len(kept) == 2


@pytest.mark.slow
def test_the_command_trains_on_any_file(recipe, file, tmp_path, capsys):
    source = file(list(worked_sums(0, 6)))
    words = ["sft", "tiny/sft", "--start", recipe().start, "--data.source", source]
    words += ["--data.rows", "0", "--data.held-out", "0", "--no-examine", "--epochs", "1"]
    words += ["--trainer.device", "cpu"]
    assert main([*words, "--output", str(tmp_path / "run"), "--dry-run"]) == 0
    assert f"every row of {source}" in capsys.readouterr().out
    assert not (tmp_path / "run").exists()
    assert main([*words, "--output", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert "sft: the trainer is on CPU" in said and "step_000001" in said
    (row,) = read_metrics(tmp_path / "run" / "sft" / "metrics.jsonl")
    assert row["loss"] > 0 and row["tokens"] > 6


def test_answers_to_general_prompts_are_rows_too(recipe):
    config = recipe(data={"source": "general", "rows": 3, "seed": 4}).data
    rows = sft.load_rows(config)
    written = [row["completion"][0]["content"] for row in general_answers(4, 3)]
    assert [row.messages[-1]["content"] for row in rows] == written
    with pytest.raises(ValueError, match="rows=0: generated data has no end"):
        recipe(data={"source": "general"})
