"""The policy model: load, save, and score tokens.

Axes: R packed rows, T positions, M positions picked by a mask, D width, V vocabulary.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from veriloop.data.chat import chat_text
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model import lora
from veriloop.pipeline.model.device import brought, device_of
from veriloop.pipeline.model.loading import (
    CONFIG,
    GENERATION,
    BadCheckpointError,
    first_line,
    load_whole,
    require_known_config,
    stored_generation_config,
)
from veriloop.pipeline.model.logprob import logp_and_entropy_from_hidden
from veriloop.pipeline.model.packed_attention import segments
from veriloop.pipeline.model.probe import attention_kwargs, output_head, supports_packing
from veriloop.pipeline.model.shard_loading import load_empty, stored_shards
from veriloop.pipeline.model.sharded import is_sharded, whole_parameters, whole_state
from veriloop.pipeline.types import Batch

Result = TypeVar("Result")

MASTERS = "masters"  # in a checkpoint of a narrower dtype: the float32 weights
ANSWER = "an answer of nobody"  # marks the end of a turn in a rendered template
DROPOUTS = ("dropout", "attention_dropout", "activation_dropout", "hidden_dropout", "layerdrop")
NOISES = (
    "jitter_noise",
    "router_jitter_noise",
    "input_jitter_noise",
)  # of MoE routers


def load_tokenizer(path: str | Path) -> Any:
    """The tokenizer of a model folder. Raises BadCheckpointError if it is absent or damaged."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(str(path))
    except (ModuleNotFoundError, MemoryError):
        raise
    except Exception as failure:
        require_known_config(path)
        raise BadCheckpointError(
            path,
            f"its tokenizer does not load ({first_line(failure)}); expected tokenizer.json and "
            "tokenizer_config.json",
            "Copy the tokenizer's files from the model's source, or save it with save_pretrained",
        ) from failure


def load_generation_config(path: str | Path) -> Any:
    """The checkpoint's generation config: ids that end and pad a response. A folder without
    generation_config.json has them in config.json.

    Raises BadCheckpointError if it does not load, or its ids are no numbers.
    """
    name = GENERATION if (Path(path) / GENERATION).exists() else CONFIG
    try:
        config = stored_generation_config(path)
    except Exception as failure:
        problem = f"its {name} does not load ({first_line(failure)})"
        raise BadCheckpointError(path, problem) from failure
    ends = config.eos_token_id
    if not all(type(i) is int for i in (ends if isinstance(ends, list) else [ends or 0])):
        problem = f"{name} has eos_token_id {ends!r}; expected ids of tokens"
        raise BadCheckpointError(path, problem)
    return config


def load_policy(
    path: str | Path, dtype: torch.dtype = torch.float32, *, empty: bool = False
) -> Any:
    """Load a causal LM in training mode, with dropout 0 so that scores are reproducible.

    With `empty` its weights are not read before ranks have divided it; see `load_empty`. Raises
    BadCheckpointError for a checkpoint that is not whole; see `load_whole`.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    model = (load_empty if empty else load_whole)(AutoModelForCausalLM, path, dtype=dtype)
    if getattr(model.config.get_text_config(), "attn_logit_softcapping", None):
        model.set_attn_implementation("eager")  # SDPA ignores the soft cap
    vars(model)["_stored_as"] = AutoConfig.from_pretrained(str(path)).dtype or torch.float32
    return without_dropout(model).train()


def plain_weights(model: Any) -> Iterator[tuple[str, Tensor]]:
    """(name, weight) of every parameter of the equivalent plain model: whole, adapters merged.

    Collective: all ranks iterate. One weight exists at a time.
    """
    adapted = any(isinstance(module, lora.LoraLinear) for module in model.modules())
    return lora.merged(model) if adapted else whole_parameters(model)


def save_policy(model: Any, tokenizer: Any, directory: Path) -> None:
    """`write_policy` with the model's current weights."""
    write_policy(model, tokenizer, directory, weights=policy_weights(model))


def policy_weights(model: Any) -> dict[str, Tensor]:
    """The weights that `write_policy` writes: the model's own, or merged copies and adapters.

    The copies are made one at a time, in the dtype and on the CPU where they will be written. Those
    of a sharded model are gathered: all ranks take part.
    """
    state = whole_state(model)
    if lora.adapted(model) is None:
        return state
    stored_as = _stored_as(model)
    merged = lora.merged_state(model, lambda weight: _rounded(weight, stored_as).cpu(), state)
    return merged | lora.adapters(state)


def write_policy(
    model: Any, tokenizer: Any, folder: Path, *, weights: Mapping[str, Tensor]
) -> None:
    """Save weights, configs, tokenizer and chat template in transformers' format, with adapters
    merged and in the dtype of the checkpoint that the model was loaded from.

    The folders `adapter` and `masters` keep what merging and rounding lose. `weights` are those of
    `policy_weights`, or copies of them.
    """
    stored_as, config = _stored_as(model), lora.adapted(model)
    rounds, adapters = stored_as != torch.float32, lora.adapters(weights)
    left_out = {*adapters, *_second_names(model)}
    whole = {name: weight for name, weight in weights.items() if name not in left_out}
    if rounds or config is not None:
        model.save_pretrained(
            folder, state_dict={name: _rounded(w, stored_as) for name, w in whole.items()}
        )
        _set_dtype(folder / "config.json", stored_as)
    else:
        model.save_pretrained(folder, state_dict=whole)
    if config is not None:
        lora.write(config, adapters, folder / lora.FOLDER)
    elif rounds:
        (folder / MASTERS).mkdir()
        trained = {name: whole[name].detach().contiguous() for name, _ in model.named_parameters()}
        save_file(trained, folder / MASTERS / "model.safetensors")
    save_tokenizer(tokenizer, folder)


def _second_names(model: Any) -> set[str]:
    """All but the first name of each parameter with several, such as the head of a tied embedding:
    a file holds it once, however often it was copied on its way."""
    seen, more = set[int](), set[str]()
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if id(parameter) in seen:
            more.add(name)
        seen.add(id(parameter))
    return more


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Save tokenizer and chat template without how they were found, which transformers would add:
    equal checkpoints have equal bytes."""
    for fact in ("is_local", "local_files_only"):
        tokenizer.init_kwargs.pop(fact, None)
    tokenizer.save_pretrained(folder)


def saved_weights(model: Any, directory: Path) -> Mapping[str, Tensor]:
    """The exact training weights of a model saved in `directory`, as a state of `model`.

    Of a sharded model each rank reads its rows.
    """
    if lora.adapted(model) is not None:
        return model.state_dict() | lora.read(directory / lora.FOLDER)
    masters = directory / MASTERS / "model.safetensors"
    if any(map(is_sharded, model.parameters())):
        shards = stored_shards(model, masters.parent if masters.is_file() else directory)
        if shards is not None:
            return shards
    if masters.is_file():
        return model.state_dict() | _masters(model, masters)
    return load_policy(directory).state_dict()


def _masters(model: Any, path: Path) -> dict[str, Tensor]:
    weights, names = load_file(path), {name for name, _ in model.named_parameters()}
    if differing := sorted(weights.keys() ^ names):
        problem = f"{path.name} and the model differ in {', '.join(differing[:3])}"
        raise BadCheckpointError(path.parent, problem)
    return weights


def sampled_as_saved(model: Any, dtype: torch.dtype) -> bool:
    """Whether a sampler in `dtype` has the same weights from this model as from its checkpoint.

    Not if the checkpoint's type is another and narrower than float32, nor with adapters, beside
    which the frozen weights may be rounded in memory alone.
    """
    return _stored_as(model) in (torch.float32, dtype) and lora.adapted(model) is None


def _stored_as(model: Any) -> torch.dtype:
    return getattr(model, "_stored_as", torch.float32)


def _rounded(weight: Tensor, dtype: torch.dtype) -> Tensor:
    return weight.to(dtype) if weight.is_floating_point() else weight


def _set_dtype(path: Path, dtype: torch.dtype) -> None:
    """Write the weights' dtype to a config; transformers writes the compute dtype."""
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"dtype": str(dtype).removeprefix("torch.")}, indent=2))


def without_dropout(model: Any) -> Any:
    """Set dropout and router noise to 0: old and new log-probs must not differ by chance."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name in (*DROPOUTS, *NOISES):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    return model


def eos_ids(generation_config: Any, tokenizer: Any) -> tuple[int, ...]:
    """Every id that ends a response: those of the generation config, the tokenizer's EOS, and the
    one that ends a turn in its chat template. Raises RecipeError for ids that are no integers."""
    listed = generation_config.eos_token_id
    ids = listed if isinstance(listed, list) else [listed]
    if wrong := [i for i in ids if i is not None and type(i) is not int]:
        raise RecipeError(
            f"generation_config.json: eos_token_id holds {wrong[0]!r:.40}; expected ids of tokens, "
            "which are integers"
        )
    ends = {*ids, tokenizer.eos_token_id, _turn_end(tokenizer)}
    return tuple(sorted(i for i in ends if i is not None))


def _turn_end(tokenizer: Any) -> int | None:
    """The special token that the chat template puts after an answer; None without one."""
    if not getattr(tokenizer, "chat_template", None):
        return None
    turns = [{"role": "user", "content": "asked"}, {"role": "assistant", "content": ANSWER}]
    try:
        text = chat_text(turns, tokenizer)
    except Exception:  # noqa: BLE001  templates are code; a stage that uses it is refused
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
    """Log-probs of the masked-in targets and entropies, float32 nats, each [M], on the model's
    device.

    A position 0 begins a new sequence; attention does not cross.
    """
    batch = ids_RT, positions_RT, targets_RT, mask_RT
    return forward(model, _score, *batch, temperature=temperature, chunk=chunk)


def _score(
    model: Any,
    ids_RT: Tensor,
    positions_RT: Tensor,
    targets_RT: Tensor,
    mask_RT: Tensor,
    *,
    temperature: float,
    chunk: int,
) -> tuple[Tensor, Tensor]:
    hidden_RTD = hidden_states(model.base_model, ids_RT, positions_RT)
    mask_RT = brought(mask_RT, hidden_RTD.device)
    targets_M = brought(targets_RT, hidden_RTD.device)[mask_RT]
    return score_hidden(model, hidden_RTD[mask_RT], targets_M, temperature=temperature, chunk=chunk)


def score_hidden(
    model: Any, hidden_MD: Tensor, targets_M: Tensor, *, temperature: float, chunk: int
) -> tuple[Tensor, Tensor]:
    """`score` from the trunk's hidden states."""
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
        compiled=head.compiled,
    )


def trunk_states(model: Any, ids_RT: Tensor, positions_RT: Tensor) -> Tensor:
    """`hidden_states` of a model's trunk, [R, T, D]."""
    return forward(model, _trunk_states, ids_RT, positions_RT)


def _trunk_states(model: Any, ids_RT: Tensor, positions_RT: Tensor) -> Tensor:
    return hidden_states(model.base_model, ids_RT, positions_RT)


FORWARD = "sharded_forward"  # the method with which a sharded model gathers its weights


def forward(model: Any, function: Callable[..., Result], *values: Any, **settings: Any) -> Result:
    """`function(model, ...)`, a forward pass that uses more of the model than its trunk."""
    gathering = vars(model).get(FORWARD)
    if gathering is None:
        return function(model, *values, **settings)
    return gathering(function, *values, **settings)


def hidden_states(trunk: Any, ids_RT: Tensor, positions_RT: Tensor) -> Tensor:
    """Hidden states of packed rows, [R, T, D]. A model that would mix the sequences of a row gets
    each in its own row."""
    device = device_of(trunk)
    ids_RT, positions_RT = brought(ids_RT, device), brought(positions_RT, device)
    if not supports_packing(trunk):
        return _one_sequence_per_row(trunk, ids_RT, positions_RT)
    kwargs = attention_kwargs(trunk, positions_RT, ids_RT)
    outputs = trunk(input_ids=ids_RT, position_ids=positions_RT, use_cache=False, **kwargs)
    return outputs.last_hidden_state


def _one_sequence_per_row(trunk: Any, ids_RT: Tensor, positions_RT: Tensor) -> Tensor:
    """Run buckets of similar length, padded on the right, which causal attention never reads."""
    where = segments(positions_RT)
    ids_P = ids_RT.flatten()[where.position_P]
    outputs, start = list[Tensor](), 0
    for count, length in where.buckets:
        ids_BL = ids_P[start : (start := start + count * length)].view(count, length)
        outputs.append(trunk(input_ids=ids_BL, use_cache=False).last_hidden_state.flatten(0, 1))
    return torch.cat(outputs)[where.slot_N].view(*ids_RT.shape, -1)


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
