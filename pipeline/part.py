"""What recipes are made of: a frozen group of settings, and the kinds of numbers in it."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[float, Field(gt=0.0)]
NotNegative = Annotated[float, Field(ge=0.0)]
OneOrMore = Annotated[float, Field(ge=1.0)]
Count = Annotated[int, Field(ge=1)]


class Part(BaseModel):
    """A group of settings: unknown keys are refused, nothing changes after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
