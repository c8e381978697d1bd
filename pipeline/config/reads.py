"""Which settings the choices of an algorithm read, so that one that nothing reads is refused.

A setting in none of these tables is read whatever is chosen.
"""

from collections.abc import Mapping
from typing import Any

from veriloop.pipeline.config.user_code import is_function, load_function
from veriloop.pipeline.errors import did_you_mean

Reads = Mapping[str, tuple[str, ...]]  # settings by value of a choice

_CLIPS = ("clip_low", "clip_high")
_CRITIC = ("critic_learning_rate", "critic_warmup", "value_clip")
ADVANTAGES: Reads = {
    "group": ("advantage_scale",),
    "leave_one_out": ("advantage_scale",),
    "batch": (),
    "running": (),
    "none": (),
    "global": ("credit", "discount"),
    "gae": ("discount", "gae_lambda"),
    "process": ("advantage_scale",),
}
OBJECTIVES: Reads = {
    "clip": (*_CLIPS, "dual_clip"),
    "ratio": (),
    "natural_gradient": (),
    "policy_gradient": (),
    "kl_penalty": ("old_kl_coefficient", "old_kl_target"),
    "gspo": _CLIPS,
    "gspo_token": _CLIPS,
    "cispo": ("clip_high",),
}
CRITICS: Reads = {
    "none": (),
    "separate": (*_CRITIC, "critic_start"),
    "shared": (*_CRITIC, "value_coefficient"),
}
MISMATCHES: Reads = {
    "truncate": ("mismatch_cap",),
    "mask_tokens": ("mismatch_cap", "mismatch_floor"),
    "mask_sequences": ("mismatch_cap", "mismatch_sequence"),
}
PLACEMENTS: Reads = {"reward": ("credit", "discount")}
PTX: Reads = {"above 0": ("ptx_text", "ptx_tokens")}
# Of earlier versions, whose recorded recipes hold the values of all settings.
FORMER_DEFAULTS: Mapping[str, Any] = {"critic_learning_rate": 1e-3}
OF_OBJECTIVES = tuple(dict.fromkeys(name for reads in OBJECTIVES.values() for name in reads))


def unread(algorithm: Any) -> dict[str, str]:
    """The settings that nothing in this `AlgorithmConfig` reads, with what would read them."""
    objective = algorithm.objective
    own = {objective: _declared(objective)} if is_function(objective) else {}
    corrects = algorithm.old_logp == "trainer"
    earns = algorithm.kl_coefficient > 0 and algorithm.advantage != "gae"
    rows: list[tuple[str, str, Reads, str]] = [  # (choice, value, table, further condition)
        ("advantage", algorithm.advantage, ADVANTAGES, ""),
        ("objective", objective, {**OBJECTIVES, **own}, ""),
        ("critic", algorithm.critic, CRITICS, ""),
        ("old_logp", algorithm.old_logp, {"trainer": ("mismatch",)}, ""),
        ("mismatch", algorithm.mismatch if corrects else "", MISMATCHES, " with old_logp: trainer"),
        ("kl_placement", algorithm.kl_placement if earns else "", PLACEMENTS,
         " with kl_coefficient above 0 and another advantage than gae"),
        ("ptx_coefficient", "above 0" if algorithm.ptx_coefficient else "0", PTX, ""),
    ]  # fmt: skip
    readers: dict[str, list[str]] = {}
    for choice, _, table, condition in rows:
        for name in dict.fromkeys(name for reads in table.values() for name in reads):
            values = " or ".join(value for value, reads in table.items() if name in reads)
            readers.setdefault(name, []).append(f"{choice}: {values}{condition}")
    for function, declared in own.items():  # it reads the others only if it says so
        listed = ", ".join(declared) or "nothing"
        for name in (name for name in OF_OBJECTIVES if name not in declared):
            readers[name].append(f"or by {function} if its `reads`, now {listed}, lists it")
    read = {name for _, value, table, _ in rows for name in table.get(value, ())}
    return {name: ", ".join(which) for name, which in readers.items() if name not in read}


def _declared(function: str) -> tuple[str, ...]:
    """The settings of objectives that a user's function reads: those in its attribute `reads`, or
    all of them. Raises ValueError for another name."""
    reads = tuple(getattr(load_function(function), "reads", OF_OBJECTIVES))
    for name in reads:
        if name not in OF_OBJECTIVES:
            raise ValueError(
                f"{function}.reads has {name!r}, which is no setting of objectives."
                f"{did_you_mean(str(name), OF_OBJECTIVES)} Known: {', '.join(OF_OBJECTIVES)}"
            )
    return reads
