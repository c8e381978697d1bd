"""The base class of recipe sections, their number types, and the settings of execution alone."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[float, Field(gt=0.0)]
NotNegative = Annotated[float, Field(ge=0.0)]
COLDEST = 0.01  # vLLM raises lower temperatures to it, and says nothing
Temperature = Annotated[float, Field(ge=COLDEST)]  # of sampling that is not greedy
OneOrMore = Annotated[float, Field(ge=1.0)]
Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]
StopStrings = tuple[Annotated[str, Field(min_length=1)], ...]  # "" would end every response
Seed = Annotated[int, Field(ge=0, lt=1 << 32)]  # times a step's number it must have 64 bits


class Part(BaseModel):
    """A frozen group of settings that rejects unknown keys.

    The docstring under a field is its description in the JSON schema; its first sentence is the
    help of the flag.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    @field_validator("*", mode="before")
    @classmethod
    def _no_boolean_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        kinds = _kinds(cls.model_fields[info.field_name or ""].annotation)
        if bool not in kinds and kinds & {int, float} and _holds_boolean(value):
            raise ValueError(f"must be a number, got {value!r}")
        if type(value) is int and not -(1 << 63) <= value < 1 << 63:
            raise ValueError("must be an integer of 64 bits")  # libraries hold no more
        return value


def _kinds(annotation: Any) -> set[Any]:
    """An annotation and all types in it."""
    if get_origin(annotation) is Literal:
        return set()
    return {annotation}.union(*map(_kinds, get_args(annotation)))


def _holds_boolean(value: Any) -> bool:
    values = value.values() if isinstance(value, dict) else value
    return isinstance(value, bool) or (
        isinstance(value, dict | list | tuple) and any(isinstance(one, bool) for one in values)
    )


# How a run executes and what it reports. What it computes changes by rounding at most, and what it
# samples with sampler.device or servers, which have random numbers of their own. These settings may
# differ when a run is resumed and are left out of a recipe's hash.
EXECUTION_SETTINGS = (
    "checkpoint",
    "tensorboard",
    "trackers",
    "push_to_hub",
    "hub_public",
    "warn_zero_reward_after",
    "nonfinite",  # a run that met none is the same with either value
    "verifier_workers",
    "verifier_error_share",
    "verifier_service",
    "sandbox.backend",
    "collect.sandbox.backend",
    "collect.verifier_workers",
    "collect.verifier_error_share",
    "collect.verifier_service",
    "rewrite.workers",
    "rewrite.seconds",
    "label.workers",
    "label.seconds",
    "trainer.device",
    "trainer.threads",
    "trainer.memory_gib",
    "cluster",  # the sums of a step are the same up to rounding
    "sampler.apart",
    "sampler.deadline_s",
    "sampler.device",
    "sampler.sleep",
    "sampler.graphs",
)


def is_setting(key: str, settings: Iterable[str]) -> bool:
    """Whether a dotted key is one of the settings or lies inside one of them."""
    return any(key == setting or key.startswith(f"{setting}.") for setting in settings)


def nearest_divisor(number: int, wanted: int) -> int:
    """The divisor of `number` closest to `wanted`; the smaller one of two."""
    divisors = (n for n in range(1, number + 1) if number % n == 0)
    return min(divisors, key=lambda n: abs(n - wanted))
