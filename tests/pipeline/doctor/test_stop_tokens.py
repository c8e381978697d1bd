"""Ends of answers: each mistake is planted in a sound checkpoint."""

import pytest

from veriloop.pipeline.doctor.stop_tokens import end_ids, end_of_turn, padding


def test_a_sound_checkpoint_passes(checkpoint, finding):
    one = checkpoint()
    found = finding(end_ids, one)
    assert (found.verdict, found.measured, found.number) == ("ok", "2 '<eos>'", 1)
    assert finding(end_of_turn, one).measured == "2 '<eos>', which ends a response"
    assert finding(padding, one).measured == "0 '<pad>', which is no end id"


def test_a_tokenizer_without_an_end_fails(checkpoint, finding):
    one = checkpoint()
    one.tokenizer.eos_token = None
    one.generation.eos_token_id = None
    found = finding(end_ids, one)
    assert found.verdict == "fail" and "nothing ends a response" in found.measured


def test_an_end_beyond_the_model_fails(checkpoint, finding):
    one = checkpoint()
    one.generation.eos_token_id = [2, 400]
    found = finding(end_ids, one)
    assert found.verdict == "fail" and found.measured == "[400] exceed the model's 400 tokens"


def test_an_end_that_only_the_config_knows_is_warned_of(checkpoint, finding):
    one = checkpoint()
    one.config.eos_token_id = [2, 7]
    found = finding(end_ids, one)
    assert found.verdict == "warn" and "config.json also has 7" in found.measured
    assert found.fix.endswith("to [2, 7]")
    one.config.eos_token_id = None
    assert finding(end_ids, one).verdict == "ok"


def test_without_a_generation_config_the_ends_of_config_json_count(checkpoint, altered, finding):
    folder = altered("config.json", eos_token_id=[2, 7])
    (folder / "generation_config.json").unlink()
    found = finding(end_ids, checkpoint(folder))
    assert (found.verdict, found.number) == ("ok", 2)


def test_an_end_of_turn_that_is_not_listed_is_warned_of_with_the_right_list(checkpoint, finding):
    one = checkpoint()
    one.tokenizer.add_special_tokens({"extra_special_tokens": ["<|end|>"]})
    mark = one.tokenizer.convert_tokens_to_ids("<|end|>")
    one.tokenizer.chat_template = one.tokenizer.chat_template.replace("eos_token", "'\n<|end|>\n'")
    found = finding(end_of_turn, one)
    assert (found.verdict, found.number) == ("warn", mark)
    assert f'"eos_token_id": [2, {mark}]' in found.fix
    one.generation.eos_token_id = [2, mark]
    assert finding(end_of_turn, one).verdict == "ok"


@pytest.mark.parametrize(
    ("written", "verdict", "said"),
    [
        ("message['content'] }}", "warn", "no special token after an answer, but ''"),
        ("'hidden' }}", "fail", "leaves the answer out"),
    ],
)
def test_a_template_that_ends_no_turn_or_drops_the_answer(
    checkpoint, finding, written, verdict, said
):
    one = checkpoint()
    one.tokenizer.chat_template = one.tokenizer.chat_template.replace(
        "message['content'] + eos_token }}", written
    )
    found = finding(end_of_turn, one)
    assert found.verdict == verdict and said in found.measured


def test_without_a_template_there_is_no_turn_to_end(checkpoint, finding):
    one = checkpoint()
    one.tokenizer.chat_template = None
    assert finding(end_of_turn, one).verdict == "skipped"


def test_a_pad_that_ends_is_warned_of(checkpoint, finding):
    one = checkpoint()
    one.tokenizer.pad_token = one.tokenizer.eos_token
    found = finding(padding, one)
    assert (found.verdict, found.number) == ("warn", 2) and "also ends a response" in found.measured


def test_no_pad_is_fine_and_one_beyond_the_model_is_not(checkpoint, finding):
    one = checkpoint()
    one.tokenizer.pad_token = None
    assert finding(padding, one).verdict == "ok"
    one.tokenizer.add_tokens([f"<extra{i}>" for i in range(200)])
    one.tokenizer.pad_token = "<extra199>"
    found = finding(padding, one)
    assert found.verdict == "fail" and "exceeds the model's 400 tokens" in found.measured
