"""SmolLM2-135M-Instruct itself, where requirements/published-model.sh has fetched it."""

import json
from pathlib import Path

import pytest

from veriloop.data.gym import GymSource
from veriloop.data.problem import Problem
from veriloop.data.sft_ids import encode_example
from veriloop.data.sft_rows import parse_rows
from veriloop.data.worked_rows import worked_rows
from veriloop.pipeline.doctor.chat_template import beginnings, round_trip, template_ids
from veriloop.pipeline.doctor.checkpoint_under_test import CheckpointUnderTest
from veriloop.pipeline.dry_run.plan import parameters
from veriloop.pipeline.model.policy import eos_ids, load_generation_config, load_tokenizer
from veriloop.pipeline.rollouts.generate import prompt_ids

FOLDER = Path(__file__).parents[2] / "models/SmolLM2-135M-Instruct"

pytestmark = [
    pytest.mark.published,
    pytest.mark.slow,
    pytest.mark.skipif(
        not (FOLDER / "model.safetensors").is_file(),
        reason=f"{FOLDER.name} is not here: sh requirements/published-model.sh",
    ),
]


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(FOLDER)


def test_the_marker_of_a_turn_is_its_bos(tokenizer):
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|im_start|>", "<|im_end|>")
    assert eos_ids(load_generation_config(FOLDER), tokenizer) == (tokenizer.eos_token_id,)
    assert parameters(FOLDER) == 134_515_008
    assert "quantization_config" not in json.loads((FOLDER / "config.json").read_text())


def test_a_row_is_learned_after_the_prompt_that_the_rl_stages_ask(tokenizer):
    source = GymSource("chain_sum", {"max_terms": 3, "max_digits": 2}, "sums")
    for row in parse_rows(worked_rows({"sums": source}, {"sums": 1.0}, 0, 20), "row"):
        example = encode_example(row, tokenizer, (tokenizer.eos_token_id,))
        question, answer = (message["content"] for message in row.messages)
        problem = Problem(id="sums/rl/0", prompt=question, verifier="number", reference={})
        prompt = prompt_ids(problem, tokenizer, "chat")
        first = example.learned.index(True)
        assert example.ids[:first] == prompt and prompt.count(tokenizer.bos_token_id) == 3
        assert tokenizer.decode(example.ids[first:]).startswith(f"{answer}<|im_end|>")


def test_the_doctor_finds_its_template_sound():
    checkpoint = CheckpointUnderTest(FOLDER)
    findings = [
        finding
        for check in (beginnings, round_trip, template_ids)
        for finding in check(checkpoint)
    ]  # fmt: skip
    assert [(found.name, found.verdict) for found in findings if found.verdict != "ok"] == []
    assert "one per turn" in next(f.measured for f in findings if f.name == "BOS, chat prompt")
