"""A model of a few thousand weights whose tokens are whole answers, some of them right."""

from pathlib import Path
from typing import Any

ANSWERS = tuple(f"<answer>{value}</answer>" for value in (1, 2))
FORMULAS = ("\\boxed{\\frac{2}{4}}", "\\boxed{\\sqrt{8}}")
TAGS = ("<think>", "</think>")
WORDS = ("user", "assistant", "What", "is", "1", "2", "+", "-", "0", "?")
SPECIAL = ("<pad>", "<s>", "</s>")
CHAT = (
    "{% for m in messages %}{{ m['role'] + ' ' + m['content'] + ' ' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant ' }}{% endif %}"
)


def word_tokenizer() -> Any:
    """A tokenizer with one token per word; decoding joins them with single spaces."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate((*SPECIAL, *ANSWERS, *TAGS, *WORDS, *FORMULAS))}
    plain = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    built = PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )
    built.chat_template = CHAT
    return built


def never_said(tokenizer: Any) -> list[int]:
    """Ids to suppress, so that only answers, tags and the end are sampled."""
    return tokenizer.convert_tokens_to_ids(["<pad>", "<s>", *WORDS, *FORMULAS])


def model(folder: Path) -> Path:
    """A random OLMo 2 with that tokenizer, saved at `folder`.

    For other families AutoTokenizer replaces the saved pre-tokenizer by that of the family.
    """
    from transformers import GenerationConfig, Olmo2Config, Olmo2ForCausalLM, set_seed

    tokenizer = word_tokenizer()
    kinds = ("pad", "bos", "eos")
    ends = {f"{kind}_token_id": getattr(tokenizer, f"{kind}_token_id") for kind in kinds}
    set_seed(0)
    built = Olmo2ForCausalLM(
        Olmo2Config(
            vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=128, **ends,
        )
    )  # fmt: skip
    built.generation_config = GenerationConfig(**ends)
    built.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
