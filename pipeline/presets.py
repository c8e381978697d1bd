"""Algorithms by name: each is a composition of parts, and a recipe may replace any of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Model = Literal["policy", "reference", "critic", "reward model"]
Data = Literal["online", "pairs", "pairs with scored segments", "unpaired answers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """What a name stands for: settings of `AlgorithmConfig`, and where they come from."""

    paper: str
    idea: str
    parts: Mapping[str, Any] = field(default_factory=dict)
    data: Data = "online"
    models: tuple[Model, ...] = ()  # of a preference loss; an algorithm's parts say its own


_ON_POLICY = {"objective": "policy_gradient", "minibatches": 1, "kl_coefficient": 0.0}
_PPO = {"advantage": "gae", "critic": "separate", "kl_coefficient": 0.0}
_PPO |= {"aggregation": "token_mean", "minibatches": 4}

PRESETS: dict[str, Preset] = {
    "reinforce": Preset(
        paper="Williams, Machine Learning 8, 1992",
        idea="the whole return of a response weighs each of its tokens; no baseline",
        parts=_ON_POLICY | {"advantage": "none"},
    ),
    "vpg": Preset(
        paper="Sutton et al., NeurIPS 1999",
        idea="reward-to-go against the running mean of the rewards",
        parts=_ON_POLICY | {"advantage": "running", "credit": "to_go"},
    ),
    "rloo": Preset(
        paper="arXiv 2402.14740",
        idea="each response against the mean of the others in its group",
        parts=_ON_POLICY | {"advantage": "leave_one_out", "advantage_scale": "none"},
    ),
    "reinforce_pp": Preset(
        paper="arXiv 2501.03262",
        idea="rewards less a KL per token, summed from each token on, normalised over the batch",
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
        idea="clipped ratios, and a critic whose GAE says what each token was worth",
        parts=_PPO,
    ),
    "ppo_shared": Preset(
        paper="arXiv 1707.06347, eq. 9",
        idea="PPO with the critic as a second head on the policy's own trunk",
        parts=_PPO | {"critic": "shared"},
    ),
    "ppo_klpen": Preset(
        paper="arXiv 1707.06347, eq. 8",
        idea="a KL to the old policy in place of the clip, its weight adapted to a target",
        parts=_PPO | {"objective": "kl_penalty", "old_kl_coefficient": 1.0, "old_kl_target": 0.01},
    ),
    "ppo_ptx": Preset(
        paper="arXiv 2203.02155, eq. 2",
        idea="PPO with a share of the pre-training gradient, against forgetting",
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
        idea="a step that moves the policy further than a bound is taken back and shortened",
        parts=_PPO | {"objective": "ratio", "trust_region": 0.01},
    ),
    "grpo": Preset(
        paper="arXiv 2402.03300, 2501.12948",
        idea="a group of responses is its own baseline: (r - mean) / std",
    ),
    "grpo_process": Preset(
        paper="arXiv 2402.03300, section 4.1.3",
        idea="every step of a solution is scored; a token earns what the steps from it on earn",
        parts={"advantage": "process"},
    ),
    "dr_grpo": Preset(
        paper="arXiv 2503.20783",
        idea="GRPO without the two divisions that favour long answers and lopsided groups",
        parts={"advantage_scale": "none", "aggregation": "constant", "kl_coefficient": 0.0},
    ),
    "dapo": Preset(
        paper="arXiv 2503.14476",
        idea="clip-higher, token-level loss, groups that teach something, a soft length limit",
        parts={
            "clip_high": 0.28,
            "aggregation": "token_mean",
            "kl_coefficient": 0.0,
            "dynamic_sampling": 3,
        },
    ),
    "gspo": Preset(
        paper="arXiv 2507.18071",
        idea="one ratio for a whole sequence, the geometric mean of its tokens'",
        parts={
            "objective": "gspo",
            "clip_low": 3e-4,
            "clip_high": 4e-4,
            "kl_coefficient": 0.0,
        },
    ),
    "cispo": Preset(
        paper="arXiv 2506.13585",
        idea="ratios are clipped as weights, so that no token drops out of the gradient",
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
        idea="a classifier of pairs whose reward is beta log(policy / reference)",
        data="pairs",
        models=_WITH_REFERENCE,
    ),
    "ipo": Preset(
        paper="arXiv 2310.12036",
        idea="the margin is drawn to 1 / (2 tau) and stops there",
        data="pairs",
        models=_WITH_REFERENCE,
    ),
    "kto": Preset(
        paper="arXiv 2402.01306",
        idea="good and bad answers, each for itself, against what the policy drifts anyway",
        data="unpaired answers",
        models=_WITH_REFERENCE,
    ),
    "cpo": Preset(
        paper="arXiv 2401.08417",
        idea="DPO without a reference, beside imitation of the chosen answers",
        data="pairs",
        models=("policy",),
    ),
    "simpo": Preset(
        paper="arXiv 2405.14734",
        idea="mean log-probs as rewards, and a lead that the chosen answer must have",
        data="pairs",
        models=("policy",),
    ),
    "orpo": Preset(
        paper="arXiv 2403.07691",
        idea="imitation of the chosen answers and odds against the rejected ones, in one stage",
        data="pairs",
        models=("policy",),
    ),
    "two_d_dpo": Preset(
        paper="arXiv 2410.19720",
        idea="segments against segments, by scores of several aspects",
        data="pairs with scored segments",
        models=_WITH_REFERENCE,
    ),
}
