"""A tokenizer trained on the corpus: byte-level BPE in which digits and signs stand alone."""

import re
from collections.abc import Iterable
from typing import Any

from data.template import CHAT

TAGS = ("<think>", "</think>", "<answer>", "</answer>")
PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"
_TAG = re.compile("|".join(TAGS))
_PIECES = r"[0-9]|[+\-=]|[^0-9+\-=]+"  # a digit, a sign, or a run of anything else


def train(documents: Iterable[str], vocabulary: int) -> Any:
    """Train on `documents` and return a `transformers` fast tokenizer.

    The four tags are single tokens but not *special* ones: decoding never drops them.
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
    tags = [AddedToken(tag, normalized=False) for tag in TAGS]
    tokenizer.add_tokens(tags)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(TAGS),
        special_tokens=[PAD, BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        min_frequency=5,
        show_progress=False,
    )
    # between the tags only: a tag that merges learn as well would be two tokens of one text
    pieces = (piece for text in documents for piece in _TAG.split(text) if piece)
    tokenizer.train_from_iterator(pieces, trainer)
    tokenizer.add_tokens(tags)
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
