"""The checkpoint that the doctor checks: where it is, and its parts, loaded on first use."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from veriloop.pipeline.config.checkpoints import positions_of
from veriloop.pipeline.config.sections import SamplerConfig
from veriloop.pipeline.doctor.finding import UnavailableError, first_line
from veriloop.pipeline.doctor.machine_under_test import Engine
from veriloop.pipeline.model.policy import load_generation_config, load_policy, load_tokenizer
from veriloop.pipeline.sampling.sampler import Sampler

MAX_TOKENS = 16  # of a sampled response
MAX_LENGTH = 256  # positions of the engine
QUESTIONS = (  # of different lengths, so that padding and packing matter
    "What is 12+7-5?",
    "Name a colour.",
    "A train leaves at nine and arrives at noon. How many hours does it take? Think step by step.",
    "计算 8-3+21 等于多少?",
    "def double(x):\n    return",
    "The answer is <answer>",
)


class CheckpointUnderTest:
    """Parts of a checkpoint, each loaded once. A part that fails to load stays unavailable."""

    def __init__(
        self,
        folder: Path,
        *,
        engine: Engine = "torch",
        dtype: Literal["float32", "bfloat16"] = "float32",
        needed: int = 0,  # positions of the recipe's longest prompt and response
    ) -> None:
        self.folder = folder
        self.engine: Engine = engine
        self.dtype, self.needed = dtype, needed
        self._parts: dict[str, Any] = {}

    @property
    def tokenizer(self) -> Any:
        return self._load_once("tokenizer", lambda: load_tokenizer(self.folder))

    @property
    def generation(self) -> Any:
        return self._load_once("generation_config", lambda: load_generation_config(self.folder))

    @property
    def policy(self) -> Any:
        """The model in float32, loaded as for training."""
        return self._load_once("model", lambda: load_policy(self.folder))

    @property
    def config(self) -> Any:
        return self._load_once("config", self._load_config)

    @property
    def sampler(self) -> Sampler:
        """The engine in float32."""
        return self._load_once("sampler", lambda: self.open_sampler("float32"))

    @property
    def prompts(self) -> tuple[tuple[int, ...], ...]:
        """Token ids of QUESTIONS, with the special tokens that the tokenizer adds."""
        limit = self.length - MAX_TOKENS
        ids = (self.tokenizer(text).input_ids for text in QUESTIONS)
        return tuple(tuple(prompt[:limit]) for prompt in ids)

    @property
    def length(self) -> int:
        """Positions of the longest prompt and response that the checks sample."""
        return min(MAX_LENGTH, positions_of(self.config.to_dict()) or MAX_LENGTH)

    def open_sampler(self, dtype: Literal["float32", "bfloat16"]) -> Sampler:
        from veriloop.pipeline.sampling.open import open_sampler

        config = SamplerConfig(engine=self.engine, dtype=dtype, cache_gib=0.5, max_batch=64)
        return open_sampler(config, str(self.folder), max_length=self.length, say=lambda _: None)

    def close_sampler(self) -> None:
        sampler = self._parts.pop("sampler", None)
        if sampler is not None and not isinstance(sampler, Exception):
            sampler.close()

    def close(self) -> None:
        self.close_sampler()
        self._parts.clear()

    def _load_config(self) -> Any:
        from transformers import AutoConfig

        return AutoConfig.from_pretrained(str(self.folder))

    def _load_once(self, name: str, load: Callable[[], Any]) -> Any:
        """Raises the failure itself the first time, UnavailableError every time after it."""
        if name not in self._parts:
            try:
                self._parts[name] = load()
            except Exception as failure:
                self._parts[name] = failure
                raise
        part = self._parts[name]
        if isinstance(part, Exception):
            reason = f"needs the {name}, which failed to load: {first_line(part)}"
            raise UnavailableError(reason, f"fix the {name} first") from part
        return part
