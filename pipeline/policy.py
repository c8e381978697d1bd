"""The trained model: load it, save it, and score tokens with it.

Axes: R packed rows, T positions, M positions picked by a mask, D width, V vocabulary.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pipeline import packed_attention
from pipeline.losses.logprob import logp_and_entropy_from_hidden
from pipeline.records import Batch


def load_tokenizer(path: str | Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(path))


def load_generation_config(path: str | Path) -> Any:
    """What the checkpoint says about ending and padding a response."""
    from transformers import GenerationConfig

    return GenerationConfig.from_pretrained(str(path))


def load_policy(path: str | Path, dtype: torch.dtype = torch.float32) -> Any:
    """A causal LM of transformers, ready to train; dropout off so that scores are reproducible."""
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    if not (Path(path) / "config.json").is_file():
        raise FileNotFoundError(f"{path} holds no Hugging Face checkpoint: no config.json in it")
    return without_dropout(AutoModelForCausalLM.from_pretrained(str(path), dtype=dtype)).train()


def save_policy(model: Any, tokenizer: Any, directory: Path) -> None:
    """Weights, configs, tokenizer and chat template, as transformers writes them."""
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def without_dropout(model: Any) -> Any:
    """Every dropout set to 0: old and new log-probs must not differ by chance."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if hasattr(module, "attention_dropout"):
            setattr(module, "attention_dropout", 0.0)  # noqa: B010 - a plain number to torch
    return model


def eos_ids(generation_config: Any, tokenizer: Any) -> tuple[int, ...]:
    """Every id that ends a response: all of generation_config's, and the tokenizer's own."""
    listed = generation_config.eos_token_id
    ids = listed if isinstance(listed, list) else [listed]
    return tuple(sorted({i for i in [*ids, tokenizer.eos_token_id] if i is not None}))


def score(
    model: Any,
    ids_RT: Tensor,
    positions_RT: Tensor,
    targets_RT: Tensor,
    mask_RT: Tensor,
    *,
    temperature: float,
    chunk: int,
) -> tuple[Tensor, Tensor]:
    """Log-prob of the masked-in targets and entropy there, float32 nats, each [M].

    Positions that start again at 0 begin a new sequence: attention does not cross.
    """
    hidden_RTD = hidden_states(model.base_model, ids_RT, positions_RT)
    return logp_and_entropy_from_hidden(
        hidden_RTD[mask_RT],
        *output_head(model),
        targets_RT[mask_RT],
        temperature=temperature,
        chunk=chunk,
    )


def hidden_states(trunk: Any, ids_RT: Tensor, positions_RT: Tensor) -> Tensor:
    """What a transformer makes of packed rows, [R, T, D]."""
    found: dict[str, Any] = {}
    if trunk.config._attn_implementation == packed_attention.NAME:  # once, not in every layer
        found["segments_of_rows"] = packed_attention.segments(positions_RT)
    return trunk(
        input_ids=ids_RT, position_ids=positions_RT, use_cache=False, **found
    ).last_hidden_state


def output_head(model: Any) -> tuple[Tensor, Tensor | None]:
    """Weight [V, D] of a model's last layer, and its bias [V] where it has one."""
    head = model.get_output_embeddings()
    return head.weight, getattr(head, "bias", None)


def logp_entropy(model: Any, batch: Batch, chunk: int) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies in nats of a batch's masked-in tokens, each [M]."""
    return score(
        model,
        batch.ids_RT,
        batch.positions_RT,
        batch.targets_RT,
        batch.mask_RT,
        temperature=batch.temperature,
        chunk=chunk,
    )
