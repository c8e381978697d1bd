"""The fault harnesses in their fast forms: a few faults of each kind, and none goes unnoticed."""

import json
import random
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from veriloop.pipeline.model.policy import load_policy

ROOT = Path(__file__).parent.parent.parent
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def harness(monkeypatch):
    """Function: a module of benchmarks/faults."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.syspath_prepend(str(BENCHMARKS / "faults"))
    yield lambda name: __import__(name)
    for name in (
        "publish",
        "tiny_stages",
        "mutations",
        "kills",
        "cluster_kills",
        "service_kills",
        "raylets",
        "ray_nodes",
        "files",
        "inputs",
        "oracles",
        "planted",
        "trainer_soak",
    ):
        sys.modules.pop(name, None)


def quick(script, tmp_path, *flags):
    """The results of a script with --quick."""
    made = tmp_path / "made.json"
    words = [sys.executable, f"benchmarks/faults/{script}", "--quick", "--json", str(made), *flags]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, (ran.stdout[-3000:], ran.stderr[-3000:])
    told = json.loads(made.read_text())
    assert told["failed"] == [] and told["command"].startswith(f"python benchmarks/faults/{script}")
    return told["results"]


@pytest.mark.slow
def test_runs_that_are_killed_resume_to_the_same_bits(tmp_path):
    kills = quick("kills.py", tmp_path)
    assert len(kills) >= 3 and {kill["stage"] for kill in kills} == {"sft"}


@pytest.mark.slow
def test_ranks_and_servers_that_are_killed_leave_nothing_undone(tmp_path):
    kills = quick("cluster_kills.py", tmp_path)
    assert {kill["part"] for kill in kills if kill["code"] is not None} == {"rank 1", "server"}


@pytest.mark.slow
def test_kills_are_taken_up_by_the_same_command_alone(harness, tmp_path):
    kills, path = harness("cluster_kills"), tmp_path / "kills.json"
    key = {"git": {"commit": "ab12", "dirty": False}, "seed": 0}
    assert kills.kept(path, key) == []
    made = [kills.Kill(part="rank 0", at_s=1.5, code=1), kills.Kill(part="server", at_s=0.5)]
    kills.keep(path, key, made[:1])
    kills.keep(path, key, made)
    assert kills.kept(path, key) == made
    dirty = key | {"git": {"commit": "ab12", "dirty": True}}  # which may be any code
    kills.keep(tmp_path / "dirty.json", dirty, made)
    for asked, other in ((path, key | {"seed": 1}), (tmp_path / "dirty.json", dirty)):
        with pytest.raises(SystemExit, match="kills of other code or another seed"):
            kills.kept(asked, other)


@pytest.mark.slow
def test_of_two_commands_on_one_folder_one_is_refused(tmp_path):
    pairs = quick("two_commands.py", tmp_path)
    assert [sorted(pair["codes"]) for pair in pairs] == [[0, 2]] * 3


@pytest.mark.slow
def test_runs_whose_files_fail_end_in_a_message_and_resume(tmp_path):
    results = quick("files.py", tmp_path)
    assert results["operations"]["sft"] > 50
    codes = {fault["kind"]: fault["code"] for fault in results["faults"]}
    assert codes["torn"] == -9 and codes["clock"] == 0 and codes["read only"] in (1, 2)


@pytest.mark.slow
def test_changed_inputs_are_accepted_or_refused(tmp_path):
    results = quick("inputs.py", tmp_path)
    assert results["cases"] > 100 and results["bad"] == []


@pytest.fixture
def planted(harness, one_pool, monkeypatch, tmp_path):
    """The module. A sampler in bfloat16 is the torch sampler of a GPU, on the CPU."""
    from veriloop.pipeline.model.device import CPU
    from veriloop.pipeline.sampling.static_engine import StaticSampler
    from veriloop.stages import rl

    opened = rl.open_sampler

    def open_any(config, start, **rest):
        if config.dtype == "float32":
            return opened(config, start, **rest)
        return StaticSampler(start, device=CPU, dtype=config.dtype, cache_gib=0.1)

    monkeypatch.setattr(rl, "open_sampler", open_any)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return harness("planted")


def small_zero():
    from veriloop.pipeline.config.rl import ZeroRecipe

    return ZeroRecipe.model_validate(
        {
            "name": "test", "start": "given", "steps": 2,
            "rollout": {"prompts": 4, "per_prompt": 4, "max_tokens": 12},
            "algorithm": {"minibatches": 2, "reference_every": 2, "kl_coefficient": 0.01},
            "optimizer": {"learning_rate": 1e-3},
            "evaluation": {"problems": 2, "samples": 1},
            "tensorboard": False,
        }
    )  # fmt: skip


def low_ids(rollout, verdicts):
    """A reward that an untrained model gets: the share of ids under 150."""
    del verdicts
    return sum(i < 150 for i in rollout.response_ids) / len(rollout.response_ids)


def outcomes(planted, family, start):
    """What caught each fault, and what should have."""
    recipe, found = planted.at(small_zero(), family), {}
    for name, (fault, wanted) in planted.faults(family).items():

        def broken(loop, fault=fault):
            loop.collector.task = replace(loop.task, reward=low_ids)
            fault(loop)

        found[name] = planted.caught(recipe, start, broken)[0], wanted
    return found


HARDEST = {"sampler": "bfloat16", "trainer": "bfloat16", "tolerance": 1e-4}


@pytest.mark.slow
@pytest.mark.parametrize(
    "told",
    [
        {"sampler": "float32", "trainer": "float32", "tolerance": 1e-4,
         "adapters": True, "old_logp": "sampler"},
        HARDEST | {"adapters": True, "old_logp": "trainer"},
        HARDEST | {"adapters": False, "old_logp": "trainer"},
        HARDEST | {"tolerance": 0.1, "adapters": False, "old_logp": "sampler"},
    ],
)  # fmt: skip
def test_each_planted_fault_is_caught_in_families_of_shipped_recipes(
    planted, tiny_checkpoint, told
):
    family = planted.Family(**told)
    if told["sampler"] == "bfloat16":
        assert planted.families()[family] > 0
    found = outcomes(planted, family, tiny_checkpoint())
    assert len(found) == 8 + told["adapters"]
    assert {name: caught for name, (caught, _) in found.items()} == {
        name: wanted for name, (_, wanted) in found.items()
    }


def test_every_stage_has_a_tiny_recipe(harness, tmp_path):
    from veriloop.pipeline.config.load import validate
    from veriloop.pipeline.config.registry import STAGES

    tiny = harness("tiny_stages")
    assert tiny.STAGES.keys() == STAGES.keys()
    names = ("start", "teacher", "judge", "taught", "sums.jsonl", "base.yaml", "zero.yaml")
    paths = {name: tmp_path / name for name in names}
    for stage in STAGES:
        assert validate(tiny.recipe(stage, paths), stage).stage == stage
    assert tiny.recipe("r1", paths)["stages"][1]["recipe"] == str(tmp_path / "zero.yaml")
    assert tiny.recipe("cold_start", paths)["sets"]["sums"]["path"] == str(tmp_path / "sums.jsonl")


def test_a_difference_is_told(harness, tmp_path):
    tiny = harness("tiny_stages")
    expected = {"a": 1, "b": [float("nan")], "c": 3}
    assert tiny.differences(expected, expected) == []
    found = {"a": 2, "b": expected["b"], "d": 4}
    assert tiny.differences(found, expected) == [
        "c: missing",
        "d: not in the undisturbed run",
        "a: differs",
    ]


@pytest.mark.parametrize(
    ("code", "said", "wrong", "outcome"),
    [
        (0, "", False, "right"),
        (0, "fine", True, "silent wrong"),
        (2, "veriloop: no such key", True, "refused"),
        (1, "", False, "traceback"),
        (1, "Traceback (most recent call last):\n", False, "traceback"),
        (-11, "", False, "traceback"),
        (None, "", False, "hang"),
    ],
)
def test_every_end_has_its_class(harness, code, said, wrong, outcome):
    inputs = harness("inputs")
    case = inputs.Case(kind="recipe", number=0, change="", certainly_wrong=wrong)
    assert inputs.outcome(case, code, said) == outcome


@pytest.mark.parametrize(
    ("given", "found", "lost"),
    [
        ({"a": {"b": 1}, "c": [0.5, "x"]}, {"a": {"b": 1.0, "d": 2}, "c": [0.5, "x"]}, []),
        ({"a": float("nan"), "b": None, "c": {}}, {"a": float("nan"), "b": 3, "c": {"d": 1}}, []),
        ({"a": 2, "b": 1}, {"a": 1, "b": 1}, ["a"]),
        ({"a": {"b": 1, "bx": 2}}, {"a": {"b": 1}}, ["a.bx"]),
        ({"a": True, "b": 0}, {"a": 1, "b": False}, ["a", "b"]),
        ({"a": [1], "b": [1, 2]}, {"a": [1, 2], "b": [1, 3]}, ["a", "b.1"]),
        ({"a": {"b": 1}}, {"a": 5}, ["a.b"]),
    ],
)
def test_settings_that_a_resolved_recipe_lacks_are_found(harness, given, found, lost):
    assert list(harness("oracles").lost_settings(given, found)) == lost


def test_a_dry_run_that_ignores_a_setting_is_silently_wrong(harness):
    inputs = harness("inputs")
    output = "stage: zero\nname: 'of two\n\n  lines'\nsteps: 50\n\n  whole run      50 steps\n"
    assert inputs.resolved(output) == {"stage": "zero", "name": "of two\nlines", "steps": 50}
    assert inputs.resolved("Traceback\n\n  whole run: 50 steps") is None
    for given, outcome in ((50, "right"), (60, "silent wrong")):
        case = inputs.Case(kind="recipe", number=0, change="odd at steps", given={"steps": given})
        assert inputs.outcome(case, 0, output) == outcome
    assert case.change == "odd at steps; lost: steps"
    case.usual = ("steps",)  # so it is without a change too
    assert inputs.outcome(case, 0, output) == "right"


@pytest.mark.parametrize(
    ("content", "are_rows"),
    [
        (b'{"prompt": "a", "completion": "b"}\n{"prompt": "", "completion": "b", "more": 1}', True),
        (b'{"prompt": "a", "completion": 3}\n', False),
        (b'{"prompt": "a"}\n', False),
        (b'{"prompt": "a", "completion": "b"\n', False),
        (b"[]\n", False),
    ],
)
def test_rows_of_another_type_are_certainly_wrong(harness, content, are_rows):
    oracles = harness("oracles")
    assert oracles.has_rows(content, ["prompt", "completion"]) is are_rows


def test_a_reader_that_lost_a_part_is_silently_wrong(harness, tiny_checkpoint):
    inputs, oracles = harness("inputs"), harness("oracles")
    assert oracles.count_of_rows(b"{}\n\n{}") == 2
    case = inputs.Case(kind="data", number=0, change="", prints="30 rows")
    assert inputs.outcome(case, 0, "30 rows\n") == "right"
    assert inputs.outcome(case, 0, "29 rows\n") == "silent wrong"
    model = load_policy(tiny_checkpoint())
    assert oracles.weights_differ(tiny_checkpoint(), model) == []
    model.model.norm.weight.data[3] += 1
    assert oracles.weights_differ(tiny_checkpoint(), model) == ["model.norm.weight"]


def test_changes_change_and_repeat_by_their_seed(harness):
    mutations = harness("mutations")
    for change, value in (
        (mutations.changed_bytes, b"some bytes of a file"),
        (mutations.changed_value, {"a": {"b": [1, 2]}, "c": 3}),
        (mutations.changed_words, ["zero", "tiny/zero", "--dry-run"]),
    ):
        made = [change(value, random.Random(seed)) for seed in range(50)]
        assert made == [change(value, random.Random(seed)) for seed in range(50)] or "nan" in str(
            made
        )
        assert sum(changed != value for changed, _ in made) > 40


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["full", "read only", "error"])
def test_the_file_layer_fails_the_operation_it_was_told_to(tmp_path, kind):
    code = (
        "import sys; sys.path[:0] = ['benchmarks', 'benchmarks/faults'];"
        "import files, os; from pathlib import Path; root = Path(sys.argv[1]);"
        f"fault = files.FileFault(stage='', kind={kind!r}, at=3, size=1);"
        "layer = files.FileLayer(fault, root); layer.install();"
        "(root / 'a').mkdir(); (root / 'b').write_text('x'); print(layer.count);"
        "(root / 'c').write_text('y')"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, tmp_path], cwd=ROOT, capture_output=True, text=True
    )
    assert ran.stdout == "2\n" and ran.returncode == 1
    said = {"full": "No space left", "read only": "Read-only", "error": "Input/output error"}
    assert said[kind] in ran.stderr and "/c'" in ran.stderr
    assert (tmp_path / "b").read_text() == "x" and not (tmp_path / "c").exists()


@pytest.mark.slow
def test_a_run_whose_resources_are_measured_keeps_no_secret(tmp_path):
    result = quick("trainer_soak.py", tmp_path, "--engine", "torch")
    assert result["steps"] == 30 and result["leaks"] == [] and result["searched"] > 10
    assert {"descriptors", "threads", "trainer MiB", "step seconds"} <= result["fits"].keys()


def test_a_run_that_ends_is_not_measured(harness, tmp_path):
    soak, metrics = harness("trainer_soak"), tmp_path / "metrics.jsonl"
    assert not soak._has_rows(metrics, 1)
    metrics.write_text('{"step": 1}\n{"step": 2')
    assert soak._has_rows(metrics, 1) and not soak._has_rows(metrics, 2)


@pytest.mark.parametrize(
    ("name", "per_sample", "noise", "grown"),
    [
        ("trainer MiB", 0.0, 5.0, False),
        ("trainer MiB", 0.1, 0.5, True),
        ("trainer MiB", 0.01, 0.1, False),  # certain, but one part in a hundred
        ("descriptors", 0.01, 0.1, True),
        ("threads", -0.1, 0.1, False),
    ],
)
def test_only_growth_that_is_certain_and_large_fails_a_soak(
    harness, name, per_sample, noise, grown
):
    soak, draw = harness("trainer_soak"), random.Random(0)
    series = [100 + per_sample * n + draw.uniform(-noise, noise) for n in range(200)]
    fit = soak.growth(series)
    assert soak.grows(name, fit) is grown
    assert abs(fit["growth"] - 200 * per_sample) < 2 * noise
    assert fit["at_least"] < fit["growth"] < fit["at_most"]


@pytest.mark.parametrize("way", ["plain", "reversed", "base64", "parquet"])
def test_a_secret_in_a_file_of_the_run_is_named(harness, tmp_path, way):
    soak, secret = harness("trainer_soak"), "s3cret/of a service"
    if way == "parquet":
        pq.write_table(pa.table({"text": ["x" * 1000, f"<{secret}>"]}), tmp_path / "a.parquet")
    else:
        spelled = {"plain": 0, "reversed": 1, "base64": 3}[way]
        (tmp_path / "a.log").write_bytes(b"\0" + soak.spellings(secret)[spelled] + b"\n")
    (tmp_path / "b.log").write_text("nothing")
    suffix = "parquet" if way == "parquet" else "log"
    assert list(soak.leaks(tmp_path, {"TOKEN": secret})) == [f"TOKEN in a.{suffix}"]
