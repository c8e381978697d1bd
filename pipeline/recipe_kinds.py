"""Every stage that a recipe can be for, and the model that reads it."""

from pipeline.config import BaseRecipe
from pipeline.distill_config import DistillRecipe
from pipeline.preference_config import PreferenceRecipe, RewardModelRecipe
from pipeline.rl_config import PreferenceRLRecipe, ReasoningRecipe, ZeroRecipe
from pipeline.sft_config import ColdStartRecipe, RejectionRecipe, SFTRecipe

Recipe = (
    BaseRecipe
    | ZeroRecipe
    | ReasoningRecipe
    | PreferenceRLRecipe
    | PreferenceRecipe
    | RewardModelRecipe
    | SFTRecipe
    | ColdStartRecipe
    | RejectionRecipe
    | DistillRecipe
)
Kind = (
    type[BaseRecipe]
    | type[ZeroRecipe]
    | type[ReasoningRecipe]
    | type[PreferenceRLRecipe]
    | type[PreferenceRecipe]
    | type[RewardModelRecipe]
    | type[SFTRecipe]
    | type[ColdStartRecipe]
    | type[RejectionRecipe]
    | type[DistillRecipe]
)
STAGES: dict[str, Kind] = {
    "base": BaseRecipe,
    "zero": ZeroRecipe,
    "reasoning_rl": ReasoningRecipe,
    "preference_rl": PreferenceRLRecipe,
    "preference": PreferenceRecipe,
    "reward_model": RewardModelRecipe,
    "sft": SFTRecipe,
    "cold_start": ColdStartRecipe,
    "rejection_sft": RejectionRecipe,
    "distill": DistillRecipe,
}
