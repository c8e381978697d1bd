"""A tokenizer trained on the corpus: byte-level BPE with one token per digit and sign."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from veriloop.data.template import CHAT

TAGS = ("<think>", "</think>", "<answer>", "</answer>")
PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"
_PIECES = r"[0-9]|[+\-=]|[^0-9+\-=]+"  # a digit, a sign, or a run of anything else


def train(documents: Iterable[str], vocabulary: int, words: Sequence[str] = ()) -> Any:
    """Train on `documents` and return a `transformers` fast tokenizer.

    The four tags and `words` are single tokens, not *special* ones, so decoding never drops them.
    As a single token, a name is never merged with the phrase around it.
    """
    from tokenizers import (
        AddedToken,
        Regex,
        Tokenizer,
        decoders,
        models,
        pre_tokenizers,
        processors,
        trainers,
    )
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.add_special_tokens([PAD, BOS, EOS])
    added = [AddedToken(tag, normalized=False) for tag in TAGS]
    added += [AddedToken(word, normalized=False) for word in words]
    tokenizer.add_tokens(added)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(added),
        special_tokens=[PAD, BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        min_frequency=5,
        show_progress=False,
    )
    # Train on the text between tags and words only: merges must not learn a second token for them.
    whole = re.compile("|".join(map(re.escape, (*TAGS, *words))))
    pieces = (piece for text in documents for piece in whole.split(text) if piece)
    tokenizer.train_from_iterator(pieces, trainer)
    tokenizer.add_tokens(added)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, tokenizer.token_to_id(BOS))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        chat_template=CHAT,
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
    )
