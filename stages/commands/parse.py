"""Parse flags with tyro: one options dataclass per command; verbs are subcommands."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, TypeVar, Union, cast, get_type_hints

import tyro
from pydantic import ConfigDict, TypeAdapter, ValidationError
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    StructConstructorSpec,
    StructTypeInfo,
)

from veriloop.pipeline.config.load import explain
from veriloop.pipeline.config.sections import (
    ERROR_SHARE,
    ComputerAlgebra,
    Part,
    judging_facts,
    require_plugins,
)
from veriloop.pipeline.config.services import Services, require_one_sandbox
from veriloop.pipeline.config.user_code import check_system
from veriloop.pipeline.errors import RecipeError
from veriloop.sandbox.backends import AUTO, check

NONE = ("none", "null", "None", "~")
FINITE = ConfigDict(allow_inf_nan=False)
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


def unchecked() -> ConstructorRegistry:
    """Rules of tyro for recipes without pydantic's checks, which are made of the whole, naming
    keys. The value None is written none, null or None, as in a recipe."""
    registry, in_rule = ConstructorRegistry(), False

    @registry.struct_rule
    def part(info: StructTypeInfo) -> StructConstructorSpec | None:
        # tyro's own rule is looked up through the same registry, hence the guard.
        nonlocal in_rule
        if in_rule or not (isinstance(info.type, type) and issubclass(info.type, Part)):
            return None
        in_rule = True
        spec = ConstructorRegistry.get_struct_spec(info)
        in_rule = False
        assert isinstance(spec, StructConstructorSpec), "tyro knows pydantic models"

        def instantiate(**values: Any) -> Part:  # without a docstring, which the help would have
            return info.type.model_construct(**values)

        return replace(spec, instantiate=instantiate)

    @registry.primitive_rule
    def none(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[None] | None:
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

    Raises RecipeError for a number out of its bounds and for an output that cannot be written, and
    SystemExit: 0 after printing help, 2 after printing what is wrong with a flag.
    """
    options = tyro.cli(
        kind, args=list(words[1:]), prog=f"veriloop {words[0]}", registry=unchecked()
    )
    _load_plugins(options)
    return _checked(options)


def parse_known_options(kind: type[Options], words: Sequence[str]) -> tuple[Options, list[str]]:
    """Like `parse_options`, but also returns the words that are no flags of `kind`."""
    options, unknown = tyro.cli(
        kind,
        args=list(words[1:]),
        prog=f"veriloop {words[0]}",
        return_unknown_args=True,
        registry=unchecked(),
    )
    _load_plugins(options)
    return _checked(options), unknown


def _checked(options: Options) -> Options:
    """The options, whose numbers have the bounds of their types, as in a recipe."""
    hints = get_type_hints(type(options), include_extras=True)
    for field in fields(cast(Any, options)):
        value = getattr(options, field.name)
        flag = f"--{field.name.replace('_', '-')}"
        if field.name == "json" and isinstance(value, str) and value:
            _require_place(flag, Path(value))
        try:
            if isinstance(value, Part):
                type(value).model_validate(value.model_dump(warnings=False))
            elif isinstance(value, int | float) and hints[field.name] is not float:
                TypeAdapter(hints[field.name], config=FINITE).validate_python(value)
        except ValidationError as mistake:
            if isinstance(value, Part):
                raise RecipeError(f"{flag}:\n{explain(mistake, type(value))}") from mistake
            raise RecipeError(f"{flag} {value}: {mistake.errors()[0]['msg']}") from mistake
    return options


def require_outside(checkpoint: Path, flag: str, value: str) -> None:
    """Raise RecipeError for an output in the folder of a checkpoint, whose hash is of its files."""
    if value and Path(value).resolve().parent == checkpoint.resolve():
        raise RecipeError(
            f"{flag} {value}: is in the folder of the checkpoint, which is known by its files; "
            "name another place"
        )


def _require_place(flag: str, path: Path) -> None:
    """Raise RecipeError for a file that cannot be written where it is named."""
    if not path.parent.is_dir():
        raise RecipeError(f"{flag} {path}: {path.parent} is no folder; nothing was done")
    if path.is_dir():
        raise RecipeError(f"{flag} {path}: is a folder, not a file; nothing was done")


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
        registry=unchecked(),
    )
    _load_plugins(options)
    if options is not None:
        _checked(options)
    return verbs[rest[0]][1](options)
