"""`veriloop algorithms`: the models that each algorithm needs, and a comparison in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from veriloop.pipeline.config.algorithm import AlgorithmConfig
from veriloop.pipeline.config.comparison import HEADER, comparison_of, rows
from veriloop.pipeline.config.presets import DISTILLATIONS, PREFERENCES, PRESETS, Model, Preset
from veriloop.pipeline.dry_run.memory import bytes_per_parameter, parse_size
from veriloop.pipeline.errors import RecipeError, did_you_mean
from veriloop.stages.commands.parse import parse_options
from veriloop.stages.summary import text_table

GIB = 2**30
GROUPS: Mapping[str, Mapping[str, Preset]] = {
    "Reinforcement learning, algorithm.preset": PRESETS,
    "Preference losses, loss.name": PREFERENCES,
    "Distillation, method": DISTILLATIONS,
}
ALL = PRESETS | PREFERENCES | DISTILLATIONS
IN_ADVANCE = ("reference", "teacher")  # score given answers before training, and are then freed
_NOTE = """
A model in brackets scores the answers before training and is then freed; it is not counted. With
the schedule online a preference loss keeps the reference. Verifiers are rules or programs, no
models. Memory is for weights, gradients and optimizer states of models of {size} parameters each
in {dtype} with {optimizer}; the sampler's weights, its cache and activations are not included.

--reward reward_model and --reward judge count the model that the rewards are from, --compare shows
strengths, weaknesses and uses, --describe NAME shows everything about one algorithm."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """List the algorithms: the models they need and their memory, or a comparison in words."""

    compare: bool = False  # needs, strengths, weaknesses and uses of all
    describe: str = ""  # an algorithm, of which everything is shown
    reward: Literal["verifier", "reward_model", "judge"] = "verifier"  # source of rewards
    model_size: str = "7B"  # parameters of every model, such as 7B or 500M
    dtype: str = "bf16"  # of weights and gradients
    optimizer: str = "adamw"


def command(words: Sequence[str]) -> int:
    """Print the tables, or one algorithm.

    Raises RecipeError for an unknown name, size, type or optimizer.
    """
    options = parse_options(Options, words)
    if options.describe:
        if options.describe not in ALL:
            hint = did_you_mean(options.describe, ALL)
            raise RecipeError(f"no algorithm {options.describe!r}.{hint} Known: {', '.join(ALL)}")
        print(described(options.describe, options))
        return 0
    if options.compare:
        print(compared())
        return 0
    print(counted(options))
    print(_NOTE.format(size=options.model_size, dtype=options.dtype, optimizer=options.optimizer))
    return 0


def compared() -> str:
    """What every algorithm needs, its strengths and weaknesses, and what to use it for."""
    parts = []
    for title, group in GROUPS.items():
        apart = [line for row in rows(list(group)) for line in (row, ("",) * len(HEADER))]
        parts.append(f"{title}\n{text_table(HEADER, apart, text=len(HEADER))}")
    return "\n".join(parts)


def counted(options: Options) -> str:
    """The models of every algorithm, its source of rewards, and the memory of its models."""
    header = ("name", "idea", "reward from", "models in memory", "models", "GiB")
    parts = []
    for title, group in GROUPS.items():
        lines = []
        for name, preset in group.items():
            memory, before = memory_of(name, options)
            held = ", ".join([*memory, *(f"({model})" for model in before)])
            total = f"{sum(memory.values()):,.1f}"
            reward = reward_source(name, options.reward)
            lines.append((name, preset.idea, reward, held, str(len(memory)), total))
        parts.append(f"{title}\n{text_table(header, lines, text=4)}")
    return "\n\n".join(parts)


def described(name: str, options: Options) -> str:
    """Everything about one algorithm."""
    preset, words = ALL[name], comparison_of(name)
    memory, before = memory_of(name, options)
    by_model = ", ".join(f"{model} {gib:,.1f}" for model, gib in memory.items())
    facts = {
        "data": preset.data,
        "parts": composition(AlgorithmConfig(preset=name)) if name in PRESETS else "",
        "reward": reward_source(name, options.reward),
        "memory": f"{sum(memory.values()):,.1f} GiB: {by_model}",
        "in advance": ", ".join(before),
        "needs": words.needs,
        "strengths": words.strengths,
        "weaknesses": words.weaknesses,
        "use it for": words.use,
        "paper": preset.paper,
    }
    lines = [(fact, text) for fact, text in facts.items() if text]
    return text_table((name, preset.idea), lines, text=2)


def reward_source(name: str, chosen: str) -> str:
    """Where an algorithm's signal is from; `chosen` for those that rewards train."""
    if name in PREFERENCES:
        return "the data"
    if name in DISTILLATIONS:
        return "teacher"
    if AlgorithmConfig(preset=name).advantage == "process":
        steps = "verifier of steps" if chosen == "verifier" else "process reward model"
        return f"{chosen.replace('_', ' ')}, {steps}"
    return chosen.replace("_", " ")


def memory_of(name: str, options: Options) -> tuple[dict[Model, float], list[Model]]:
    """GiB of each model during training, and the models that are needed only before it.

    Raises RecipeError for an unknown size, type or optimizer.
    """
    count = parse_size(options.model_size)
    each = partial(bytes_per_parameter, dtype=options.dtype, optimizer=options.optimizer)
    models: list[Model] = [*ALL[name].models]
    before: list[Model] = []
    natural = False
    if name in PRESETS:
        algorithm = AlgorithmConfig(preset=name)
        models = [*algorithm.models]
        natural = algorithm.objective == "natural_gradient"
        if options.reward != "verifier":
            models.append("judge" if options.reward == "judge" else "reward model")
    elif ALL[name].data != "online":
        before = [model for model in models if model in IN_ADVANCE]
    return {
        model: each(model, natural_gradient=natural) * count / GIB
        for model in models
        if model not in before
    }, before


def composition(algorithm: AlgorithmConfig) -> str:
    """The parts of an algorithm in one line."""
    parts: dict[str, Any] = {"advantage": algorithm.advantage}
    if algorithm.advantage in ("group", "process"):
        parts["scaled by"] = algorithm.advantage_scale
    if algorithm.critic != "none":
        parts["critic"] = algorithm.critic
    parts["objective"] = algorithm.objective
    if algorithm.objective in ("clip", "gspo", "gspo_token"):
        parts["clip"] = f"{algorithm.clip_low:g}/{algorithm.clip_high:g}"
    elif algorithm.objective == "cispo":
        parts["clip"] = f"{algorithm.clip_high:g}"
    if algorithm.trust_region:
        parts["trust region"] = f"{algorithm.trust_region:g}"
    if algorithm.kl_coefficient:
        parts["KL"] = (
            f"{algorithm.kl_coefficient:g} {algorithm.kl_estimator} in the {algorithm.kl_placement}"
        )
    if algorithm.ptx_coefficient:
        parts["pre-training"] = f"{algorithm.ptx_coefficient:g}"
    if algorithm.dynamic_sampling:
        parts["refills"] = algorithm.dynamic_sampling
    parts["mean over"] = algorithm.aggregation
    return ", ".join(f"{part}: {value}" for part, value in parts.items())
