"""Prompts begin once; responses are read as they were written."""

import copy
from dataclasses import replace

import pytest
from transformers import GenerationConfig

from veriloop.data.arithmetic import problem
from veriloop.data.problem import Problem
from veriloop.data.template import R1_ZERO
from veriloop.pipeline.model.policy import eos_ids
from veriloop.pipeline.rollouts.generate import RolloutGenerator, prompt_ids, response_text
from veriloop.pipeline.sampling.sampler import Completion, Sampling

ASKED = Problem(id="p/0", prompt="What is 3+4?", verifier="number", reference={"value": "7"})


class Spelled:
    """A tokenizer of one id a character, with the beginnings that a test asks for."""

    def __init__(self, *, adds_bos=True, bos=1, chat=""):
        self.bos_token_id, self.bos_token, self.eos_token_id = bos, "^", 2
        self.adds_bos, self.chat = adds_bos, chat

    def __call__(self, text, add_special_tokens=True):
        ids = [self.bos_token_id if c == "^" else ord(c) for c in text]
        self.input_ids = [self.bos_token_id, *ids] if add_special_tokens and self.adds_bos else ids
        return self

    def apply_chat_template(self, messages, *, add_generation_prompt, tokenize, **_):
        assert add_generation_prompt and not tokenize
        return self.chat.format(messages[0]["content"])


def spelled(text):
    return tuple(ord(c) for c in text)


@pytest.mark.parametrize("index", range(10))
@pytest.mark.parametrize("template", ["r1_zero", "chat"])
def test_a_prompt_is_the_template_as_the_model_read_it_in_training(tokenizer, template, index):
    asked = problem("rl", 0, index)
    ids = prompt_ids(asked, tokenizer, template)
    assert list(ids) == tokenizer(R1_ZERO.format(prompt=asked.prompt)).input_ids
    assert ids[0] == tokenizer.bos_token_id and ids.count(tokenizer.bos_token_id) == 1
    assert tokenizer.eos_token_id not in ids


def test_a_tokenizer_that_adds_no_bos_gets_none():
    ids = prompt_ids(ASKED, Spelled(adds_bos=False))
    assert ids == spelled(R1_ZERO.format(prompt=ASKED.prompt))


def test_a_tokenizer_that_has_no_bos_at_all_gets_none():
    ids = prompt_ids(ASKED, Spelled(adds_bos=False, bos=None))
    assert ids == spelled(R1_ZERO.format(prompt=ASKED.prompt))


def test_a_tokenizer_that_adds_its_bos_gets_it_once():
    ids = prompt_ids(ASKED, Spelled())
    assert ids == (1, *spelled(R1_ZERO.format(prompt=ASKED.prompt)))


@pytest.mark.parametrize("adds_bos", [True, False])
def test_a_chat_template_may_begin_the_text_itself(adds_bos):
    ids = prompt_ids(ASKED, Spelled(adds_bos=adds_bos, chat="^Q: {}"), "chat")
    assert ids == (1, *spelled("Q: What is 3+4?"))


def test_a_system_message_comes_before_the_question_in_a_chat(tokenizer):
    ids = prompt_ids(ASKED, tokenizer, "chat", "Add.")
    assert tokenizer.decode(ids) == "<bos>Add. User: What is 3+4? Assistant:"


def test_a_question_may_quote_the_bos_token():
    asked = replace(ASKED, prompt="?^ is what?")
    assert prompt_ids(asked, Spelled(chat="^{}"), "chat") == (1, ord("?"), 1, *spelled(" is what?"))


@pytest.mark.parametrize("bos", ["<bos>", None])
def test_the_text_of_a_prompt_is_without_the_bos_token_of_the_tokenizer(tokenizer, bos):
    tokenizer = copy.deepcopy(tokenizer)
    if bos is None:
        tokenizer.bos_token = None
    generator = RolloutGenerator(tokenizer, GenerationConfig(eos_token_id=2))
    assert generator.prompt_text(ASKED) == R1_ZERO.format(prompt=ASKED.prompt)


@pytest.mark.parametrize("adds_bos", [True, False])
def test_the_text_of_a_prompt_encodes_to_its_ids_in_a_template_that_writes_the_bos_token(
    tokenizer, adds_bos
):
    tokenizer = copy.deepcopy(tokenizer)
    if not adds_bos:
        tokenizer.backend_tokenizer.post_processor = None
    tokenizer.chat_template = "{{ bos_token }}{{ messages[0]['content'] }}"
    generator = RolloutGenerator(tokenizer, GenerationConfig(eos_token_id=2), "chat")
    text = generator.prompt_text(ASKED)
    assert tuple(tokenizer(text).input_ids) == generator.prompt(ASKED)
    assert text == ("" if adds_bos else "<bos>") + ASKED.prompt


@pytest.mark.parametrize("adds_bos", [True, False])
def test_a_template_of_the_user_gets_the_bos_token_that_the_tokenizer_writes(tmp_path, adds_bos):
    path = tmp_path / "mine.jinja"
    path.write_text("{{ bos_token }}{{ system }} Q: {{ prompt }}")
    ids = prompt_ids(ASKED, Spelled(adds_bos=adds_bos), str(path), "Add.")
    assert ids == ((1,) if adds_bos else ()) + spelled("Add. Q: What is 3+4?")


@pytest.mark.parametrize("adds_bos", [True, False])
def test_two_beginnings_are_refused(adds_bos):
    with pytest.raises(ValueError, match=r"begins with 2 BOS ids \(1\)"):
        prompt_ids(ASKED, Spelled(adds_bos=adds_bos, chat="^^Q: {}"), "chat")


def test_a_missing_beginning_is_refused():
    with pytest.raises(ValueError, match=r"lacks the BOS id \(1\)"):
        prompt_ids(ASKED, Spelled(chat="Q: {}"), "chat")


def test_a_response_keeps_its_tags_and_loses_only_its_end(tokenizer):
    text = "<think>hm</think><answer>7</answer>"
    ids = tuple(tokenizer(text, add_special_tokens=False).input_ids)
    end = tokenizer.eos_token_id
    assert response_text((*ids, end), tokenizer, (end,)) == text
    assert response_text(ids, tokenizer, (end,)) == text


def test_special_tokens_that_the_model_wrote_on_its_way_are_shown(tokenizer):
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    ids = (pad, end, *tokenizer("7", add_special_tokens=False).input_ids, end)
    assert response_text(ids, tokenizer, (end,)) == "<pad><eos>7"
    assert response_text((end, end), tokenizer, (end,)) == "<eos>"


def test_every_id_that_ends_a_response_is_taken_off(tokenizer):
    seven = tokenizer("7", add_special_tokens=False).input_ids
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    assert response_text((*seven, pad), tokenizer, (pad, end)) == "7"
    assert response_text((*seven, pad), tokenizer, (end,)) == "7<pad>"


@pytest.mark.parametrize("cleans", [False, True])
def test_spaces_stay_where_the_model_put_them(tokenizer, cleans):
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.clean_up_tokenization_spaces = cleans
    tokenizer.clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output = cleans
    text = " don 't , clean . up ! "
    ids = tuple(tokenizer(text, add_special_tokens=False).input_ids)
    assert (tokenizer.decode(list(ids)) != text) == cleans
    assert response_text(ids, tokenizer, ()) == text


def test_nothing_written_is_an_empty_text(tokenizer):
    assert response_text((), tokenizer, (2,)) == ""
    assert response_text((tokenizer.eos_token_id,), tokenizer, (tokenizer.eos_token_id,)) == ""


def chatting(tokenizer, template):
    """The tokenizer with ChatML's marks and a template of its own."""
    made = copy.deepcopy(tokenizer)
    made.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    made.chat_template = template
    return made


TURNS = (
    "{%- for m in messages -%}<|im_start|>{{ m.role }}\n"
    "{%- if m.role == 'assistant' -%}{{ m.content.split('</think>')[-1] }}"
    "{%- else -%}{{ m.content }}{%- endif -%}<|im_end|>\n{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|im_start|>assistant\n{{ opening }}{%- endif -%}"
)
CHATML = "{{ bos_token }}{%- set opening = '' -%}" + TURNS
THINKING = "{{ bos_token }}{%- set opening = '<think>\n' -%}" + TURNS
NO_SYSTEM = "{{ raise_exception('System role not supported') }}"
DEAF = "{{ bos_token }}{{ messages[-1].content }}"


def test_a_system_message_comes_first_and_a_prompt_begins_once(tokenizer):
    chat = chatting(tokenizer, CHATML)
    ids = prompt_ids(ASKED, chat, "chat", "Be brief.")
    text = chat.decode(list(ids), skip_special_tokens=False)
    assert text.index("Be brief.") < text.index("What is 3+4?")
    assert ids.count(chat.bos_token_id) == 1 and ids[0] == chat.bos_token_id


@pytest.mark.parametrize(
    ("template", "message"),
    [(NO_SYSTEM, "refuses these messages: System role"), (DEAF, "leaves the system message out")],
)
def test_a_system_message_that_would_be_lost_is_refused(tokenizer, template, message):
    with pytest.raises(ValueError, match=message):
        prompt_ids(ASKED, chatting(tokenizer, template), "chat", "Be brief.")


@pytest.mark.parametrize(("template", "opened"), [(THINKING, True), (CHATML, False)])
def test_thinking_that_the_template_opens_is_part_of_the_prompt_and_known(
    tokenizer, template, opened
):
    chat = chatting(tokenizer, template)
    scribe = RolloutGenerator(chat, GenerationConfig(eos_token_id=2), "chat")
    prompt = scribe.prompt(ASKED)
    assert chat.decode(list(prompt), skip_special_tokens=False).endswith("<think>\n") == opened
    written = tuple(chat("hm</think><answer>7</answer>", add_special_tokens=False).input_ids)

    class Engine:
        version = 0

        def sample(self, prompts, sampling, told):
            del prompts, sampling, told
            return [[Completion(ids=written, logp=(0.0,) * len(written), finish="length")]]

    sampling = Sampling(per_prompt=1, temperature=1.0, max_tokens=64, seed=0)
    (rollout,) = scribe.rollouts(Engine(), [("g", ASKED)], sampling)
    assert rollout.response == "hm</think><answer>7</answer>"
    assert rollout.problem.facts.get("prefilled_think", False) is opened


def test_the_token_that_ends_a_turn_ends_a_response_though_no_config_lists_it(tokenizer):
    chat = chatting(tokenizer, CHATML)
    end = chat.convert_tokens_to_ids("<|im_end|>")
    assert eos_ids(GenerationConfig(eos_token_id=2), chat) == tuple(sorted({2, end}))
    assert eos_ids(GenerationConfig(eos_token_id=[2, 5]), tokenizer) == (2, 5)
    for silent in (NO_SYSTEM, DEAF):
        assert eos_ids(GenerationConfig(eos_token_id=2), chatting(tokenizer, silent)) == (2,)
