"""Keep a sampling engine open between stages: starting vLLM takes longer than a small stage.

Inside `with warm_samplers():` a sampler that is closed is parked, and given out again for a
checkpoint that fits it, with that checkpoint's weights, proved as after every sync, and version 0.
One engine is parked at most, and no new one is started beside it.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from torch import Tensor

from pipeline.config import SamplerConfig
from pipeline.lineage import CONTENT, file_hash
from pipeline.policy import load_policy, load_tokenizer
from pipeline.sampling.sampler import Completion, Sampler, Sampling, Told
from pipeline.sampling.sync import WeightSync

WEIGHTS = (".safetensors", ".bin", ".index.json")
CONFIGS = ("config.json", "generation_config.json", "tokenizer_config.json")
VOLATILE = {  # keys of configs that an engine does not feel
    "transformers_version", "_name_or_path", "name_or_path", "is_local", "local_files_only",
    "chat_template",
}  # fmt: skip
PROBES = ("1+2=", "9", "What is 3+4-5?", "<think>")  # texts after which a sampler is proved


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What a parked engine and a checkpoint must have in common."""

    engine: str
    settings: SamplerConfig  # but how far it may differ
    cores: tuple[int, ...]
    model: str  # hash of configs and tokenizer

    @classmethod
    def of(
        cls, engine: str, config: SamplerConfig, checkpoint: str, cores: Collection[int]
    ) -> "Fit":
        return cls(
            engine=engine,
            settings=config.model_copy(update={"engine": engine, "tolerance": 1.0}),
            cores=tuple(sorted(cores)),
            model=_shape(Path(checkpoint)),
        )


def _shape(checkpoint: Path) -> str:
    """Hash of everything in a model folder but its weights."""
    told: list[str] = []
    for path in sorted(checkpoint.iterdir()):
        if path.name.endswith(WEIGHTS) or path.suffix not in CONTENT:
            continue
        if path.name in CONFIGS:
            values = json.loads(path.read_text(encoding="utf-8"))
            kept = {key: value for key, value in values.items() if key not in VOLATILE}
            told.append(f"{path.name}\0{json.dumps(kept, sort_keys=True)}")
        elif path.name.startswith(("tokenizer", "special_tokens", "vocab", "merges", "added")):
            told.append(f"{path.name}\0{file_hash(path)}")
    return sha256("\n".join(told).encode()).hexdigest()


class _Park:
    """The engine that waits, if one does."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.waiting: _Kept | None = None

    def take(self, fit: Fit, max_length: int) -> "_Kept | None":
        """The parked engine where it fits; one that does not is closed for good."""
        kept, self.waiting = self.waiting, None
        if kept is not None and (kept.fit != fit or kept.max_length < max_length):
            kept.engine.close()
            return None
        return kept

    def leave(self, kept: "_Kept") -> None:
        """Park an engine. Where one waits already both go: closing one of two ends vLLM's both."""
        if self.waiting is not None:
            self.waiting.engine.close()
            self.waiting = None
            kept.engine.close()
        else:
            self.waiting = kept


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Kept:
    engine: Sampler
    fit: Fit
    max_length: int


class WarmSampler:
    """A sampler whose `close` parks the engine. What was closed cannot be used again."""

    def __init__(self, kept: _Kept, park: _Park) -> None:
        self._kept: _Kept | None = kept
        self._park = park
        self.name, self.pid = kept.engine.name, kept.engine.pid

    @property
    def _engine(self) -> Sampler:
        if self._kept is None:
            raise RuntimeError(f"this {self.name} sampler is closed; its engine is another's now")
        return self._kept.engine

    @property
    def version(self) -> int:
        return self._engine.version

    def load_weights(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        self._engine.load_weights(weights, version)

    def sample(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, told: Told | None = None
    ) -> list[list[Completion]]:
        return self._engine.sample(prompts, sampling, told)

    def sleep(self) -> None:
        self._engine.sleep()

    def close(self) -> None:
        if self._kept is not None:
            self._park.leave(self._kept)
            self._kept = None


_park: ContextVar[_Park | None] = ContextVar("park", default=None)


@contextmanager
def warm_samplers(room: int = 0) -> Iterator[None]:
    """Park engines inside; close them at the end. Engines are opened for `room` tokens at least,
    so that one serves every stage."""
    park = _Park(room)
    token = _park.set(park)
    try:
        yield
    finally:
        _park.reset(token)
        if park.waiting is not None:
            park.waiting.engine.close()


def kept_warm(
    start: Callable[[int], Sampler],
    engine: str,
    config: SamplerConfig,
    checkpoint: str,
    max_length: int,
    cores: Collection[int] = (),
) -> Sampler:
    """What `start(max_length)` opens, or inside `warm_samplers` a parked engine that fits.

    Raises SyncError when the parked engine, given the checkpoint's weights, does not compute its
    probabilities.
    """
    park = _park.get()
    if park is None:
        return start(max_length)
    fit = Fit.of(engine, config, checkpoint, cores)
    kept = park.take(fit, max_length)
    if kept is None:
        length = max(max_length, park.room)
        return WarmSampler(_Kept(engine=start(length), fit=fit, max_length=length), park)
    try:
        _load(kept.engine, config, checkpoint)
    except BaseException:
        kept.engine.close()
        raise
    return WarmSampler(kept, park)


def _load(sampler: Sampler, config: SamplerConfig, checkpoint: str) -> None:
    """Give the checkpoint's weights to the sampler as version 0, and prove that it has them."""
    spelling = load_tokenizer(checkpoint)
    probes = [tuple(spelling(text).input_ids) for text in PROBES]
    sync = WeightSync(load_policy(checkpoint), sampler, temperature=1.0, tolerance=config.tolerance)
    sync(0, probes)
