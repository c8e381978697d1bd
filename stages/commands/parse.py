"""Parse flags with tyro: one options dataclass per command; verbs are subcommands."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from types import NoneType
from typing import Annotated, Any, TypeVar, Union

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from veriloop.pipeline.config.sections import (
    ERROR_SHARE,
    ComputerAlgebra,
    judging_facts,
    require_plugins,
)
from veriloop.pipeline.config.services import Services, require_one_sandbox
from veriloop.pipeline.config.user_code import check_system
from veriloop.pipeline.errors import RecipeError
from veriloop.sandbox.backends import AUTO, check

NONE = ("none", "null", "None", "~")
Options = TypeVar("Options")
Verbs = Mapping[str, tuple[type, Callable[[Any], int]]]  # verb: (options, function -> exit code)


@dataclass(frozen=True, kw_only=True)
class PluginOptions:
    """Options of a command that knows verifiers by name; parsing loads the plugins."""

    plugin: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]],
        tyro.conf.arg(metavar="FILE|MODULE", help="load more verifiers; may be repeated"),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class JudgeOptions(PluginOptions):
    """Options of a command that verifies in its own processes, spelled as in a recipe."""

    verifier_computer_algebra: ComputerAlgebra = "fallback"  # use of sympy by math_answer
    sandbox_backend: Annotated[
        str,
        tyro.conf.arg(
            name="sandbox.backend",
            metavar="NAME",
            help="where programs run: namespace, reduced, docker, remote:URL",
        ),
    ] = AUTO

    def judging(self, services: Services = "") -> dict[str, Any]:
        """What opens verifiers with these options. Raises RecipeError for an invalid backend, and
        for one with a reward service."""
        try:
            require_one_sandbox(self.sandbox_backend, services)
            backend = check(self.sandbox_backend)
        except ValueError as mistake:
            raise RecipeError(f"--sandbox.backend: {mistake}") from mistake
        return {"sandbox": backend, "facts": judging_facts(self.verifier_computer_algebra)}


@dataclass(frozen=True, kw_only=True)
class BoundedJudgeOptions(JudgeOptions):
    """Options of a command that ends when its verifiers fail on too many answers."""

    verifier_error_share: float = ERROR_SHARE  # share of answers without a verdict that ends it

    def require_error_share(self) -> float:
        """The share. Raises RecipeError for one that is none."""
        if not 0.0 <= self.verifier_error_share <= 1.0:
            raise RecipeError(
                f"--verifier-error-share {self.verifier_error_share:g}: must be from 0 to 1 (never)"
            )
        return self.verifier_error_share


def system_message(system: str, template: str) -> str:
    """The text of --system, a name or a text. Raises RecipeError for a name that is none, and for a
    template without a system message."""
    try:
        text = check_system(system)
    except ValueError as mistake:
        raise RecipeError(f"--system: {mistake}") from mistake
    if text and template == "r1_zero":
        raise RecipeError(f"--system {system!r:.40} is only used with --template chat or your own")
    return text


def with_none() -> ConstructorRegistry:
    """Rules of tyro in which the value None is written none, null or None, as in a recipe."""
    registry = ConstructorRegistry()

    @registry.primitive_rule
    def rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[None] | None:
        if info.type is not NoneType:
            return None
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar="none",
            instance_from_str=_none,
            is_instance=lambda value: value is None,
            str_from_instance=lambda _: ["none"],
        )

    return registry


def _none(words: Sequence[str]) -> None:
    if words[0] not in NONE:
        raise ValueError(f"{words[0]!r} is not none")


def parse_options(kind: type[Options], words: Sequence[str]) -> Options:
    """The options of `veriloop NAME [FLAG...]`; `words` starts with the name.

    Raises SystemExit: 0 after printing help, 2 after printing what is wrong with a flag.
    """
    options = tyro.cli(kind, args=list(words[1:]), prog=f"veriloop {words[0]}")
    _load_plugins(options)
    return options


def parse_known_options(kind: type[Options], words: Sequence[str]) -> tuple[Options, list[str]]:
    """Like `parse_options`, but also returns the words that are no flags of `kind`."""
    options, unknown = tyro.cli(
        kind, args=list(words[1:]), prog=f"veriloop {words[0]}", return_unknown_args=True
    )
    _load_plugins(options)
    return options, unknown


def _load_plugins(options: Any) -> None:
    """Load the plugins of the options, if they name any.

    Raises RecipeError for one that cannot be imported.
    """
    try:
        require_plugins(options.plugin if isinstance(options, PluginOptions) else ())
    except ValueError as failure:
        raise RecipeError(str(failure)) from failure


def run_verb(words: Sequence[str], verbs: Verbs, description: str) -> int:
    """Parse `veriloop NAME VERB [FLAG...]` and run the verb; returns its exit code.

    Raises RecipeError for an unknown verb, with the nearest one, and SystemExit like
    `parse_options`.
    """
    name, *rest = words
    if rest and not rest[0].startswith("-") and rest[0] not in verbs:
        close = get_close_matches(rest[0], verbs, n=1)
        hint = f"Did you mean {close[0]!r}?" if close else f"Allowed: {', '.join(verbs)}"
        raise RecipeError(f"no command '{name} {rest[0]}'. {hint}")
    subcommands = [
        Annotated[kind, tyro.conf.subcommand(verb, prefix_name=False)]
        for verb, (kind, _) in verbs.items()
    ]
    # tyro makes subcommands of a union of at least two types, so a suppressed one is added.
    union: Any = Union[*subcommands, Annotated[None, tyro.conf.Suppress]]
    options = tyro.cli(
        union,
        args=rest,
        prog=f"veriloop {name}",
        description=description,
        config=(tyro.conf.OmitArgPrefixes,),
    )
    _load_plugins(options)
    return verbs[rest[0]][1](options)
