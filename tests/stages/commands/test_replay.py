"""`veriloop replay`: the updates of a recorded run made again, as they were and by another loss."""

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from veriloop.data.counts import counted
from veriloop.pipeline.config.load import validate
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model.policy import load_policy, load_tokenizer, save_policy
from veriloop.pipeline.offline import replay
from veriloop.pipeline.rollouts import grade
from veriloop.pipeline.rollouts.step_scores import with_step_scores
from veriloop.pipeline.runs.record import read_metrics
from veriloop.pipeline.runs.run_lock import locked
from veriloop.stages.cli import main
from veriloop.stages.commands import replay as command
from veriloop.stages.commands import replay_run
from veriloop.stages.commands.replay import differences, with_changes

pytestmark = pytest.mark.usefixtures("forked_engines")
WEIGHTS = "model.safetensors"
ALGORITHMS = {
    "grpo": {"minibatches": 2, "reference_every": 3},  # the reference is replaced on the way
    "ppo": {"preset": "ppo_klpen", "minibatches": 2, "old_kl_target": 0.001},  # a critic, a beta
    "muon": {"minibatches": 2, "kl_coefficient": 0.0},
    "ahead": {"minibatches": 2, "kl_coefficient": 0.0},  # sampled while another turn was learned
    "lora": {"minibatches": 2},
    "process": {"minibatches": 2, "advantage": "process"},
}
LETTERS = """
def letters(completions, **columns):
    return [len(text) % 10 / 10 for text in completions]
"""
UNMIXED = {"dynamic_sampling": 1}  # an untrained model answers no question right


def values(start, algorithm):
    return {
        "stage": "zero",
        "name": "test",
        "start": str(start),
        "steps": 4,
        "rollout": {"prompts": 4, "per_prompt": 4, "max_tokens": 12}
        | ({"ahead": 1} if algorithm == "ahead" else {}),
        "trainer": {"lora": {"rank": 2}} if algorithm == "lora" else {},
        "optimizer": {
            "learning_rate": 0.01,
            "schedule": "cosine",
            "muon_learning_rate": 0.001 if algorithm == "muon" else 0.0,
        },
        "algorithm": (ALGORITHMS | {"unmixed": UNMIXED, "letters": {}, "tied": {}})[algorithm],
        "reward": {"control": "random"},  # an untrained model earns nothing else
        "sampler": {"engine": "torch"},
        "evaluation": {"problems": 2, "samples": 1},
        "checkpoint": {"every": 1, "keep": 9},
        "tensorboard": False,
    }


@pytest.fixture(scope="module")
def recorded(tiny_checkpoint, lent_pool, tmp_path_factory):
    """Function: a run of four steps by an algorithm; trained once, and not to be written to."""
    made = {}

    def make(algorithm="grpo"):
        if algorithm not in made:
            folder = tmp_path_factory.mktemp(algorithm)
            recipe = folder / "recipe.yaml"
            asked = values(tiny_checkpoint(tied=algorithm == "tied"), algorithm)
            if algorithm in ("process", "letters"):  # scores of steps suit no control
                (folder / "rewards.py").write_text(LETTERS)
                function = {"function": f"{folder}/rewards.py:letters"}
                asked["reward"] = {"terms": {"letters": function}}
            recipe.write_text(yaml.safe_dump(asked))
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(grade, "VerifierPool", lambda *_, **__: lent_pool)
                assert main(["zero", str(recipe), "--output", str(folder / "run")]) == 0
            made[algorithm] = folder / "run"
        return made[algorithm]

    return make


@pytest.fixture
def copied(recorded, tmp_path):
    """A copy of the run, to be spoiled."""
    return shutil.copytree(recorded(), tmp_path / "run")


def replayed(run, output, *more, step=1):
    """The exit code, and what replay.json tells."""
    code = main(["replay", str(run), "--from-step", str(step), "--output", str(output), *more])
    path = output / "replay.json"
    return code, json.loads(path.read_text()) if path.exists() else None


def everything(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def rewritten(run, step, change):
    """Change the rows of a file of rollouts."""
    path = run / f"zero/rollouts/step_{step:06d}.parquet"
    table = pq.ParquetFile(path).read()
    rows = change(table.to_pylist())
    names = [field for field in table.schema if field.name in rows[0]]
    pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema(names)), path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "rank"), [("grpo", 2), ("lora", 3), ("lora", 0), ("tied", 2)]
)
def test_weights_under_other_adapters_are_compared_by_what_they_amount_to(
    recorded, tmp_path, algorithm, rank
):
    changed = ["--trainer.lora.rank", str(rank)]
    code, told = replayed(recorded(algorithm), tmp_path / "again", *changed, step=0)
    assert code == 0 and told["changes"].keys() == {"trainer.lora.rank"}
    apart = [turn["weights_apart"] for turn in told["turns"]]
    assert len(apart) == 4 and all(0 < difference < 1 for difference in apart)


@pytest.mark.slow
@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_with_nothing_changed_numbers_and_weights_are_the_recorded_ones_bit_for_bit(
    recorded, tmp_path, capsys, algorithm, step
):
    run, output = recorded(algorithm), tmp_path / "again"
    before = everything(run)
    capsys.readouterr()
    code, told = replayed(run, output, step=step)
    assert code == 0 and everything(run) == before
    assert told["changes"] == {} and told["from_step"] == step
    assert [turn["weights_apart"] for turn in told["turns"]] == [0.0] * (4 - step)
    metrics = {row["step"]: row for row in read_metrics(run / "zero/metrics.jsonl")}
    rows = read_metrics(output / "zero/metrics.jsonl")
    assert [row["step"] for row in rows] == list(range(step + 1, 5))
    for row in rows:
        shared = row.keys() & metrics[row["step"]].keys()
        assert {"loss", "kl", "entropy", "grad_norm", "learning_rate", "value_loss"} <= shared
        assert {name: row[name] for name in shared} == {
            name: metrics[row["step"]][name] for name in shared
        }
    one, other = (folder / f"zero/checkpoints/step_000004/{WEIGHTS}" for folder in (run, output))
    assert one.read_bytes() == other.read_bytes()
    shown = capsys.readouterr().out
    assert f"every number of {counted(4 - step, 'turn')} is the recorded one, bit for bit" in shown
    assert "This is not training" in shown and shown.count("equal bit for bit") == 4 - step


@pytest.mark.slow
def test_what_taught_nothing_teaches_nothing_again(recorded, tmp_path, capsys):
    code, report = replayed(recorded("unmixed"), tmp_path / "again", step=0)
    assert code == 0 and [turn["weights_apart"] for turn in report["turns"]] == [0.0] * 4
    assert all(turn["replayed"] == {"optimizer_steps": 0.0} for turn in report["turns"])
    assert "every number of 4 turns is the recorded one" in capsys.readouterr().out


@pytest.mark.slow
def test_the_start_of_a_moved_run_is_found_in_it(copied, tmp_path):
    record = json.loads((copied / "run.json").read_text())
    (zero,) = record["stages"]
    inside, gone = (folder / "base/checkpoints/step_000001" for folder in (copied, tmp_path / "x"))
    shutil.copytree(zero["inputs"]["start"], inside)
    file = zero["lineage"]["inputs"]["start"] | {"path": str(gone)}
    zero["inputs"]["start"], zero["lineage"]["inputs"]["start"] = str(gone), file
    base = {"name": "base", "status": "done", "lineage": {"outputs": {"checkpoint": file}}}
    (copied / "run.json").write_text(json.dumps(record | {"stages": [base, zero]}))
    assert replayed(copied, tmp_path / "again", "--stage", "zero", step=0)[0] == 0


@pytest.mark.slow
def test_steps_are_scored_again_only_where_the_record_has_no_scores(
    recorded, tmp_path, monkeypatch
):
    asked = []

    def scored(graded, scores):
        asked.append(len(graded))
        return with_step_scores(graded, scores)

    monkeypatch.setattr(replay, "with_step_scores", scored)
    assert replayed(recorded("process"), tmp_path / "same")[0] == 0 and asked == []
    flags = ["--algorithm.preset", "grpo_process"]
    assert replayed(recorded("letters"), tmp_path / "other", *flags)[0] == 0
    assert asked == [16] * 3


@pytest.mark.slow
def test_another_loss_starts_on_policy_and_its_drift_is_shown(recorded, tmp_path, capsys):
    run, output = recorded(), tmp_path / "other"
    flags = ["--algorithm.clip-high", "10", "--optimizer.learning-rate", "0.05"]
    code, told = replayed(run, output, *flags)
    assert code == 0
    assert told["changes"] == {
        "algorithm.clip_high": [0.2, 10.0], "optimizer.learning_rate": [0.01, 0.05]
    }  # fmt: skip
    first, *rest = told["turns"]
    gap = "sampling/sampling_logp_difference/mean"  # of the first minibatch, before its step
    assert first["replayed"][gap] == first["recorded"][gap] < 1e-5
    assert all(turn["replayed"][gap] > 0.01 > turn["recorded"][gap] for turn in rest)
    away = [turn["replayed"]["off_policy/log_ratio"] for turn in told["turns"]]
    assert away[0] < away[-1] and all(
        turn["replayed"]["off_policy/log_ratio"] > turn["recorded"]["off_policy/log_ratio"]
        for turn in told["turns"]
    )
    assert all(turn["weights_apart"] > 0 for turn in told["turns"])
    shown = capsys.readouterr().out
    assert "changed: algorithm.clip_high 0.2 -> 10.0, optimizer.learning_rate" in shown
    assert "largest ratio to the sampler over all turns" in shown and " was " in shown
    stage = json.loads((output / "run.json").read_text())["stages"][0]
    assert stage["inputs"]["recipe"]["algorithm"]["clip_high"] == 10.0
    made = load_policy(stage["outputs"]["checkpoint"]).state_dict()
    theirs = load_policy(run / "zero/checkpoints/step_000004").state_dict()
    assert any(not one.equal(theirs[name]) for name, one in made.items())


@pytest.mark.slow
def test_folders_are_numbered_and_a_report_can_be_made_of_them(recorded, tmp_path, capsys):
    run = shutil.copytree(recorded(), tmp_path / "run")
    words = ["replay", str(run), "--from-step", "3"]
    assert main(words) == 0 and main([*words, "--steps", "1"]) == 0
    assert sorted(path.name for path in (run / "replays").iterdir()) == ["1", "2"]
    assert main(["report", str(run / "replays/2"), str(run)]) == 0
    assert "dashed" in (run / "replays/2/report.html").read_text()


@pytest.mark.slow
def test_a_record_that_was_tampered_with_does_not_pass_for_itself(copied, tmp_path, capsys):
    def paid(rows):
        return [row | {"reward": 3.0 * (at % 4 == 0)} for at, row in enumerate(rows)]

    rewritten(copied, 2, paid)
    code, told = replayed(copied, tmp_path / "a", "--steps", "1")
    assert code == 1 and told["turns"][0]["differs"] and told["turns"][0]["weights_apart"] > 0
    assert "NOT as recorded, though nothing was changed: " in capsys.readouterr().out
    rewritten(copied, 2, lambda rows: [r | {"logp": [x - 1 for x in r["logp"]]} for r in rows])
    assert replayed(copied, tmp_path / "b")[0] == 1
    assert "MismatchError" in capsys.readouterr().err


def without(name):
    return lambda rows: [{k: v for k, v in row.items() if k != name} for row in rows]


def gone(path):
    return lambda run: (run / "zero" / path).unlink()


def rows(step, change):
    return lambda run: rewritten(run, step, change)


SPOILED = {
    "rollouts": (gone("rollouts/step_000003.parquet"), "has no rollouts of steps 3"),
    "metrics": (gone("metrics.jsonl"), "has no metrics of steps 2, 3, 4"),
    "state": (gone("checkpoints/step_000001/trainer_state.pt"), "has no checkpoint of this step"),
    "logp": (rows(2, without("logp")), "lacks logp: it cannot be trained on again"),
    "ids": (rows(2, lambda r: [x | {"logp": x["logp"][1:]} for x in r]), "each response id needs"),
    "empty": (rows(2, lambda r: [x | {"prompt_ids": None} for x in r]), "0 prompt ids"),
    "other": (rows(2, lambda r: [x | {"policy_version": 7} for x in r]), "after [7] optimizer"),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", SPOILED)
def test_what_is_missing_is_refused_with_its_name_and_nothing_is_written(
    copied, tmp_path, capsys, what
):
    spoil, told = SPOILED[what]
    spoil(copied)
    assert replayed(copied, tmp_path / "new") == (2, None)
    assert told in capsys.readouterr().err and not (tmp_path / "new").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--rollout.temperature", "2"], "rollout affects sampling, verification or files"),
        (["--no-tensorboard"], "tensorboard affects sampling"),
        (["--seed=3"], "seed affects sampling"),
        (["--algorithm.clip-hihg", "3"], "clip-hi"),
        (
            ["--algorithm.critic", "shared", "--algorithm.advantage", "gae"],
            "algorithm.critic: this setting",
        ),
        (["--optimizer.muon-learning-rate", "1e-3"], "optimizer.muon_learning_rate: this setting"),
        (["--algorithm.minibatches", "5"], "nearest valid: 4"),
        (["--steps", "9"], "has no rollouts of steps 5, 6, 7, 8, 9, 10"),
        (["--stage", "sft"], "--stage sft: stages of"),
    ],
)
def test_what_cannot_be_changed_is_refused_with_the_reason(recorded, tmp_path, capsys, words, told):
    assert replayed(recorded(), tmp_path / "new", *words) == (2, None)
    assert told in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_other_refusals(recorded, tiny_checkpoint, tmp_path, capsys):
    words = ["--algorithm.kl-coefficient", "1"]
    assert replayed(recorded("muon"), tmp_path / "x", *words) == (2, None)
    assert "algorithm.kl_coefficient: this setting" in capsys.readouterr().err
    assert replayed(recorded(), tmp_path / "x", step=4) == (2, None)
    assert "a replay starts after step 0 to 3" in capsys.readouterr().err
    assert replayed(recorded(), tmp_path) == (2, None)
    assert "exists already" in capsys.readouterr().err
    assert main(["replay", "--from-step", "1", str(recorded())]) == 2
    assert "the run folder comes first" in capsys.readouterr().err
    run = shutil.copytree(recorded(), tmp_path / "run")
    start = shutil.copytree(tiny_checkpoint(), tmp_path / "start")
    told = (run / "run.json").read_text()
    (run / "run.json").write_text(told.replace(str(tiny_checkpoint()), str(start)))
    other = load_policy(start)
    other.lm_head.weight.data += 1.0
    save_policy(other, load_tokenizer(start), start)
    assert replayed(run, tmp_path / "x") == (2, None)
    assert "is not what zero started from" in capsys.readouterr().err
    shutil.rmtree(start)
    assert replayed(run, tmp_path / "x") == (2, None)
    assert "which holds no checkpoint now" in capsys.readouterr().err


def test_another_preset_goes_under_what_the_recipe_says_beyond_its_own(tmp_path):
    told = values(tmp_path, "grpo")
    told["algorithm"] |= {"kl_coefficient": 0.25, "clip_low": 0.1}
    plain = validate(told, "here")
    dapo = with_changes(plain, ["--algorithm.preset", "dapo", "--algorithm.clip-low", "0.3"])
    written = told["algorithm"] | {"preset": "dapo", "dynamic_sampling": 0}  # nothing is sampled
    as_written = validate(told | {"algorithm": written}, "here")
    assert dapo.algorithm == as_written.algorithm.model_copy(update={"clip_low": 0.3})
    assert ("algorithm.preset", "grpo", "dapo") in differences(plain, dapo)
    assert with_changes(plain, []) == plain and differences(plain, plain) == []


def test_flags_of_parts_that_decide_an_update_are_taken(tmp_path):
    plain = validate(values(tmp_path, "grpo"), "here")
    words = ["--optimizer.betas", "0.5", "0.75", "--trainer.row=64", "--algorithm.old-logp"]
    changed = with_changes(plain, [*words, "trainer"])
    assert sorted(differences(plain, changed)) == [
        ("algorithm.old_logp", "sampler", "trainer"),
        ("optimizer.betas", (0.9, 0.95), (0.5, 0.75)),
        ("trainer.row", 256, 64),
    ]
    with pytest.raises(RecipeError, match=r"--problem-seed: problem_seed affects sampling"):
        with_changes(plain, ["--problem-seed", "3"])


def noting(folders):
    """Instead of the update: notes where it would be written, and leaves a run there."""

    def replayed(run, stage, recipes, changes, start, steps, output):
        folders.append(output.name)
        (output / "run.json").write_text("{}")
        return 0

    return replayed


@pytest.mark.slow
def test_replays_at_once_are_numbered_apart_and_a_named_folder_has_one_writer(
    copied, tmp_path, capsys, monkeypatch
):
    folders, words = [], ["replay", str(copied), "--from-step", "3"]
    monkeypatch.setattr(replay_run, "replayed", noting(folders))
    monkeypatch.setattr(command, "_output", chosen_before(command._output, copied / "replays/1"))
    with locked(copied / "replays/1"):
        assert main(words) == 0
    assert folders == ["2"]
    taken = tmp_path / "taken"
    monkeypatch.setattr(
        command, "_output", lambda run, folder: taken
    )  # looked before the other came
    with locked(taken):
        assert main([*words, "--output", str(taken)]) == 2
    assert f"{taken} is held by" in capsys.readouterr().err and folders == ["2"]


@pytest.mark.slow
def test_a_replay_that_began_and_ended_meanwhile_is_not_overwritten(copied, monkeypatch):
    folders, other = [], copied / "replays/1"
    monkeypatch.setattr(replay_run, "replayed", noting(folders))
    monkeypatch.setattr(command, "_output", chosen_before(command._output, other))
    other.mkdir(parents=True)
    (other / "run.json").write_text("of the other")
    assert main(["replay", str(copied), "--from-step", "3"]) == 0
    assert folders == ["2"] and (other / "run.json").read_text() == "of the other"


def chosen_before(choose, folder):
    """`choose`, but its first two answers are `folder`, as before another command made it."""
    answers = [folder, folder]
    return lambda run, named: answers.pop() if answers else choose(run, named)


@pytest.mark.slow
def test_a_replay_that_fails_is_on_record_as_failed(copied, tmp_path):
    (copied / "zero/rollouts/step_000003.parquet").write_bytes(b"spoiled")
    assert main(["replay", str(copied), "--from-step", "1", "--output", str(tmp_path / "b")]) != 0
    (stage,) = json.loads((tmp_path / "b/run.json").read_text())["stages"]
    assert stage["status"] == "failed" and "step_000003" in stage["outputs"]["failure"]
