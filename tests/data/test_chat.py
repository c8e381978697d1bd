"""Conversations as text, whatever the day."""

import copy
from pathlib import Path

import pytest

from veriloop.data.chat import chat_text
from veriloop.data.problem import Problem
from veriloop.data.sft_ids import encode_example
from veriloop.data.sft_rows import Conversation
from veriloop.pipeline.rollouts.generate import prompt_text

DATED = (  # as Llama 3.2's and SmolLM3's
    "{%- if not date_string is defined -%}{%- if strftime_now is defined -%}"
    "{%- set date_string = strftime_now('%d %b %Y') -%}"
    "{%- else -%}{%- set date_string = '26 Jul 2024' -%}{%- endif -%}{%- endif -%}"
    "{{ bos_token + 'Today is ' + date_string + '.' }}"
    "{%- for m in messages -%}{{ ' ' + m['role'] + ': ' + m['content'] + eos_token }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ ' assistant: ' }}{%- endif -%}"
)
ASKED = {"role": "user", "content": "3+4?"}
ROOT = Path(__file__).parents[2]
PACKAGES = ("data", "verifiers", "sandbox", "pipeline", "stages")
ONLY_HERE = {"data/chat.py", "pipeline/doctor/chat_template.py"}


@pytest.fixture
def dated(tokenizer):
    changed = copy.deepcopy(tokenizer)
    changed.chat_template = DATED
    return changed


def test_a_template_that_writes_the_date_writes_the_same_on_every_day(dated):
    text = chat_text([ASKED], dated, invites=True)
    assert text == f"{dated.bos_token}Today is 26 Jul 2024. user: 3+4?{dated.eos_token} assistant: "
    problem = Problem(id="1", prompt="3+4?", reference="7", verifier="number")
    assert prompt_text(problem, dated, "chat", "") == text
    row = Conversation(messages=[ASKED, {"role": "assistant", "content": "7"}])
    assert "26 Jul 2024" in dated.decode(encode_example(row, dated, (dated.eos_token_id,)).ids)


def test_no_other_code_renders_templates():
    calling = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if ".apply_chat_template(" in path.read_text()
    }
    assert calling == ONLY_HERE
