"""Keep a sampling engine open between stages: starting vLLM takes longer than a small stage.

Inside `with warm_samplers():` a closed sampler is parked and reused for a checkpoint of the same
shape, with that checkpoint's weights, verified as after every sync, and version 0. At most one
engine of this process is parked and one in a process of its own: stages that sample ahead and
stages that do not take turns. No second one of a kind is started while one waits. On a machine
with a GPU an engine that can sleep is parked asleep and any other is closed: the next stage needs
the memory.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import torch
from torch import Tensor

from veriloop.pipeline.config.checkpoints import VOLATILE
from veriloop.pipeline.config.sections import SamplerConfig
from veriloop.pipeline.model.policy import (
    eos_ids,
    load_generation_config,
    load_policy,
    load_tokenizer,
)
from veriloop.pipeline.runs.lineage import CONTENT, file_hash
from veriloop.pipeline.sampling.process_engine import ApartSampler
from veriloop.pipeline.sampling.sampler import (
    Completion,
    Digest,
    OnComplete,
    OnContinued,
    Sampler,
    Sampling,
    Unfinished,
)
from veriloop.pipeline.sampling.sync import WeightSync

WEIGHTS = (".safetensors", ".bin", ".index.json")
CONFIGS = ("config.json", "generation_config.json", "tokenizer_config.json")
PROBES = ("1+2=", "9", "What is 3+4-5?", "<think>")  # prompts of the weight check


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What a parked engine and a checkpoint must have in common."""

    engine: str
    settings: SamplerConfig  # except for the tolerance
    cores: tuple[int, ...]
    model: str  # hash of configs and tokenizer
    ends: tuple[int, ...]  # tokens that end a response: of the chat template too

    @classmethod
    def of(
        cls, engine: str, config: SamplerConfig, checkpoint: str, cores: Collection[int]
    ) -> "Fit":
        return cls(
            engine=engine,
            settings=config.model_copy(update={"engine": engine, "tolerance": 1.0}),
            cores=tuple(sorted(cores)),
            model=_shape(Path(checkpoint)),
            ends=eos_ids(load_generation_config(checkpoint), load_tokenizer(checkpoint)),
        )

    @property
    def apart(self) -> bool:
        """Whether the recipe asks for an engine in a process of its own."""
        return self.settings.apart or bool(self.cores)


def _shape(checkpoint: Path) -> str:
    """Hash of everything in a model folder except its weights."""
    lines: list[str] = []
    for path in sorted(checkpoint.iterdir()):
        if path.name.endswith(WEIGHTS) or path.suffix not in CONTENT:
            continue
        if path.name in CONFIGS:
            values = json.loads(path.read_text(encoding="utf-8"))
            kept = {key: value for key, value in values.items() if key not in VOLATILE}
            lines.append(f"{path.name}\0{json.dumps(kept, sort_keys=True)}")
        elif path.name.startswith(("tokenizer", "special_tokens", "vocab", "merges", "added")):
            lines.append(f"{path.name}\0{file_hash(path)}")
    return sha256("\n".join(lines).encode()).hexdigest()


class _Park:
    """Holds at most one engine of this process and one apart."""

    def __init__(self, room: int) -> None:
        self.room = room
        self._waiting: dict[bool, _Kept] = {}  # by whether it is apart

    def take(self, fit: Fit, max_length: int) -> "_Kept | None":
        """The parked engine of this kind if it fits; otherwise it is closed."""
        kept = self._waiting.pop(fit.apart, None)
        if kept is not None and (kept.fit != fit or kept.max_length < max_length):
            kept.engine.close()
            return None
        return kept

    def leave(self, kept: "_Kept", *, asleep: bool) -> None:
        """Park an engine; if one of its kind is parked already, close both. Closing one of two vLLM
        engines of a process would end both anyway."""
        other = self._waiting.pop(kept.fit.apart, None)
        if other is not None:
            other.engine.close()
            kept.engine.close()
        elif (isinstance(kept.engine, ApartSampler) and kept.engine.given_up) or (
            torch.cuda.is_available() and not kept.fit.settings.sleep
        ):
            kept.engine.close()
        else:
            if kept.fit.settings.sleep and not asleep:
                kept.engine.sleep()
            self._waiting[kept.fit.apart] = kept

    def close(self) -> None:
        with ExitStack() as stack:
            for kept in self._waiting.values():
                stack.callback(kept.engine.close)
        self._waiting.clear()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Kept:
    engine: Sampler
    fit: Fit
    max_length: int


class WarmSampler:
    """A sampler whose `close` parks the engine. A closed sampler cannot be used again."""

    def __init__(self, kept: _Kept, park: _Park) -> None:
        self._kept: _Kept | None = kept
        self._park, self._asleep = park, False
        self.name, self.dtype = kept.engine.name, kept.engine.dtype
        self.pid = kept.engine.pid

    @property
    def _engine(self) -> Sampler:
        if self._kept is None:
            raise RuntimeError(
                f"this {self.name} sampler is closed; its engine may be in use elsewhere"
            )
        return self._kept.engine

    @property
    def version(self) -> int:
        return self._engine.version

    def load_weights(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        self._engine.load_weights(weights, version)
        self._asleep = False

    def digests(self, shapes: Mapping[str, tuple[int, ...]]) -> list[tuple[str, Digest]]:
        return self._engine.digests(shapes)

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        on_complete: OnComplete | None = None,
    ) -> list[list[Completion]]:
        return self._engine.sample(prompts, sampling, on_complete)

    def extend(
        self,
        responses: Sequence[Unfinished],
        sampling: Sampling,
        on_continued: OnContinued | None = None,
    ) -> list[Completion]:
        return self._engine.extend(responses, sampling, on_continued)

    def sleep(self) -> None:
        self._engine.sleep()
        self._asleep = True

    def close(self) -> None:
        if self._kept is not None:
            self._park.leave(self._kept, asleep=self._asleep)
            self._kept = None

    def abandon(self) -> None:
        if self._kept is not None:
            abandon(self._kept.engine)
            self._kept = None


def abandon(sampler: Sampler) -> None:
    """End a sampler at once, without parking its engine; a request in another thread fails."""
    if isinstance(sampler, WarmSampler | ApartSampler):
        sampler.abandon()
    else:
        sampler.close()


_park: ContextVar[_Park | None] = ContextVar("park", default=None)


@contextmanager
def warm_samplers(room: int = 0) -> Iterator[None]:
    """Park closed engines inside the block; close them at its end. Engines are opened for at least
    `room` tokens, so that one serves every stage."""
    park = _Park(room)
    token = _park.set(park)
    try:
        yield
    finally:
        _park.reset(token)
        park.close()


def kept_warm(
    start: Callable[[int], Sampler],
    engine: str,
    config: SamplerConfig,
    checkpoint: str,
    max_length: int,
    cores: Collection[int] = (),
) -> Sampler:
    """The engine of `start(max_length)`, or inside `warm_samplers` a parked one that fits.

    Raises SyncError if the parked engine does not take the checkpoint's weights.
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
        load_checkpoint(kept.engine, config, checkpoint)
    except BaseException:
        kept.engine.close()
        raise
    return WarmSampler(kept, park)


def load_checkpoint(sampler: Sampler, config: SamplerConfig, checkpoint: str) -> None:
    """Load the checkpoint's weights into the sampler as version 0 and verify them."""
    tokenizer = load_tokenizer(checkpoint)
    probes = [tuple(tokenizer(text).input_ids) for text in PROBES]
    sync = WeightSync(load_policy(checkpoint), sampler, temperature=1.0, tolerance=config.tolerance)
    sync(0, probes)
