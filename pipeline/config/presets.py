"""Presets: named compositions of `AlgorithmConfig`; a recipe may override any part."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Model = Literal["policy", "reference", "critic", "reward model", "judge", "teacher"]
Data = Literal[
    "online", "pairs", "pairs with scored segments", "unpaired answers", "answers of a teacher"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """Settings of `AlgorithmConfig` and their source."""

    paper: str
    idea: str
    parts: Mapping[str, Any] = field(default_factory=dict)
    data: Data = "online"
    models: tuple[Model, ...] = ()  # an algorithm's follow from its parts


_ON_POLICY = {"objective": "policy_gradient", "minibatches": 1, "kl_coefficient": 0.0}
# Their theorem is about a sum over tokens: a mean over each response would favour short ones.
_ON_POLICY |= {"aggregation": "constant"}
_PPO = {"advantage": "gae", "critic": "separate", "kl_coefficient": 0.0}
_PPO |= {"aggregation": "token_mean", "minibatches": 4}

PRESETS: dict[str, Preset] = {
    "reinforce": Preset(
        paper="Williams, Machine Learning 8, 1992",
        idea="each token is weighted by the return of the whole response; no baseline",
        parts=_ON_POLICY | {"advantage": "none"},
    ),
    "vpg": Preset(
        paper="Sutton et al., NeurIPS 1999",
        idea="reward-to-go against the running mean of the rewards",
        parts=_ON_POLICY | {"advantage": "running", "credit": "to_go"},
    ),
    "rloo": Preset(
        paper="arXiv 2402.14740",
        idea="the baseline of a response is the mean reward of the others in its group",
        parts=_ON_POLICY | {"advantage": "leave_one_out", "advantage_scale": "none"},
    ),
    "reinforce_pp": Preset(
        paper="arXiv 2501.03262",
        idea="reward-to-go with a KL penalty per token, normalised over the batch",
        parts={
            "advantage": "global",
            "credit": "to_go",
            "kl_estimator": "k1",
            "kl_placement": "reward",
            "aggregation": "token_mean",
        },
    ),
    "ppo": Preset(
        paper="arXiv 1707.06347",
        idea="clipped ratios, with advantages by GAE from a critic",
        parts=_PPO,
    ),
    "ppo_shared": Preset(
        paper="arXiv 1707.06347, eq. 9",
        idea="PPO with the critic as a second head on the policy's trunk",
        parts=_PPO | {"critic": "shared"},
    ),
    "ppo_klpen": Preset(
        paper="arXiv 1707.06347, eq. 8",
        idea="a KL penalty to the old policy instead of the clip, with an adaptive weight",
        parts=_PPO | {"objective": "kl_penalty", "old_kl_coefficient": 1.0, "old_kl_target": 0.01},
    ),
    "ppo_ptx": Preset(
        paper="arXiv 2203.02155, eq. 2",
        idea="PPO with a term of pre-training loss, against forgetting",
        parts=_PPO
        | {
            "kl_estimator": "k1",
            "kl_placement": "reward",
            "kl_coefficient": 0.02,
            "ptx_coefficient": 0.1,
        },
    ),
    "trpo": Preset(
        paper="arXiv 1502.05477",
        idea="a step along the natural gradient, as long as a bound on the KL allows",
        parts=_PPO | {"objective": "natural_gradient", "trust_region": 0.01, "minibatches": 1},
    ),
    "line_search": Preset(
        paper="arXiv 1502.05477, appendix C",
        idea="an optimizer step whose KL exceeds a bound is undone and shortened",
        parts=_PPO | {"objective": "ratio", "trust_region": 0.01},
    ),
    "grpo": Preset(
        paper="arXiv 2402.03300, 2501.12948",
        idea="a group of responses is its own baseline: (r - mean) / std",
    ),
    "grpo_process": Preset(
        paper="arXiv 2402.03300, section 4.1.3",
        idea="every step of a solution is scored; a token's advantage sums the later steps",
        parts={"advantage": "process"},
    ),
    "dr_grpo": Preset(
        paper="arXiv 2503.20783",
        idea="GRPO without division by the length and by the std of the group",
        parts={"advantage_scale": "none", "aggregation": "constant", "kl_coefficient": 0.0},
    ),
    "dapo": Preset(
        paper="arXiv 2503.14476",
        idea="clip-higher, token-level loss, dynamic sampling, soft and masked length limits",
        parts={
            "clip_high": 0.28,
            "aggregation": "token_mean",
            "kl_coefficient": 0.0,
            "dynamic_sampling": 3,
            "truncated": "mask",
        },
    ),
    "gspo": Preset(
        paper="arXiv 2507.18071",
        idea="one ratio per sequence, the geometric mean of its tokens' ratios",
        parts={
            "objective": "gspo",
            "clip_low": 3e-4,
            "clip_high": 4e-4,
            "kl_coefficient": 0.0,
        },
    ),
    "cispo": Preset(
        paper="arXiv 2506.13585",
        idea="ratios are clipped as detached weights, so every token keeps its gradient",
        parts={
            "objective": "cispo",
            "clip_high": 4.0,
            "aggregation": "token_mean",
            "kl_coefficient": 0.0,
        },
    ),
}

_WITH_REFERENCE: tuple[Model, ...] = ("policy", "reference")
PREFERENCES: dict[str, Preset] = {
    "dpo": Preset(
        paper="arXiv 2305.18290",
        idea="a classifier of pairs with reward beta log(policy / reference)",
        data="pairs",
        models=_WITH_REFERENCE,
    ),
    "ipo": Preset(
        paper="arXiv 2310.12036",
        idea="a squared loss with target margin 1 / (2 tau)",
        data="pairs",
        models=_WITH_REFERENCE,
    ),
    "kto": Preset(
        paper="arXiv 2402.01306",
        idea="unpaired good and bad answers, against the policy's KL to the reference",
        data="unpaired answers",
        models=_WITH_REFERENCE,
    ),
    "cpo": Preset(
        paper="arXiv 2401.08417",
        idea="DPO without a reference, plus imitation of the chosen answers",
        data="pairs",
        models=("policy",),
    ),
    "simpo": Preset(
        paper="arXiv 2405.14734",
        idea="mean log-probs as rewards, with a target margin",
        data="pairs",
        models=("policy",),
    ),
    "orpo": Preset(
        paper="arXiv 2403.07691",
        idea="imitation of the chosen answers plus an odds-ratio penalty, in one stage",
        data="pairs",
        models=("policy",),
    ),
    "two_d_dpo": Preset(
        paper="arXiv 2410.19720",
        idea="pairs of segments, weighted by scores of several aspects",
        data="pairs with scored segments",
        models=_WITH_REFERENCE,
    ),
}

DISTILLATIONS: dict[str, Preset] = {
    "sft": Preset(
        paper="arXiv 2501.12948, section 2.4",
        idea="cross-entropy on the teacher's verified answers",
        data="answers of a teacher",
        models=("policy",),
    ),
    "logits": Preset(
        paper="arXiv 1503.02531",
        idea="forward KL to the teacher's distribution at each token of its answers",
        data="answers of a teacher",
        models=("policy", "teacher"),
    ),
    "on_policy": Preset(
        paper="arXiv 2306.13649",
        idea="the teacher's distribution at each token of the student's own answers",
        models=("policy", "teacher"),
    ),
}
