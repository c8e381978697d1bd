"""Every stage that a recipe can be for, and the model that reads it."""

from pipeline import config
from pipeline.config import BaseRecipe, ZeroRecipe
from pipeline.preference_config import PreferenceRecipe, RewardModelRecipe

Recipe = BaseRecipe | ZeroRecipe | PreferenceRecipe | RewardModelRecipe
Kind = type[BaseRecipe] | type[ZeroRecipe] | type[PreferenceRecipe] | type[RewardModelRecipe]
STAGES: dict[str, Kind] = {
    **config.STAGES,
    "preference": PreferenceRecipe,
    "reward_model": RewardModelRecipe,
}
