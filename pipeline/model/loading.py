"""Loads checkpoints that are whole. Of an incomplete one transformers fills the gaps with random
weights and logs a warning; here it is refused."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from veriloop.pipeline.errors import RecipeError, some_of

CONFIG, INDEX = "config.json", "model.safetensors.index.json"
SINGLE = "model.safetensors"
ADAPTER = "adapter_config.json"
FLOATS = ("F64", "F32", "F16", "BF16")  # dtypes of safetensors that hold weights as they are
GENERATION = "generation_config.json"
OBJECTS = (CONFIG, GENERATION, "tokenizer_config.json", INDEX)
SHOWN = 3  # tensor names in a message
ONE_SAVE = f"{SINGLE} or {INDEX} is left over from another save: remove the wrong one"
SAVE_AGAIN = "Copy the folder again from its source, or save the whole model with save_pretrained"
ANOTHER = "Name a folder written by save_pretrained or a checkpoint of an earlier stage"


class BadCheckpointError(RecipeError):
    """A model folder that cannot be loaded as it was saved. Names the folder and the next step."""

    def __init__(self, folder: str | Path, problem: str, next_step: str = SAVE_AGAIN) -> None:
        super().__init__(folder, problem, next_step)  # these arguments make it picklable
        self.folder, self.problem, self.next_step = folder, problem, next_step

    def __str__(self) -> str:
        return f"checkpoint {self.folder}: {self.problem}. {self.next_step}"


def stored_generation_config(path: str | Path) -> Any:
    """The generation config of a model folder; without a file of its own what config.json says, as
    `from_pretrained` of a model reads it. It can be saved again whatever it holds."""
    own = (Path(path) / GENERATION).is_file()
    source = {} if own else {"config_file_name": CONFIG, "_from_model_config": True}
    return _generation_config().from_pretrained(str(path), **source)


@cache
def _generation_config() -> Any:
    """The class of generation configs that are saved as they were read.

    transformers reads one with a temperature and without do_sample, which published models have,
    and refuses to save it.
    """
    from transformers import GenerationConfig

    class StoredGenerationConfig(GenerationConfig):
        def validate(self, strict: bool = False, *more: Any, **options: Any) -> None:
            if not strict:  # to save it
                super().validate(strict, *more, **options)

    return StoredGenerationConfig


def load_whole(
    kind: Any,
    path: str | Path,
    *,
    new: tuple[str, ...] = (),
    unused: tuple[str, ...] = (),
    **options: Any,
) -> Any:
    """The model in `path` by an Auto class of transformers, with every weight from its files.

    Names that begin with one of `new` may be missing; those that begin with one of `unused` may be
    left over. `options` go to `from_pretrained`. Raises BadCheckpointError naming the file or the
    tensors.
    """
    require_files(path)
    with refused(path):
        model, loading = kind.from_pretrained(
            str(path), output_loading_info=True, ignore_mismatched_sizes=True, **options
        )
        if model.can_generate():
            model.generation_config = stored_generation_config(path)
    if problem := _difference(loading, new, unused) or _integer_weights(Path(path), model):
        raise BadCheckpointError(path, problem)
    if broken := _not_finite(model):
        raise BadCheckpointError(path, *not_finite(broken))
    return model


def not_finite(names: list[str]) -> tuple[str, str]:
    """Problem and next step of weights that are NaN or infinite."""
    return (
        f"{_listed(names)} hold NaN or infinite weights; expected finite numbers",
        "Training diverged before it was saved: take an earlier checkpoint",
    )


def require_fitting(
    path: str | Path, model: Any, differing: Mapping[str, tuple[list[int], list[int]]]
) -> None:
    """Raise BadCheckpointError for stored shapes that differ from the model's, given as {name:
    (stored, the model's)}, and for weights stored as integers."""
    mismatched = [(name, *shapes) for name, shapes in differing.items()]
    loading = {"missing_keys": [], "unexpected_keys": [], "mismatched_keys": mismatched}
    if problem := _difference(loading, (), ()) or _integer_weights(Path(path), model):
        raise BadCheckpointError(path, problem)


def stored_files(path: str | Path) -> dict[str, Path]:
    """The safetensors file of each tensor of a checkpoint, as transformers chooses them; {} where
    its weights have another format."""
    folder = Path(path)
    if (folder / SINGLE).is_file():
        return dict.fromkeys(_require_safetensors(folder, folder / SINGLE), folder / SINGLE)
    if not (folder / INDEX).is_file():
        return {}
    shards = _shards_of(folder, _object(folder, INDEX))
    return {name: folder / shard for name, shard in shards.items()}


def require_files(path: str | Path) -> None:
    """Raise BadCheckpointError unless `path` holds a config and complete files of weights."""
    folder = Path(path)
    if not (folder / CONFIG).is_file():
        problem = f"{path} holds no Hugging Face checkpoint: {CONFIG} is missing"
        raise RecipeError(f"{problem}. {ANOTHER}")
    if (folder / ADAPTER).is_file():
        problem = f"{ADAPTER}: adapters that belong to another checkpoint"
        raise BadCheckpointError(folder, problem, "Merge them into it and save the whole model")
    objects = {name: _object(folder, name) for name in OBJECTS if (folder / name).is_file()}
    if (folder / SINGLE).is_file():
        held = _require_safetensors(folder, folder / SINGLE)
        if INDEX in objects:
            _require_equal_shards(folder, objects[INDEX], held)
    elif INDEX in objects:
        _require_shards(folder, objects[INDEX])
    elif not any(folder.glob("pytorch_model*.bin")):
        raise BadCheckpointError(
            folder, f"no weights in it; expected {SINGLE}, or {INDEX} and its shards"
        )


def require_known_config(path: str | Path) -> None:
    """Raise BadCheckpointError unless config.json, if there is one, is that of a known model."""
    from transformers import AutoConfig

    if not (Path(path) / CONFIG).is_file():
        return
    try:
        AutoConfig.from_pretrained(str(path))
    except Exception as failure:
        problem = f"{CONFIG} does not load ({type(failure).__name__}: {first_line(failure)})"
        raise BadCheckpointError(path, problem, ANOTHER) from failure


def _require_equal_shards(folder: Path, index: dict[str, Any], held: set[str]) -> None:
    """Raise BadCheckpointError unless the shards of the index are the weights of SINGLE.

    transformers reads the single file and vLLM the shards.
    """
    shards = _shards_of(folder, index)
    if set(shards.values()) <= {SINGLE}:
        return
    _require_shards(folder, index, ONE_SAVE)
    apart = held ^ shards.keys()
    for shard in sorted(set(shards.values())):
        names = [name for name in shards if shards[name] == shard and name in held]
        with (
            safe_open(folder / shard, framework="pt") as part,
            safe_open(folder / SINGLE, framework="pt") as whole,
        ):
            apart |= {n for n in names if not _equal(part.get_tensor(n), whole.get_tensor(n))}
    if apart:
        problem = f"{SINGLE} and the shards of {INDEX} differ in {_listed(list(apart))}"
        raise BadCheckpointError(folder, problem, ONE_SAVE)


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(one, other)


def _shards_of(folder: Path, index: dict[str, Any]) -> dict[str, str]:
    """The file of each tensor. Raises BadCheckpointError if the index does not tell."""
    shards = index.get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(name, str) for name in shards.values()):
        raise BadCheckpointError(folder, f"{INDEX} has no `weight_map` from tensors to shards")
    return shards


def _require_shards(folder: Path, index: dict[str, Any], next_step: str = SAVE_AGAIN) -> None:
    """Raise BadCheckpointError unless every shard of the index holds the tensors it lists."""
    shards = _shards_of(folder, index)
    missing = sorted({shard for shard in shards.values() if not (folder / shard).is_file()})
    if missing:
        tensors = [tensor for tensor, shard in shards.items() if shard in missing]
        raise BadCheckpointError(
            folder,
            f"{INDEX} lists {_listed(missing)}, which are missing, with {len(tensors)} tensors "
            f"such as {tensors[0]}",
            next_step,
        )
    for shard in sorted(set(shards.values())):
        held = _require_safetensors(folder, folder / shard)
        absent = [t for t, name in shards.items() if name == shard and t not in held]
        if absent:
            raise BadCheckpointError(
                folder, f"{shard} lacks {_listed(absent)}, expected by {INDEX}"
            )


def _require_safetensors(folder: Path, path: Path) -> set[str]:
    """The tensor names of a complete file. Raises BadCheckpointError for a damaged one."""
    try:
        with safe_open(path, framework="pt") as file:
            return set(file.keys())
    except (SafetensorError, OSError) as failure:
        size = path.stat().st_size
        problem = f"{path.name} ({size:,} bytes) is no complete safetensors file ({failure})"
        hint = "it is cut short or a Git LFS pointer"
        raise BadCheckpointError(folder, f"{problem}; {hint}") from failure


def _object(folder: Path, name: str) -> dict[str, Any]:
    """The JSON object in a file. Raises BadCheckpointError for anything else."""
    try:
        value = json.loads((folder / name).read_bytes())
    except (ValueError, OSError) as failure:
        raise BadCheckpointError(folder, f"{name} is not JSON ({failure})") from failure
    if not isinstance(value, dict):
        raise BadCheckpointError(folder, f"{name} holds {value!r:.40}; expected a JSON object")
    return value


def _difference(loading: Any, new: tuple[str, ...], unused: tuple[str, ...]) -> str:
    """How the tensors of the files differ from those of the model; "" if they agree."""
    missing = [name for name in loading["missing_keys"] if not name.startswith(new)]
    left_over = [name for name in loading["unexpected_keys"] if not name.startswith(unused)]
    if missing:
        return f"lacks {_listed(missing)}, which {CONFIG} expects; they would be random"
    if loading["mismatched_keys"]:
        name, shape, expected = min(loading["mismatched_keys"])
        others = len(loading["mismatched_keys"]) - 1
        more = f" ({others} more differ)" if others else ""
        return f"{name} has shape {list(shape)}; {CONFIG} expects {list(expected)}{more}"
    if left_over:
        return f"holds {_listed(left_over)}, which the model of {CONFIG} has no place for"
    return ""


def _integer_weights(folder: Path, model: Any) -> str:
    """Which weights are stored as integers or in 8 bits, whose scales are lost; "" if none is.

    transformers would convert them and ignore the scales.
    """
    if getattr(model.config, "quantization_config", None) is not None:
        return ""
    weights, stored = {name for name, _ in model.named_parameters()}, dict[str, str]()
    for path in folder.glob("model*.safetensors"):
        with safe_open(path, framework="pt") as file:
            stored |= {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
    wrong = [name for name in weights & stored.keys() if stored[name] not in FLOATS]
    if not wrong:
        return ""
    kinds = ", ".join(sorted({stored[name] for name in wrong}))
    return (
        f"{_listed(wrong)} hold {kinds} and {CONFIG} has no quantization_config; expected float64, "
        "float32, float16 or bfloat16"
    )


def _not_finite(model: Any) -> list[str]:
    """Names of the parameters with NaN or infinity."""
    return [
        name
        for name, weight in model.named_parameters()
        if weight.is_floating_point() and not torch.isfinite(weight).all()
    ]


@contextmanager
def refused(path: str | Path) -> Iterator[None]:
    """A block in which transformers loads quietly; its exceptions become a BadCheckpointError."""
    with _quiet():
        try:
            yield
        except (ModuleNotFoundError, MemoryError):
            raise
        except Exception as failure:
            problem = f"does not load ({type(failure).__name__}: {first_line(failure)})"
            raise BadCheckpointError(path, problem, ANOTHER) from failure


@contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' progress bars and its report of missing weights."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


def _listed(names: list[str]) -> str:
    return some_of(sorted(names), SHOWN)


def first_line(failure: Exception) -> str:
    return str(failure).strip().partition("\n")[0]
