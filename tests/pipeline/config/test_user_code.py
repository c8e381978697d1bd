"""Functions and templates in files of the user: which are accepted, and what errors name."""

import pytest
from pydantic import ValidationError

from veriloop.data.template import INSTRUCTION
from veriloop.pipeline.config.algorithm import ADVANTAGES, OBJECTIVES, AlgorithmConfig
from veriloop.pipeline.config.sections import RolloutConfig
from veriloop.pipeline.config.user_code import load_function, template_identity
from veriloop.pipeline.runs.lineage import deciding, inputs


@pytest.fixture
def losses(tmp_path):
    path = tmp_path / "losses.py"
    path.write_text("def clipped(inputs):\n    return inputs.logp_M\n")
    return path


def test_an_objective_and_an_advantage_may_be_functions_in_a_file(losses):
    config = AlgorithmConfig(
        objective=f"{losses}:clipped", advantage=f"{losses}:clipped", objective_options={"a": 1.5}
    )
    assert config.objective_options == {"a": 1.5}
    assert load_function(config.objective)(config.model_copy(update={"logp_M": 3})) == 3


def test_a_function_of_an_installed_module_is_named_by_it():
    assert load_function("math:sqrt")(4.0) == 2.0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"objective": "clipp"}, "'clipp' is not known. Did you mean 'clip'? Known: clip, ratio"),
        ({"advantage": "grup"}, "Did you mean 'group'?"),
        ({"objective": "LOSSES:cliped"}, "has no function 'cliped'. Did you mean 'clipped'?"),
        ({"objective": "no/such.py:f"}, r"such.py:f' cannot be imported: FileNotFoundError"),
        ({"objective": "no.such:f"}, "'no.such:f' cannot be imported: ModuleNotFoundError"),
        ({"objective_options": {"a": 1}}, "read only by a function, not by 'clip'"),
        ({"advantage_options": {"a": 1}}, "read only by a function, not by 'group'"),
    ],
)
def test_a_bad_function_is_refused_by_name(losses, values, message):
    values = {
        key: value.replace("LOSSES", str(losses)) if isinstance(value, str) else value
        for key, value in values.items()
    }
    with pytest.raises(ValidationError, match=message.replace("?", r"\?")):
        AlgorithmConfig(**values)


def test_the_schema_offers_the_names_and_functions():
    schema = AlgorithmConfig.model_json_schema()["properties"]
    assert schema["objective"]["anyOf"][0]["enum"] == list(OBJECTIVES)
    assert schema["advantage"]["anyOf"][0]["enum"] == list(ADVANTAGES)


def test_the_file_of_a_function_is_hashed_into_lineage_and_its_name_decides(losses):
    recipe = {"algorithm": {"objective": f"{losses}:clipped"}}
    (entry,) = inputs(recipe).values()
    assert entry["path"] == str(losses) and len(entry["sha256"]) == 64
    assert deciding(recipe, inputs(recipe)) == {"algorithm.objective": f"{losses}:clipped"}
    losses.write_text("def clipped(inputs):\n    return -inputs.logp_M\n")
    assert inputs(recipe)["algorithm.objective (file)"]["sha256"] != entry["sha256"]


def rollout(**values):
    return RolloutConfig(prompts=1, per_prompt=2, max_tokens=8, **values)


def test_a_template_is_a_name_or_a_jinja_file(tmp_path):
    path = tmp_path / "mine.jinja"
    path.write_text("{{ bos_token }}{{ system }} Q: {{ prompt }}")
    assert rollout(template=str(path), system="Be brief.").template == str(path)
    assert template_identity("chat") == "chat"
    assert template_identity(str(path)).startswith(f"{path} ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "No such file"),
        ("{{ prompt", "template .*: unexpected"),
        ("Question:", "does not use {{ prompt }}"),
    ],
)
def test_a_bad_template_is_refused_by_name(tmp_path, text, message):
    path = tmp_path / "mine.jinja"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValidationError, match=message):
        rollout(template=str(path))
    with pytest.raises(ValidationError, match="Did you mean 'chat'"):
        rollout(template="chatt")
    with pytest.raises(ValidationError, match="template r1_zero has an instruction of its own"):
        rollout(system="x")


def test_a_system_message_is_a_text_or_a_name():
    assert rollout(template="chat", system="r1").system == INSTRUCTION
    assert rollout(template="chat", system=INSTRUCTION).system == INSTRUCTION
    assert "\\boxed{}" in rollout(template="chat", system="boxed").system
    for text in ("Be brief.", "Rboxed answers only", "", "Denke!"):
        assert rollout(template="chat", system=text).system == text
    with pytest.raises(ValidationError, match="template r1_zero has an instruction of its own"):
        rollout(system="r1")


@pytest.mark.parametrize(("name", "nearest"), [("R1", "r1"), ("r-1", "r1"), ("boxd", "boxed")])
def test_a_name_that_is_none_is_refused_with_the_nearest(name, nearest):
    with pytest.raises(ValidationError, match=f"{name!r} is not known. Did you mean '{nearest}'"):
        rollout(template="chat", system=name)
