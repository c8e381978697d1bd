"""Every stage that a recipe can be for, the model that reads it, and what the stage makes."""

from pipeline.config import BaseRecipe
from pipeline.distill_config import DistillRecipe
from pipeline.preference_config import PreferenceRecipe, RewardModelRecipe
from pipeline.r1_config import R1Recipe
from pipeline.rl_config import PreferenceRLRecipe, ReasoningRecipe, ZeroRecipe
from pipeline.sft_config import ColdStartRecipe, RejectionRecipe, SFTRecipe

StageRecipe = (
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
Recipe = StageRecipe | R1Recipe
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
    | type[R1Recipe]
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
    "r1": R1Recipe,
}
MAKES: dict[str, tuple[str, ...]] = {  # outputs in run.json that a later stage can take
    "base": ("checkpoint",),
    "zero": ("checkpoint",),
    "reasoning_rl": ("checkpoint",),
    "preference_rl": ("checkpoint",),
    "preference": ("checkpoint",),
    "reward_model": ("checkpoint",),
    "sft": ("checkpoint",),
    "cold_start": ("checkpoint", "data", "card"),
    "rejection_sft": ("checkpoint", "data", "card"),
    "distill": ("checkpoint",),
}
