"""Reading recipes: whatever is wrong is named, with what would be right."""

import json
from pathlib import Path

import pytest
import yaml

from veriloop.pipeline.config.load import (
    FOLDER,
    RESUMABLE,
    completed,
    flat,
    locate,
    read,
    read_values,
    refuse_changes,
    shipped,
    validate,
    with_flags,
)
from veriloop.pipeline.config.r1 import R1Recipe
from veriloop.pipeline.config.r1_stages import steps
from veriloop.pipeline.config.registry import STAGES
from veriloop.pipeline.config.rl import ZeroRecipe
from veriloop.pipeline.config.sections import SamplerConfig
from veriloop.pipeline.errors import RecipeError

ZERO = """\
stage: zero
name: mine
start: recipes/tiny/base.yaml
steps: 4
rollout: {prompts: 2, per_prompt: 4, max_tokens: 8}
optimizer:
  learning_rate: 2e-6
"""


@pytest.fixture
def refused(tmp_path):
    """Read a text as a recipe; what it is refused with."""

    def reading(text):
        path = tmp_path / "mine.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(RecipeError) as told:
            read(str(path))
        assert str(path) in str(told.value)
        return str(told.value)

    return reading


def test_a_learning_rate_without_a_point_works(tmp_path):
    assert yaml.safe_load(ZERO)["optimizer"]["learning_rate"] == "2e-6"  # YAML 1.1: a string
    path = tmp_path / "mine.yaml"
    path.write_text(ZERO)
    assert read(str(path)).optimizer.learning_rate == 2e-6


@pytest.mark.parametrize("path", shipped(), ids=lambda p: p.stem)
def test_shipped_recipes_are_read_and_named_after_their_file(path):
    recipe = read(str(path))
    name = path.relative_to(FOLDER).with_suffix("").as_posix()
    assert recipe.name == name and read(name) == recipe


@pytest.mark.parametrize("path", shipped(), ids=lambda p: p.stem)
def test_a_shipped_recipe_with_all_its_settings_written_out_is_the_same_recipe(path):
    recipe = read(str(path))
    stages = [step.recipe for step in steps(recipe)] if isinstance(recipe, R1Recipe) else []
    for part in (recipe, *stages):
        assert validate(json.loads(part.model_dump_json()), "run.json") == part


def test_the_shipped_recipes_are_of_every_kind():
    assert {type(read(str(path))) for path in shipped()} == set(STAGES.values())


def test_the_student_reads_what_its_teacher_has_read():
    teacher, student = read("tiny/base_r1"), read("tiny/student")
    for part in ("corpus", "seed", "tokenizer_documents"):  # they make the tokenizer
        assert getattr(student, part) == getattr(teacher, part)
    assert student.model.vocabulary == teacher.model.vocabulary
    heads = {one.model.hidden / one.model.heads for one in (teacher, student)}
    assert heads == {32}  # a size that every engine takes


@pytest.mark.parametrize("name", ["tiny/zero", "tiny/zero.yaml", "recipes/tiny/zero.yaml"])
def test_a_shipped_recipe_is_found_from_anywhere(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert locate(name) == FOLDER / "tiny/zero.yaml"


def test_a_file_here_goes_before_a_shipped_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny/zero").write_text(ZERO)
    assert read("tiny/zero").name == "mine"


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("tiny/zreo", "tiny/zero"),
        ("recipes/tiny/bsae.yaml", "tiny/base"),
        ("papr/zero", "paper/zero"),
    ],
)
def test_a_missing_recipe_names_the_nearest_one(asked, meant):
    with pytest.raises(RecipeError, match=rf"no recipe {asked!r}\. Did you mean {meant!r}\?"):
        read(asked)


@pytest.mark.parametrize("asked", ["", "qqqq", "recipes", "tiny"])
def test_a_recipe_that_resembles_nothing_gets_the_list(asked):
    with pytest.raises(RecipeError, match=r"Shipped: .*tiny/base, .*tiny/zero"):
        read(asked)


@pytest.mark.parametrize("asked", ["/no/such/file.yaml", "mine/recipe.yml"])
def test_a_file_that_is_missing_is_named_with_its_folder(asked):
    with pytest.raises(RecipeError, match=f"{Path(asked).absolute()} is no file; `veriloop recip"):
        read(asked)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("stage: [zero\nb: 2", "but got ':'\n  in line 2, column 2"),
        ("stage: [zero", "is not YAML"),
        (b"stage: \xff\xfe", "is not YAML"),
        ("[" * 5000, "is not YAML: it nests too deeply"),
        ("rollout: &all {more: *all}", "is not YAML: Circular reference"),
        ("steps: " + "9" * 5000, "is not YAML: Exceeds the limit (4300 digits)"),
        ("", "holds None instead of keys; a recipe begins with `stage: ...`"),
        ("- stage: zero", "instead of keys"),
        ("name: x", f"it has no key 'stage', which is one of {sorted(STAGES)}"),
        ("stage: zreo", f"stage 'zreo' is not one of {sorted(STAGES)}. Did you mean 'zero'?"),
        ("stage: [zero]", f"is not one of {sorted(STAGES)}"),
        ("steps: 4\nstage: zero\nsteps: 5", "duplicate key 'steps'"),
        (ZERO + "  learning_rate: 1e-3", "duplicate key 'learning_rate'"),
    ],
)
def test_what_is_no_recipe_is_refused(text, said, refused):
    assert said in refused(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ZERO + "step: 3", "step: unknown key. Did you mean 'steps'? Allowed: algorithm, "),
        (ZERO + "  betta: 3", "optimizer.betta: unknown key. Did you mean 'betas'?"),
        (ZERO + "  qqq: 3", "optimizer.qqq: unknown key. Allowed: betas, floor,"),
        (ZERO + "algorithm: {minibatch: 4}", "Did you mean 'minibatches'?"),
        (ZERO + "seed: four", "seed: Input should be a valid integer, unable to parse string as "
                              "an integer, got 'four'"),
        (ZERO + f"seed: {1 << 70}", "seed: must be an integer of 64 bits"),
        (ZERO + "seed: 1.5", "seed: Input should be a valid integer, got a number with a "
                             "fractional part, got 1.5"),
        (ZERO + "sampler: {engine: vlm}", "sampler.engine: Input should be 'auto', 'vllm' or "
                                          "'torch', got 'vlm'"),
        (ZERO + "verifier_workers: 0", "verifier_workers: Input should be greater than or equal "
                                       "to 1, got 0"),
        (ZERO + "sandbox: {backend: doker}", "sandbox.backend: no backend 'doker'. Did you mean "
                                             "'docker'? Known: auto, namespace, reduced, docker"),
        (ZERO + "sandbox: {backend: remote}", "'remote' must be written remote:URL"),
        (ZERO + "sandbox: {bakend: docker}", "sandbox.bakend: unknown key. Did you mean 'backend'"),
        (ZERO + "verifier_service: http://h\nsandbox: {backend: docker}",
         "sandbox.backend='docker' with verifier_service='http://h': the service runs programs in "
         "its own sandbox"),
        (ZERO + "verifier_service: [http://h]\nsandbox: {backend: docker}",
         "sandbox.backend='docker' with verifier_service=('http://h',): the service runs"),
        (ZERO + "verifier_service: 5",
         "verifier_service: must be the URL of a reward service or a list of such URLs, got 5"),
        (ZERO + "verifier_service: [http://h, {url: x}]", "got ['http://h', {'url': 'x'}]"),
        (ZERO + "verifier_service: []",
         "verifier_service: an empty list names no service; name at least one URL"),
        (ZERO + "verifier_service: [http://h, h]", "verifier_service: 'h' is no address of a "),
        (ZERO + "verifier_service: [http://h, http://h:80/]",
         "verifier_service: http://h:80 is named twice; name each service once"),
        (ZERO + "reward: 3", "reward: must be a mapping with keys among accuracy, control, format, "
                             "overlong, steps, terms; got 3"),
        (ZERO + "  betas: [0.9]", "optimizer.betas.1: is required"),
        (ZERO.replace("steps: 4\n", ""), "\n  steps: is required"),
        (ZERO + "algorithm: {minibatches: 3}", "nearest valid: 2"),
    ],
)  # fmt: skip
def test_a_mistake_names_the_key_the_value_and_what_is_allowed(text, said, refused):
    assert said in refused(text)


def test_the_corpus_refuses_unknown_knobs_too(refused):
    text = "stage: base\nname: b\nsteps: 1\noptimizer: {learning_rate: 1}\ncorpus: "
    assert "corpus.wrked: unknown key. Did you mean 'worked'?" in refused(text + "{wrked: 1}")
    assert "corpus: must be a mapping with keys among bare_sums," in refused(text + "7")


@pytest.mark.parametrize("backend", ["auto", "namespace", "reduced", "docker", "remote:http://h"])
def test_a_recipe_names_the_backend_of_the_sandbox(tmp_path, backend):
    path = tmp_path / "mine.yaml"
    path.write_text(f"{ZERO}sandbox: {{backend: '{backend}'}}")
    assert read(str(path)).sandbox.backend == backend


def test_a_run_continues_with_another_backend_and_from_before_there_was_a_choice():
    recipe = read("tiny/zero")
    refuse_changes(recorded(sandbox={"backend": "docker"}), recipe)
    values = recipe.model_dump(mode="json")
    del values["sandbox"]
    refuse_changes(json.dumps(values), recipe)


def test_a_setting_newer_than_the_record_had_its_default():
    values, sampler = read("tiny/zero").model_dump(mode="json"), SamplerConfig()
    del values["trainer"]["recompute"], values["sampler"], values["reward"]["terms"]
    refuse_changes(json.dumps(values), read("tiny/zero").model_copy(update={"sampler": sampler}))
    other = sampler.model_copy(update={"dtype": "bfloat16"})
    changed = read("tiny/zero").model_copy(update={"sampler": other})
    with pytest.raises(RecipeError, match=r"recipe \(sampler\.dtype: 'float32' -> 'bfloat16'\)"):
        refuse_changes(json.dumps(values), changed)


def test_newer_settings_are_found_inside_mappings_and_lists():
    sets = {"mine": {"path": "a.jsonl"}}
    recipe = ZeroRecipe.model_validate({**yaml.safe_load(ZERO), "sets": sets})
    dump = recipe.model_dump(mode="json")
    old = json.loads(json.dumps(dump))
    del old["sets"]["mine"]["against"], old["algorithm"]["clip_low"]
    assert completed(old, ZeroRecipe) == dump
    stages = [{"name": "base", "recipe": "tiny/base", "goals": {"loss": {"at_most": 1}}}]
    goals = {"loss": {"at_least": None, "at_most": 1, "gain": None}}
    assert completed({"stages": stages}, R1Recipe)["stages"] == [
        {"name": "base", "recipe": "tiny/base", "set": {}, "take": {}, "goals": goals}
    ]


def test_every_mistake_is_reported_at_once(refused):
    said = refused(ZERO + "  betta: 3\nstep: 3\nseed: x")
    assert len(said.splitlines()) == 4 and "betta" in said and "step:" in said and "seed" in said


def recorded(**changes):
    values = read("tiny/zero").model_dump(mode="json") | changes
    return json.dumps(values)


def test_a_run_continues_under_its_own_recipe():
    recipe = read("tiny/zero")
    refuse_changes(recipe.model_dump_json(), recipe)


def test_a_run_of_an_earlier_version_has_former_defaults_of_what_nothing_reads():
    recipe = read("tiny/zero")
    dump = recipe.model_dump(mode="json")
    old = {**dump, "algorithm": {**dump["algorithm"], "critic_learning_rate": 1e-3}}
    refuse_changes(json.dumps(old), recipe)
    values = {**dump, "algorithm": {"preset": "ppo"}}
    recipe = ZeroRecipe.model_validate(values)
    old = recipe.model_dump(mode="json")
    old["algorithm"]["critic_learning_rate"] = 1e-3
    with pytest.raises(RecipeError, match=r"\(algorithm.critic_learning_rate: 0.001 -> None\)"):
        refuse_changes(json.dumps(old), recipe)


def altered(values, dotted):
    """The values with another one at a dotted key."""
    head, _, rest = dotted.partition(".")
    return values | {head: altered(values[head], rest) if rest else "another"}


KEYS = [key for key, _ in flat(read("tiny/zero").model_dump(mode="json"))]


@pytest.mark.slow
@pytest.mark.parametrize("key", KEYS)
def test_only_what_training_never_sees_may_change(key):
    recipe = read("tiny/zero")
    old = json.dumps(altered(recipe.model_dump(mode="json"), key))
    if key in RESUMABLE or key.partition(".")[0] in ("evaluation", "checkpoint", "cluster"):
        refuse_changes(old, recipe)
    else:
        with pytest.raises(RecipeError, match=rf"\({key}: 'another' -> .*another --output"):
            refuse_changes(old, recipe)


def test_harmless_fields_exist():
    assert {"trainer.threads", "tensorboard", "verifier_workers"} <= set(KEYS)
    assert "trainer.row" in KEYS and "trainer" not in RESUMABLE


def test_a_field_that_only_begins_like_a_harmless_one_is_not():
    with pytest.raises(RecipeError, match="evaluation_seed: 1 -> None"):
        refuse_changes(recorded(evaluation_seed=1), read("tiny/zero"))


def test_a_refusal_names_no_more_than_five_fields():
    with pytest.raises(RecipeError) as told:
        refuse_changes(recorded(**{f"field_{i}": i for i in range(9)}), read("tiny/zero"))
    assert str(told.value).count(" -> ") == 5


@pytest.mark.parametrize("section", ["aleph", 0, "", [], [{"preset": "ppo"}], True])
def test_a_key_in_a_value_without_keys_is_refused(section):
    values = {"algorithm": section}
    with pytest.raises(RecipeError, match=r"algorithm: .* is not a section, so algorithm\.preset"):
        with_flags(values, {"algorithm.preset": "dapo"})
    assert values == {"algorithm": section}
    assert with_flags({"algorithm": None}, {"algorithm.preset": "dapo"}) == with_flags(
        {}, {"algorithm.preset": "dapo"}
    )


@pytest.mark.parametrize(
    ("stage", "flags", "section", "values"),
    [
        ("preference", {"rollout.max_tokens": 200}, "rollout",
         {"prompts": 32, "per_prompt": 8, "max_tokens": 200}),
        ("preference", {"data.held_out": 64}, "data", {"rows": 1024, "held_out": 64}),
        ("reward_model", {"data.source": "p.jsonl"}, "data", {"rows": 1024, "source": "p.jsonl"}),
        ("zero", {"problems.programs": 0.25}, "problems", {"arithmetic": 1.0, "programs": 0.25}),
        ("zero", {"problems.programs": 1, "problems.arithmetic": 0}, "problems", {"programs": 1}),
        ("zero", {"evaluation.every": 0}, "evaluation", {"every": 0}),  # its sources follow
        ("zero", {"algorithm.critic_warmup": 0}, "algorithm", {"critic_warmup": 0}),
        ("zero", {"reward.terms.short.weight": 0}, "reward", {"terms": {"short": {"weight": 0}}}),
        ("rejection_sft", {"collect.problems.arithmetic": 0}, "collect", {"problems": {}}),
        ("of no kind", {"a.b.c": 1}, "a", {"b": {"c": 1}}),
    ],
)  # fmt: skip
def test_a_section_that_is_left_out_keeps_its_other_defaults(stage, flags, section, values):
    assert with_flags({"stage": stage}, flags) == {"stage": stage, section: values}
    given = {"stage": stage, section: {}}
    with_flags(given, flags)
    assert given == {"stage": stage, section: {}}


def test_a_section_that_is_there_keeps_what_it_has():
    values = {"stage": "preference", "data": {"source": "p.jsonl"}, "rollout": None}
    assert with_flags(values, {"data.held_out": 8, "rollout.max_tokens": 9}) == {
        "stage": "preference",
        "data": {"source": "p.jsonl", "held_out": 8},
        "rollout": {"prompts": 32, "per_prompt": 8, "max_tokens": 9},
    }


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"verifier_service": "http://anna:hunter2@host:80"}, "verifier_service"),
        ({"verifier_service": ["http://a", "http://anna:hunter2@host"]}, "verifier_service"),
        ({"rewrite": {"rewriter": "https://host/v1?key=hunter2"}}, "rewrite.rewriter"),
        ({"cluster": {"samplers": {"urls": ["http://hunter2@host"]}}}, "cluster.samplers.urls"),
    ],
)  # fmt: skip
def test_credentials_in_an_address_are_refused_and_not_repeated(values, key):
    with pytest.raises(RecipeError, match=f"r.yaml: {key}: .*holds credentials.*TOKEN") as refusal:
        validate({"stage": "cold_start", "name": "x", **values}, "r.yaml")
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"collect": {"verifier_workers": 9}},
        {"collect": {"verifier_error_share": 0.9}},
        {"collect": {"verifier_service": "http://host:1"}},
        {"rewrite": {"workers": 9}},
        {"rewrite": {"seconds": 9.0}},
    ],
)
def test_how_a_stage_judges_what_it_collects_may_change(changes):
    values = read("tiny/cold_start").model_dump(mode="json")
    for section, keys in changes.items():
        values[section] |= keys
    refuse_changes(json.dumps(values), read("tiny/cold_start"))


def test_a_text_for_a_list_is_told_so():
    with pytest.raises(RecipeError, match=r"evaluation\.sources: must be a list, got 'arithmetic'"):
        validate(read_values("tiny/zero") | {"evaluation": {"sources": "arithmetic"}}, "mine")
