"""The base model: cached by its recipe, refused when too weak, saved as an ordinary checkpoint."""

import json
import subprocess
import sys

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

from veriloop.data import corpus
from veriloop.data.template import R1_ZERO
from veriloop.pipeline.config.pretraining import BaseRecipe
from veriloop.pipeline.runs.manifest import AGAIN, RunManifest
from veriloop.stages import base
from veriloop.stages.stage_run import starting_point
from veriloop.verifiers.verdict import Verdict


def recipe(**changes):
    values = {
        "name": "test/base",
        "steps": 3,
        "tokens_per_step": 256,
        "tokenizer_documents": 300,
        "model": {"hidden": 32, "layers": 1, "heads": 1, "feed_forward": 48, "vocabulary": 400},
        "optimizer": {"learning_rate": 4e-3, "muon_learning_rate": 2e-2},
        "step_accuracy": 0.0,
    }
    return BaseRecipe.model_validate(values | changes)


@pytest.fixture(autouse=True)
def few_problems(monkeypatch, tmp_path):
    monkeypatch.setattr(base, "CACHE", tmp_path / "cache")
    measured = base.step_accuracy
    monkeypatch.setattr(base, "step_accuracy", lambda folder: measured(folder, 4))


@pytest.mark.slow
def test_it_is_made_once_and_found_again(capsys):
    made = base.ensure(recipe())
    before = (made / "model.safetensors").stat().st_mtime_ns
    assert base.ensure(recipe()) == made
    assert (made / "model.safetensors").stat().st_mtime_ns == before
    assert f"cached in {made}" in capsys.readouterr().out


@pytest.mark.slow
def test_another_recipe_is_another_model_and_the_same_one_the_same_bits(tmp_path, monkeypatch):
    first = base.ensure(recipe())
    assert base.ensure(recipe(seed=1)) != first
    monkeypatch.setattr(base, "CACHE", tmp_path / "elsewhere")
    again = base.ensure(recipe())
    assert again.name == first.name
    assert (again / "model.safetensors").read_bytes() == (first / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_in_bfloat16_both_passes_compute_in_it_and_the_saved_weights_are_float32(monkeypatch):
    seen, scored = [], base.score

    def watched(model, *args, **rest):
        hook = model.model.layers[0].mlp.register_forward_hook(
            lambda _, __, made: seen.append(made.dtype)
        )
        try:
            return scored(model, *args, **rest)
        finally:
            hook.remove()

    monkeypatch.setattr(base, "score", watched)
    monkeypatch.setattr(base, "cpu_flags", lambda: {"amx_bf16"})
    half, whole = (base.ensure(recipe(compute=c)) for c in ("auto", "float32"))
    assert seen == [torch.bfloat16] * 3 + [torch.float32] * 3 and half != whole
    one, other = (
        AutoModelForCausalLM.from_pretrained(folder).state_dict() for folder in (half, whole)
    )
    for name, weight in one.items():
        assert weight.dtype == torch.float32
        torch.testing.assert_close(weight, other[name], atol=0.05, rtol=0)
    assert not torch.equal(one["lm_head.weight"], other["lm_head.weight"])
    facts = [json.loads((folder / "base.json").read_text()) for folder in (half, whole)]
    assert [fact["compute"] for fact in facts] == ["bfloat16", "float32"]
    assert facts[0]["loss"] == pytest.approx(facts[1]["loss"], abs=0.02)


@pytest.mark.parametrize(
    ("flags", "precision"),
    [({"avx2", "avx512_bf16"}, "bfloat16"), ({"bf16"}, "bfloat16"), ({"avx2"}, "float32"),
     (set(), "float32")],
)  # fmt: skip
def test_auto_is_bfloat16_on_a_cpu_that_is_known_to_compute_in_it(monkeypatch, flags, precision):
    monkeypatch.setattr(base, "cpu_flags", lambda: flags)
    assert base.precision_of(recipe(compute="auto")) == precision
    assert base.precision_of(recipe()) == "float32"
    assert base.precision_of(recipe(compute="bfloat16")) == "bfloat16"


def test_a_corpus_that_reads_otherwise_is_another_model(monkeypatch):
    first = base.fingerprint(recipe())
    assert base.fingerprint(recipe()) == first
    fact = corpus.fact
    monkeypatch.setattr(corpus, "fact", lambda random: fact(random) + " ")
    assert base.fingerprint(recipe()) != first


def test_a_task_that_is_left_out_does_not_make_another_model():
    before = base.fingerprint(recipe())
    assert base.fingerprint(recipe(corpus={"general_good": 0.5})) == before  # of no talk at all
    others = [{"programs": 0.2}, {"general": 0.2}, {"general": 0.2, "general_good": 0.5}]
    found = {base.fingerprint(recipe(corpus=mix)) for mix in others}
    assert len(found) == 3 and before not in found


@pytest.mark.slow
def test_programs_are_measured_where_they_are_learned(monkeypatch):
    asked = []

    def measured(folder, count=200, source="arithmetic"):
        asked.append(source)
        return {"arithmetic": 0.9, "programs": 0.4}[source]

    monkeypatch.setattr(base, "step_accuracy", measured)
    facts = json.loads((base.ensure(recipe(corpus={"programs": 0.3})) / "base.json").read_text())
    assert (facts["step_accuracy"], facts["program_accuracy"]) == (0.9, 0.4)
    assert "program_accuracy" not in json.loads((base.ensure(recipe()) / "base.json").read_text())
    assert asked == ["arithmetic", "programs", "arithmetic"]
    with pytest.raises(base.WeakBaseError, match=r"right on 0\.40 of the held-out programs"):
        base.ensure(recipe(corpus={"programs": 0.3}, step_accuracy=0.7))


@pytest.mark.slow
def test_step_accuracy_uses_the_source_s_own_verifier(monkeypatch):
    folder = base.ensure(recipe())
    monkeypatch.undo()
    judged = []

    def told(problem, response):
        judged.append((problem.verifier, response))
        return Verdict(score=1.0 if len(judged) % 2 else 0.0)

    monkeypatch.setattr(base, "judge", told)
    assert base.step_accuracy(folder, 4, "programs") == 0.5
    assert {name for name, _ in judged} == {"code_tests"}


@pytest.mark.slow
def test_a_base_too_weak_for_rl_stops_and_is_not_cached():
    with pytest.raises(base.WeakBaseError, match=r"right on 0\.00 .* RL needs 0\.90.*steps=3"):
        base.ensure(recipe(step_accuracy=0.9))
    assert not [p for p in base.CACHE.iterdir() if not p.name.startswith(".draft-")]


@pytest.mark.slow
def test_it_is_an_ordinary_checkpoint():
    made = base.ensure(recipe())
    model, tokenizer = (
        AutoModelForCausalLM.from_pretrained(made), AutoTokenizer.from_pretrained(made)
    )  # fmt: skip
    assert model.config.model_type == "llama" and model.dtype == torch.float32
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id == 2
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is 3+4?"}], add_generation_prompt=True
    )["input_ids"]
    assert tokenizer.decode(ids) == "<bos>" + R1_ZERO.format(prompt="What is 3+4?")


@pytest.mark.slow
def test_training_lowers_the_loss():
    facts = base.train(recipe(steps=40), base.CACHE / "x", lambda text: None)
    start = base.train(recipe(steps=1), base.CACHE / "y", lambda text: None)
    assert facts["loss"] < start["loss"] - 0.5


@pytest.mark.slow
def test_a_base_that_fails_is_noted_as_failed(tmp_path):
    with pytest.raises(base.WeakBaseError):
        base.run(recipe(step_accuracy=0.9), tmp_path, resume=False)
    (stage,) = json.loads((tmp_path / "run.json").read_text())["stages"]
    assert stage["status"] == "failed" and "RL needs 0.90" in stage["outputs"]["failure"]


@pytest.mark.slow
def test_it_is_noted_in_the_run(tmp_path):
    made = base.run(recipe(), tmp_path, resume=False)
    (stage,) = json.loads((tmp_path / "run.json").read_text())["stages"]
    assert (stage["name"], stage["status"]) == ("base", "done")
    assert stage["outputs"]["checkpoint"] == str(made)
    assert set(stage["after"]) == {"loss", "step_accuracy", "parameters"}
    assert RunManifest(tmp_path / "run.json").is_done("base")


@pytest.mark.slow
def test_a_run_that_has_its_base_on_record_is_not_written_again(tmp_path):
    """So a command that is refused changes nothing, and the run keeps the time of the training."""
    path = tmp_path / "run.json"
    folder = base.record_base(recipe(), RunManifest(path, command=["veriloop", "zero"]))
    before = path.read_bytes()
    again = RunManifest(path, command=["veriloop", "zero", "--resume"])
    assert base.record_base(recipe(), again) == folder and path.read_bytes() == before
    again.note("base", {AGAIN: True})
    assert base.record_base(recipe(), again) == folder and AGAIN not in again.stages[0]
    again.note("base", {"lineage": {}})  # of an older version, which the entry does not say
    assert base.record_base(recipe(), again) == folder and again.stages[0]["lineage"]["outputs"]
    (folder / "config.json").write_text("{}")  # no longer what was cached
    before = path.read_bytes()
    assert base.record_base(recipe(), again) == folder and path.read_bytes() != before


@pytest.mark.slow
def test_the_base_of_a_teacher_has_its_own_entry_beside_that_of_the_start(tmp_path):
    paths = []
    for seed in (0, 1):
        paths.append(tmp_path / f"{seed}.yaml")
        paths[-1].write_text(yaml.safe_dump(recipe(seed=seed).model_dump(mode="json")))
    manifest = RunManifest(tmp_path / "run.json")
    start = starting_point(str(paths[0]), manifest)
    assert starting_point(str(paths[0]), manifest, "teacher_base") == start
    teacher = starting_point(str(paths[1]), manifest, "teacher_base")
    made = {entry["name"]: entry["outputs"]["checkpoint"] for entry in manifest.stages}
    assert made == {"base": str(start), "teacher_base": str(teacher)} and start != teacher


@pytest.mark.slow
def test_batches_are_whole_documents_that_end_and_differ_from_step_to_step():
    tokenizer = AutoTokenizer.from_pretrained(base.ensure(recipe()))
    steps = list(base.batches(recipe(), tokenizer))
    assert len(steps) == 3 and steps[0] != steps[1]
    for documents in steps:
        assert all(d[0] == tokenizer.bos_token_id and d[-1] == 2 for d in documents)
        assert 256 <= sum(len(d) - 1 for d in documents) < 256 + 8 * 150


RACER = """
import json, sys
from pathlib import Path
from veriloop.pipeline.config.pretraining import BaseRecipe
from veriloop.stages import base
base.CACHE = Path(sys.argv[1])
measured = base.step_accuracy
base.step_accuracy = lambda folder: measured(folder, 4)
print("ready", flush=True)
sys.stdin.readline()
print(base.ensure(BaseRecipe.model_validate(json.loads(sys.argv[2]))))
"""


@pytest.mark.slow
def test_two_processes_that_train_the_same_base_share_one_whole_entry(tmp_path):
    words = [sys.executable, "-c", RACER, str(base.CACHE), recipe(steps=30).model_dump_json()]
    racers = [
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for racer in racers:
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    ends = [racer.communicate()[0].splitlines()[-1] for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0]
    (entry,) = base.CACHE.iterdir()  # no draft is left
    assert ends == [str(entry)] * 2
    assert base.ensure(recipe(steps=30)) == entry


@pytest.mark.slow
def test_the_entry_of_a_run_that_was_faster_is_used(monkeypatch, capsys):
    measured = base.step_accuracy
    others = []

    def overtaken(folder):
        if not others:
            others.append(folder)
            others.append(base.ensure(recipe()))
        return measured(folder)

    monkeypatch.setattr(base, "step_accuracy", overtaken)
    assert base.ensure(recipe()) == others[1]
    assert "another run has cached" in capsys.readouterr().out
    assert list(base.CACHE.iterdir()) == [others[1]]
    assert json.loads((others[1] / "base.json").read_text())["sha256"]


@pytest.mark.slow
def test_a_draft_that_another_run_writes_is_left_alone_and_one_of_a_killed_run_removed():
    drafts = [base.CACHE / f".draft-test-base-{name}" for name in ("written", "killed")]
    for draft in drafts:
        draft.mkdir(parents=True)
        (draft / "config.json").write_text("{}")
    with base._held(drafts[0]):
        made = base.ensure(recipe())
    assert set(base.CACHE.iterdir()) == {drafts[0], made}
    assert (drafts[0] / "config.json").read_text() == "{}"


@pytest.mark.slow
def test_of_bases_that_are_too_weak_the_last_one_is_kept():
    for seed in (0, 1):
        with pytest.raises(base.WeakBaseError, match="until a base is trained again") as weak:
            base.ensure(recipe(step_accuracy=0.9, seed=seed))
    (draft,) = base.CACHE.iterdir()
    assert str(draft) in str(weak.value) and (draft / "model.safetensors").is_file()


@pytest.mark.parametrize("name", ["prepare", "score"])
def test_the_code_that_a_base_is_trained_with_identifies_it(monkeypatch, name):
    before = base.fingerprint(recipe())
    assert getattr(base, name) in base.HASHED_CODE
    others = tuple(part for part in base.HASHED_CODE if part is not getattr(base, name))
    monkeypatch.setattr(base, "HASHED_CODE", others)
    assert base.fingerprint(recipe()) != before
