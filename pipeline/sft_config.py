"""Recipes of supervised fine-tuning: from a file, from R1-Zero's chains, from rejection samples."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from pipeline.config import (
    Asking,
    CheckpointConfig,
    Judged,
    OptimizerConfig,
    SamplerConfig,
    Trackers,
    TrainerConfig,
)
from pipeline.part import Count, NotNegative, Part, Positive, Share

Whole = Annotated[int, Field(ge=0)]


class LessonConfig(Part):
    """Which rows are learned, and which of their tokens."""

    held_out: Whole = 0  # rows to measure on, never learned; whole questions, drawn by the seed
    turns: Literal["all", "last"] = "all"  # of a conversation: the assistant's turns to learn
    max_tokens: Count = 512  # of a row, prompt included
    too_long: Literal["leave_out", "refuse"] = "leave_out"  # left out they are counted; never cut
    template: Literal["own", "r1_zero"] = "own"  # of messages; r1_zero: what the RL stages ask in


class SFTDataConfig(LessonConfig):
    source: str  # "arithmetic": generated; or a .jsonl or .parquet file in TRL's layout
    rows: Whole = 0  # of the generated ones; of a file: its first ones, 0: all
    seed: int = 0  # of the generated ones

    @model_validator(mode="after")
    def _generated_rows_are_counted(self) -> Self:
        if self.source == "arithmetic" and not self.rows:
            raise ValueError("rows=0: generated data has no end; say how many rows")
        return self


class Supervised(Asking):
    """What every recipe with a supervised part has."""

    name: str
    seed: int = 0
    start: str  # a base recipe, or a folder with a Hugging Face checkpoint
    epochs: Count = 2
    batch: Count = 32  # sequences an optimizer step
    optimizer: OptimizerConfig
    trainer: TrainerConfig = TrainerConfig()
    sampler: SamplerConfig = SamplerConfig()
    examine: bool = True  # held-out problems at both ends
    max_tokens: Count = 112  # of a sampled response
    checkpoint: CheckpointConfig = CheckpointConfig()
    tensorboard: bool = True
    trackers: Trackers = ()


class SFTRecipe(Supervised):
    """Supervised fine-tuning on a file."""

    stage: Literal["sft"] = "sft"
    data: SFTDataConfig
    examine: bool = False


class CollectConfig(Judged):
    """What the teacher is asked, and how many of its answers are kept."""

    problems: dict[str, Positive] = Field({"arithmetic": 1.0})  # weights of the sources
    problem_seed: int = 0
    questions: Count  # asked in all
    per_prompt: Count = 4  # answers to each
    keep: Count = 1  # of one question's good answers, at most: those that think longest
    rows: Whole = 0  # kept in all, at most; 0: every one
    temperature: Positive = 1.0
    max_prompt: Count = 256  # tokens of a prompt, template included; longer questions are not asked
    at_once: Count = 128  # questions of a round, whose judged answers are written down


class FilterConfig(Part):
    """What a sample must be like; `data/filters.py` says what each measures. 0: not asked."""

    min_words: Whole = 0  # of thinking
    consistency: Share = 0.9  # least share of the thinking's words in the question's language
    max_paragraph: Whole = 0  # words of one paragraph
    code_blocks: bool = True  # a response that has one is left out
    ngram: Count = 4
    distinct: Share = 0.3  # least share of different n-grams
    max_tokens: Whole = 0
    overlap: Whole = 10  # words of an n-gram shared with an evaluation question or solution
    against: str = ""  # .jsonl with more of those: every text in it counts


class RewriteConfig(Part):
    """How a chain is written anew: laid out here, or by another model first."""

    layout: str = "<think>{thinking}</think><answer>{answer}</answer>"
    rewriter: str = ""  # an OpenAI-compatible API, as in http://host:8000/v1; "": none
    model: str = ""  # its name there
    seconds: Positive = 120.0  # for one answer, all attempts
    workers: Count = 8  # questions put to it at once

    @model_validator(mode="after")
    def _layout_holds_both(self) -> Self:
        thinking, answer = self.layout.find("{thinking}"), self.layout.find("{answer}")
        if not 0 <= thinking < answer:
            raise ValueError(
                f"layout={self.layout!r} must hold {{thinking}}, and after it {{answer}}"
            )
        if bool(self.rewriter) is not bool(self.model):
            raise ValueError("rewriter and model: both, or neither")
        return self


class ColdStartRecipe(Supervised):
    """SFT of the base on long, readable chains of an R1-Zero checkpoint."""

    stage: Literal["cold_start"] = "cold_start"
    teacher: str  # the checkpoint that the chains are sampled from
    collect: CollectConfig
    filters: FilterConfig = FilterConfig()
    rewrite: RewriteConfig = RewriteConfig()
    data: LessonConfig = LessonConfig(template="r1_zero")
    epochs: Count = 3


class GeneralConfig(Part):
    """Rows that ask for no reasoning."""

    source: str = "general"  # generated; or a .jsonl or .parquet file in TRL's layout
    seed: int = 0
    reasoning: NotNegative = 3.0  # reasoning rows to each general one; 0: no general rows


class RejectionRecipe(Supervised):
    """SFT of the base on a reasoning model's verified answers, and on general rows."""

    stage: Literal["rejection_sft"] = "rejection_sft"
    teacher: str
    collect: CollectConfig
    filters: FilterConfig = FilterConfig()
    general: GeneralConfig = GeneralConfig()
    data: LessonConfig = LessonConfig(template="r1_zero")


SupervisedRecipe = SFTRecipe | ColdStartRecipe | RejectionRecipe
