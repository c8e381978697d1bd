"""Every stage that a recipe can be for, and the model that reads it."""

from pipeline.config import BaseRecipe
from pipeline.preference_config import PreferenceRecipe, RewardModelRecipe
from pipeline.rl_config import PreferenceRLRecipe, ReasoningRecipe, ZeroRecipe

Recipe = (
    BaseRecipe
    | ZeroRecipe
    | ReasoningRecipe
    | PreferenceRLRecipe
    | PreferenceRecipe
    | RewardModelRecipe
)
Kind = (
    type[BaseRecipe]
    | type[ZeroRecipe]
    | type[ReasoningRecipe]
    | type[PreferenceRLRecipe]
    | type[PreferenceRecipe]
    | type[RewardModelRecipe]
)
STAGES: dict[str, Kind] = {
    "base": BaseRecipe,
    "zero": ZeroRecipe,
    "reasoning_rl": ReasoningRecipe,
    "preference_rl": PreferenceRLRecipe,
    "preference": PreferenceRecipe,
    "reward_model": RewardModelRecipe,
}
