"""Every stage that a recipe can be for, the model that reads it, and what the stage makes."""

from pipeline import config
from pipeline.config import BaseRecipe, ZeroRecipe
from pipeline.preference_config import PreferenceRecipe, RewardModelRecipe
from pipeline.r1_config import R1Recipe

StageRecipe = BaseRecipe | ZeroRecipe | PreferenceRecipe | RewardModelRecipe
Recipe = StageRecipe | R1Recipe
Kind = (
    type[BaseRecipe]
    | type[ZeroRecipe]
    | type[PreferenceRecipe]
    | type[RewardModelRecipe]
    | type[R1Recipe]
)
STAGES: dict[str, Kind] = {
    **config.STAGES,
    "preference": PreferenceRecipe,
    "reward_model": RewardModelRecipe,
    "r1": R1Recipe,
}
MAKES: dict[str, tuple[str, ...]] = {  # outputs in run.json that a later stage can take
    "base": ("checkpoint",),
    "zero": ("checkpoint",),
    "preference": ("checkpoint",),
    "reward_model": ("checkpoint",),
}
