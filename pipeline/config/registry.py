"""The stages, the recipe class of each, and the outputs that later stages can take."""

from veriloop.pipeline.config.distill import DistillRecipe
from veriloop.pipeline.config.preference import (
    CollectPreferencesRecipe,
    PreferenceRecipe,
    RewardModelRecipe,
)
from veriloop.pipeline.config.pretraining import BaseRecipe
from veriloop.pipeline.config.r1 import R1Recipe
from veriloop.pipeline.config.rl import PreferenceRLRecipe, ReasoningRecipe, ZeroRecipe
from veriloop.pipeline.config.sft import ColdStartRecipe, RejectionRecipe, SFTRecipe

StageRecipe = (
    BaseRecipe
    | ZeroRecipe
    | ReasoningRecipe
    | PreferenceRLRecipe
    | PreferenceRecipe
    | CollectPreferencesRecipe
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
    | type[CollectPreferencesRecipe]
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
    "collect_preferences": CollectPreferencesRecipe,
    "reward_model": RewardModelRecipe,
    "sft": SFTRecipe,
    "cold_start": ColdStartRecipe,
    "rejection_sft": RejectionRecipe,
    "distill": DistillRecipe,
    "r1": R1Recipe,
}
MAKES: dict[str, tuple[str, ...]] = {  # stage -> outputs in run.json
    "base": ("checkpoint",),
    "zero": ("checkpoint",),
    "reasoning_rl": ("checkpoint",),
    "preference_rl": ("checkpoint",),
    "preference": ("checkpoint",),
    "collect_preferences": ("data", "card"),
    "reward_model": ("checkpoint",),
    "sft": ("checkpoint",),
    "cold_start": ("checkpoint", "data", "card"),
    "rejection_sft": ("checkpoint", "data", "card"),
    "distill": ("checkpoint",),
}
