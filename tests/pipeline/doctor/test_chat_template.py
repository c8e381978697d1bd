"""From text to ids: two BOS, lost characters and templates that leave things out."""

import pytest
from tokenizers import normalizers

from veriloop.pipeline.doctor.chat_template import (
    beginnings,
    reasoning,
    round_trip,
    template_ids,
    think_tags,
)

CHAT = "BOS, chat prompt"


def test_a_sound_tokenizer_passes(checkpoint, finding, findings):
    one = checkpoint()
    found = findings(beginnings, one)
    assert [(f.verdict, f.number) for f in found.values()] == [("ok", 1), ("ok", 1)]
    assert finding(round_trip, one).measured == "6 of 6 texts are unchanged"
    assert {finding(look, one).verdict for look in (template_ids, reasoning, think_tags)} == {"ok"}
    assert finding(think_tags, one).number == 4


def test_two_beginnings_fail(checkpoint, findings):
    one = checkpoint()
    one.tokenizer.chat_template = "{{- bos_token -}}" + one.tokenizer.chat_template
    found = findings(beginnings, one)
    assert (found[CHAT].verdict, found[CHAT].number) == ("fail", 2)
    assert found["BOS, plain prompt"].verdict == "ok"


def test_a_second_beginning_further_on_fails_too(checkpoint, findings):
    one = checkpoint()
    one.tokenizer.chat_template += "{{ bos_token }}"
    assert findings(beginnings, one)[CHAT].number == 2


def test_a_template_without_the_beginning_fails(checkpoint, findings):
    one = checkpoint()
    one.tokenizer.chat_template = one.tokenizer.chat_template.replace("{{- bos_token -}}", "")
    found = findings(beginnings, one)[CHAT]
    assert (found.verdict, found.number) == ("fail", 0) and "begin chat_template" in found.fix


def test_a_beginning_that_also_ends_may_stand_inside(checkpoint, findings):
    one = checkpoint()
    one.tokenizer.eos_token = one.tokenizer.bos_token
    one.tokenizer.chat_template += "{{ eos_token }}"
    assert findings(beginnings, one)[CHAT].verdict == "ok"


def test_a_tokenizer_that_has_no_beginning_needs_none(checkpoint, findings):
    one = checkpoint()
    one.tokenizer.bos_token = None
    one.tokenizer.chat_template = one.tokenizer.chat_template.replace("{{- bos_token -}}", "")
    assert findings(beginnings, one)[CHAT].measured == "the tokenizer has none"


def test_a_normalizer_that_loses_something_fails_and_shows_what(checkpoint, finding):
    one = checkpoint()
    one.tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()
    found = finding(round_trip, one)
    assert found.verdict == "fail" and "'First, 12+7=19; then' becomes 'first" in (found.measured)
    assert found.number == 4  # of 6: one is lower case already, and Chinese has no case


def test_a_text_that_comes_back_shorter_fails(checkpoint, finding):
    one = checkpoint()
    one.tokenizer.backend_tokenizer.normalizer = normalizers.Strip()
    found = finding(round_trip, one)
    assert found.verdict == "fail" and found.number >= 1


def test_a_template_whose_own_ids_differ_fails(checkpoint, finding):
    one = checkpoint()
    apply = one.tokenizer.apply_chat_template

    def with_another(messages, **how):
        made = apply(messages, **how)
        if how.get("tokenize", True):
            made["input_ids"] = [1, *made["input_ids"]]
        return made

    one.tokenizer.apply_chat_template = with_another
    found = finding(template_ids, one)
    assert (found.verdict, found.number) == ("fail", 1)


@pytest.mark.parametrize(
    ("condition", "said", "number"),
    [
        ("true", "strips the reasoning of the last answer and strips the reasoning of earlier", 2),
        ("not loop.last", "strips the reasoning of earlier answers", 1),
    ],
)
def test_a_template_that_strips_reasoning_says_so(checkpoint, finding, condition, said, number):
    one = checkpoint()
    one.tokenizer.chat_template = (
        "{{ bos_token }}{% for message in messages %}"
        f"{{% if {condition} %}}{{{{ message['content'].split('</think>')[-1] }}}}"
        "{% else %}{{ message['content'] }}{% endif %}{{ eos_token }}{% endfor %}"
    )
    found = finding(reasoning, one)
    assert (found.verdict, found.number) == ("warn", number) and said in found.measured


def test_a_prompt_that_opens_the_reasoning_says_so(checkpoint, finding):
    one = checkpoint()
    one.tokenizer.chat_template += "{% if add_generation_prompt %}<think>\n{% endif %}"
    found = finding(reasoning, one)
    assert found.verdict == "warn" and found.measured == "the template prefills <think>"
    assert "prefilled_think" in found.fix


def test_tags_that_are_special_are_warned_of(checkpoint, finding):
    one = checkpoint()
    one.tokenizer.add_special_tokens({"extra_special_tokens": ["<think>"]})
    found = finding(think_tags, one)
    assert found.verdict == "warn" and found.measured == "<think> are special tokens"


@pytest.mark.parametrize("look", [template_ids, reasoning])
def test_without_a_template_it_is_reported(checkpoint, finding, findings, look):
    one = checkpoint()
    one.tokenizer.chat_template = None
    assert finding(look, one).verdict == "skipped"
    assert findings(beginnings, one)[CHAT].verdict == "skipped"
    assert finding(round_trip, one).measured.startswith("5 of 5")


def test_a_template_that_cannot_be_rendered_fails_and_says_why(checkpoint, finding):
    one = checkpoint()
    one.tokenizer.chat_template = "{{ raise_exception('no such role') }}"
    found = finding(reasoning, one)
    assert found.verdict == "fail" and "no such role" in found.measured


def test_a_beginning_that_every_turn_of_the_template_has_is_no_second_one(checkpoint, findings):
    one = checkpoint()
    one.tokenizer.chat_template = (
        "{% for m in messages %}{{ bos_token + m['role'] + ' ' + m['content'] + eos_token }}"
        "{% endfor %}{% if add_generation_prompt %}{{ bos_token + 'assistant ' }}{% endif %}"
    )
    found = findings(beginnings, one)[CHAT]
    assert (found.verdict, found.number) == ("ok", 2) and "one per turn" in found.measured
    one.tokenizer.chat_template = "{{ bos_token }}" + one.tokenizer.chat_template
    found = findings(beginnings, one)[CHAT]
    assert (found.verdict, found.number) == ("fail", 3)
