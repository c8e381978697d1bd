"""Terms that a recipe adds to the reward of its stage: verifiers and functions of the user."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from veriloop.pipeline.config.fields import Part
from veriloop.pipeline.config.user_code import is_function, load_function
from veriloop.pipeline.errors import did_you_mean

RESERVED = ("accuracy", "format", "language", "preference", "overlong", "control")


class RewardTerm(Part):
    """weight * score, plus the weighted parts; exactly one of `verifier` and `function` is set."""

    verifier: str = ""
    """Verifier by name, of a plugin too; its score is in [0, 1]."""
    function: str = ""
    """Batch function as in TRL: path/to/file.py:name.

    It maps (prompts, completions, **columns) to scores. It may be async, and may return scores by
    part: {"part": scores}.
    """
    weight: float = 1.0
    """Weight of the score; may be negative."""
    parts: dict[str, float] = Field({})
    """Weights of the verifier's components, or of named scores."""
    reference: dict[str, Any] = Field({})
    """Reference of the verifier, which does not see that of the problem."""
    when: Literal["always", "right", "wrong"] = "always"
    """Verdicts of accuracy with which the term counts."""
    sources: tuple[str, ...] = ()
    """Sources of problems with the term; (): all."""

    @model_validator(mode="after")
    def _is_known(self) -> Self:
        if bool(self.verifier) is bool(self.function):
            raise ValueError(
                f"verifier={self.verifier!r} and function={self.function!r}: set exactly one"
            )
        if self.function:
            self._check_function()
        else:
            self._check_verifier()
        return self

    def _check_function(self) -> None:
        if not is_function(self.function):
            raise ValueError(f"function={self.function!r} must be path/to/file.py:name")
        if self.reference:
            raise ValueError(f"reference={self.reference} is read by verifiers, not by functions")
        load_function(self.function)

    def _check_verifier(self) -> None:
        from veriloop.verifiers.registry import get

        try:
            verifier = get(self.verifier)
        except KeyError as unknown:
            raise ValueError(str(unknown.args[0])) from unknown
        known = verifier.components
        for part in self.parts:
            if part not in known:
                raise ValueError(
                    f"parts: {self.verifier} has no component {part!r}."
                    f"{did_you_mean(part, known)} Known: {', '.join(known) or 'none'}"
                )
        keys = verifier.example.reference
        if verifier.kind != "text" and keys and not self.reference:
            raise ValueError(
                f"verifier={self.verifier}: it compares an answer with its reference, and a term "
                f"has none but its own; set reference, as {{{', '.join(keys)}: ...}}"
            )


def require_free_names(terms: dict[str, RewardTerm]) -> dict[str, RewardTerm]:
    """The terms. Raises ValueError for a name that the stage's own reward uses."""
    for name in terms:
        if name in RESERVED:
            raise ValueError(f"a term cannot be called {name!r}: {', '.join(RESERVED)} are taken")
    return terms
