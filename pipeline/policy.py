"""The trained model: load it, save it, and score tokens with it.

Axes: R packed rows, T positions, M positions picked by a mask, D width, V vocabulary.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from jinja2 import TemplateError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from pipeline import lora
from pipeline.device import brought, device_of
from pipeline.losses.logprob import logp_and_entropy_from_hidden
from pipeline.records import Batch
from pipeline.segments import segments
from pipeline.ways import extras, output_head, packs

MASTERS = "masters"  # of a checkpoint in a narrower type: the weights as they are trained
ANSWER = "an answer of nobody"
NOISES = ("jitter_noise", "router_jitter_noise", "input_jitter_noise")  # of mixtures of experts


def load_tokenizer(path: str | Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(path))


def load_generation_config(path: str | Path) -> Any:
    """What the checkpoint says about ending and padding a response."""
    from transformers import GenerationConfig

    return GenerationConfig.from_pretrained(str(path))


def load_policy(path: str | Path, dtype: torch.dtype = torch.float32) -> Any:
    """A causal LM of transformers, ready to train; dropout off so that scores are reproducible."""
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    if not (Path(path) / "config.json").is_file():
        raise FileNotFoundError(f"{path} holds no Hugging Face checkpoint: no config.json in it")
    model = AutoModelForCausalLM.from_pretrained(str(path), dtype=dtype)
    if getattr(model.config.get_text_config(), "attn_logit_softcapping", None):
        model.set_attn_implementation("eager")  # torch's own attention would leave the cap out
    vars(model)["_stored_as"] = AutoConfig.from_pretrained(str(path)).dtype or torch.float32
    return without_dropout(model).train()


def save_policy(model: Any, tokenizer: Any, directory: Path) -> None:
    """Weights, configs, tokenizer and chat template, as transformers writes them: adapters merged,
    and in the type that the checkpoint had from which the model was loaded.

    Beside them, in folders of their own, what that loses: `adapter` and `masters`.
    """
    stored_as = getattr(model, "_stored_as", torch.float32)
    rounds, adapters = stored_as != torch.float32, lora.adapted(model) is not None
    if rounds or adapters:
        held = {k: _rounded(v, stored_as) for k, v in lora.merged_state(model).items()}
        model.save_pretrained(directory, state_dict=held)
        _set_dtype(directory / "config.json", stored_as)
    else:
        model.save_pretrained(directory)
    if adapters:
        lora.write(model, directory / lora.FOLDER)
    elif rounds:
        (directory / MASTERS).mkdir()
        trained = {name: p.detach().contiguous() for name, p in model.named_parameters()}
        save_file(trained, directory / MASTERS / "model.safetensors")
    tokenizer.save_pretrained(directory)


def saved_weights(model: Any, directory: Path) -> Mapping[str, Tensor]:
    """The state of `model`, trained on the same start, when it was saved there; to the last bit."""
    if lora.adapted(model) is not None:
        return model.state_dict() | lora.read(directory / lora.FOLDER)
    masters = directory / MASTERS / "model.safetensors"
    if masters.is_file():
        return model.state_dict() | load_file(masters)
    return load_policy(directory).state_dict()


def _rounded(weight: Tensor, dtype: torch.dtype) -> Tensor:
    return weight.to(dtype) if weight.is_floating_point() else weight


def _set_dtype(path: Path, dtype: torch.dtype) -> None:
    """Say in a config what the weights are; transformers writes what the model computes in."""
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"dtype": str(dtype).removeprefix("torch.")}, indent=2))


def without_dropout(model: Any) -> Any:
    """Every dropout, and the noise of routers, set to 0: old and new log-probs must not differ by
    chance."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if hasattr(module, "attention_dropout"):
            setattr(module, "attention_dropout", 0.0)  # noqa: B010 - a plain number to torch
        for noise in NOISES:
            if hasattr(module, noise):
                setattr(module, noise, 0.0)
    return model


def eos_ids(generation_config: Any, tokenizer: Any) -> tuple[int, ...]:
    """Every id that ends a response: all of generation_config's, the tokenizer's own, and the one
    that ends a turn in its chat template."""
    listed = generation_config.eos_token_id
    ids = listed if isinstance(listed, list) else [listed]
    found = {*ids, tokenizer.eos_token_id, _turn_end(tokenizer)}
    return tuple(sorted(i for i in found if i is not None))


def _turn_end(tokenizer: Any) -> int | None:
    """The special token that the chat template puts after an answer; None without one."""
    if not getattr(tokenizer, "chat_template", None):
        return None
    turns = [{"role": "user", "content": "asked"}, {"role": "assistant", "content": ANSWER}]
    try:
        text = tokenizer.apply_chat_template(turns, tokenize=False)
    except TemplateError:
        return None
    ids = tokenizer(text.rpartition(ANSWER)[2].lstrip(), add_special_tokens=False).input_ids
    token = tokenizer.added_tokens_decoder.get(ids[0]) if ids else None
    return ids[0] if token is not None and token.special else None


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
    """Log-prob of the masked-in targets and entropy there, float32 nats, each [M], where the
    model is.

    Positions that start again at 0 begin a new sequence: attention does not cross.
    """
    hidden_RTD = hidden_states(model.base_model, ids_RT, positions_RT)
    mask_RT = brought(mask_RT, hidden_RTD.device)
    targets_M = brought(targets_RT, hidden_RTD.device)[mask_RT]
    return score_hidden(model, hidden_RTD[mask_RT], targets_M, temperature=temperature, chunk=chunk)


def score_hidden(
    model: Any, hidden_MD: Tensor, targets_M: Tensor, *, temperature: float, chunk: int
) -> tuple[Tensor, Tensor]:
    """`score` of what the model's trunk has already made."""
    head = output_head(model)
    return logp_and_entropy_from_hidden(
        hidden_MD,
        head.weight_VD,
        head.bias_V,
        targets_M,
        temperature=temperature,
        chunk=chunk,
        scale=head.scale,
        cap=head.cap,
    )


def hidden_states(trunk: Any, ids_RT: Tensor, positions_RT: Tensor) -> Tensor:
    """What a transformer makes of packed rows, which are brought to it, [R, T, D]. One that would
    mix the sequences of a row gets each in a row of its own."""
    device = device_of(trunk)
    ids_RT, positions_RT = brought(ids_RT, device), brought(positions_RT, device)
    if not packs(trunk):
        return _one_a_row(trunk, ids_RT, positions_RT)
    found = extras(trunk, positions_RT)
    return trunk(
        input_ids=ids_RT, position_ids=positions_RT, use_cache=False, **found
    ).last_hidden_state


def _one_a_row(trunk: Any, ids_RT: Tensor, positions_RT: Tensor) -> Tensor:
    """Sequences of about one length together, each at the left of its row: what stands behind it
    is not seen by a causal model."""
    where = segments(positions_RT)
    ids_P = ids_RT.flatten()[where.position_P]
    found, start = list[Tensor](), 0
    for count, length in where.buckets:
        ids_BL = ids_P[start : (start := start + count * length)].view(count, length)
        found.append(trunk(input_ids=ids_BL, use_cache=False).last_hidden_state.flatten(0, 1))
    return torch.cat(found)[where.slot_N].view(*ids_RT.shape, -1)


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
