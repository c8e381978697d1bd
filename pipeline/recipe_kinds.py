"""Every stage that a recipe can be for, and the model that reads it."""

from pipeline import config
from pipeline.config import BaseRecipe, ZeroRecipe
from pipeline.distill_config import DistillRecipe
from pipeline.preference_config import PreferenceRecipe, RewardModelRecipe
from pipeline.sft_config import ColdStartRecipe, RejectionRecipe, SFTRecipe

Recipe = (
    BaseRecipe
    | ZeroRecipe
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
    | type[PreferenceRecipe]
    | type[RewardModelRecipe]
    | type[SFTRecipe]
    | type[ColdStartRecipe]
    | type[RejectionRecipe]
    | type[DistillRecipe]
)
STAGES: dict[str, Kind] = {
    **config.STAGES,
    "preference": PreferenceRecipe,
    "reward_model": RewardModelRecipe,
    "sft": SFTRecipe,
    "cold_start": ColdStartRecipe,
    "rejection_sft": RejectionRecipe,
    "distill": DistillRecipe,
}
