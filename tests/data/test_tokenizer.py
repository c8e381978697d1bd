"""The tokenizer: nothing is lost on the way through it, nor on the way through a checkpoint."""

import re
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veriloop.data import corpus
from veriloop.data.tokenizer import BOS, EOS, PAD, TAGS, train
from veriloop.pipeline.config.pretraining import TinyModel
from veriloop.pipeline.model.policy import load_policy, load_tokenizer, save_policy
from veriloop.stages.base import untrained

VOCABULARY = 320
SHAPE = TinyModel(hidden=32, layers=1, heads=1, feed_forward=32, vocabulary=VOCABULARY)
TEXTS = [
    "<think>First 15-5.</think><answer>10</answer>",
    "计算9-9+8+1。先算0+8+1。检验：0+9=9对。",
    "  leading and trailing  ",
    "don 't join , what stands apart !",
    "12+3-4=11",
    "\ttab\nline\r\n",
    "naïve café 🙂 \u0000 \ufffd",
    "",
]


def documents(count, seed=0):
    random = Random(seed)
    return [corpus.document(random, corpus.Mix()) for _ in range(count)]


@pytest.fixture(scope="module")
def tokenizer():
    return train(documents(600), VOCABULARY)


@pytest.fixture(scope="module")
def folder(tokenizer, tmp_path_factory):
    where = tmp_path_factory.mktemp("model")
    save_policy(untrained(SHAPE, tokenizer), tokenizer, where)
    return where


@pytest.fixture(scope="module")
def loaded(folder):
    return load_tokenizer(folder)


def encode(tokenizer, text):
    return tokenizer(text, add_special_tokens=False).input_ids


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back_as_it_went_in(tokenizer, text):
    ids = encode(tokenizer, text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=True) == text


@pytest.mark.slow
@settings(deadline=None)
@given(text=st.text(max_size=40).filter(lambda t: "<" not in t))
def test_any_text_comes_back(tokenizer, text):
    assert tokenizer.decode(encode(tokenizer, text)) == text


def test_digits_and_signs_are_separate_tokens(tokenizer):
    ids = encode(tokenizer, "12+34-5=41")
    assert [tokenizer.decode([i]) for i in ids] == list("12+34-5=41")
    assert encode(tokenizer, "ok12") == encode(tokenizer, "ok") + encode(tokenizer, "12")


def test_each_tag_is_one_token_anywhere_in_a_text(tokenizer):
    for tag in TAGS:
        (alone,) = encode(tokenizer, tag)
        for before, after in (("", "x"), ("x", ""), ("7", "7"), (" ", " "), ("。", "<")):
            inside = encode(tokenizer, before + tag + after)
            assert inside == [*encode(tokenizer, before), alone, *encode(tokenizer, after)]


def test_tags_survive_decoding_that_skips_special_tokens(tokenizer):
    text = "<think>hm</think><answer>4</answer>"
    ids = [*tokenizer(text).input_ids, tokenizer.eos_token_id, tokenizer.pad_token_id]
    assert tokenizer.decode(ids, skip_special_tokens=True) == text
    assert tokenizer.decode(ids, skip_special_tokens=False) == f"{BOS}{text}{EOS}{PAD}"
    assert not set(TAGS) & set(tokenizer.all_special_tokens)


def test_a_text_begins_with_exactly_one_bos_and_has_no_eos(tokenizer):
    for text in (*TEXTS, *documents(20, seed=1)):
        ids = tokenizer(text).input_ids
        assert ids[0] == tokenizer.bos_token_id and ids.count(tokenizer.bos_token_id) == 1
        assert tokenizer.eos_token_id not in ids and tokenizer.pad_token_id not in ids


def test_padding_beginning_and_end_are_three_different_tokens(tokenizer):
    ids = {tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id}
    assert len(ids) == 3 and None not in ids


def test_every_id_fits_the_model(tokenizer):
    """Tags that were merged by themselves need no rows of their own."""
    assert sorted(tokenizer.get_vocab().values()) == list(range(len(tokenizer)))
    assert VOCABULARY - len(TAGS) <= len(tokenizer) <= VOCABULARY


def test_frequent_words_are_merged(tokenizer):
    assert len(encode(tokenizer, " Assistant:")) < len(" Assistant:") / 2
    assert len(encode(tokenizer, "先算")) < len("先算".encode())


def test_saved_with_its_model_it_loads_back_with_the_same_ids(tokenizer, loaded):
    for text in (*TEXTS, *documents(100, seed=2)):
        assert loaded(text).input_ids == tokenizer(text).input_ids
        assert encode(loaded, text) == encode(tokenizer, text)


def test_saved_with_its_model_it_decodes_the_same(tokenizer, loaded):
    for text in (*TEXTS, *documents(20, seed=3)):
        ids = tokenizer(text).input_ids
        for skip in (True, False):
            assert loaded.decode(ids, skip_special_tokens=skip) == tokenizer.decode(
                ids, skip_special_tokens=skip
            )


def test_saved_with_its_model_it_keeps_its_special_tokens_and_template(tokenizer, loaded):
    for name in ("pad_token_id", "bos_token_id", "eos_token_id", "chat_template", "vocab_size"):
        assert getattr(loaded, name) == getattr(tokenizer, name)
    assert loaded.all_special_tokens == tokenizer.all_special_tokens
    assert loaded.model_max_length == 1024


def test_model_and_tokenizer_agree_on_what_begins_and_ends_a_text(folder, loaded):
    model = load_policy(folder)
    for config in (model.config, model.generation_config):
        assert config.bos_token_id == loaded.bos_token_id
        assert config.eos_token_id == loaded.eos_token_id
        assert config.pad_token_id == loaded.pad_token_id
    assert model.get_input_embeddings().num_embeddings == VOCABULARY >= len(loaded)


def test_every_id_up_to_the_asked_for_size_is_in_use():
    random = Random(3)
    documents = [corpus.document(random, corpus.Mix()) for _ in range(2000)]
    assert len(train(documents, 420)) == 420


@pytest.mark.slow
def test_words_are_one_token_each_whatever_is_next_to_them():
    random = Random(3)
    mix = corpus.Mix(general=0.5)
    documents = [corpus.document(random, mix) for _ in range(800)]
    words = ("Amy", "cow", "牛", "哞哞")
    trained = train(documents, 700, words)
    for text in ("Greet Amy.", "问候艾米。", "A cow says moo.", "牛叫哞哞。", "cowAmy牛"):
        ids = trained(text, add_special_tokens=False).input_ids
        assert trained.decode(ids) == text
        pieces = [trained.decode([i]) for i in ids]
        assert [w for w in pieces if w in words] == re.findall("|".join(words), text)
    plain = train(documents, 700)
    assert "Amy" not in [plain.decode([i]) for i in plain("Hello Amy, nice").input_ids]
