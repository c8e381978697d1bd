"""Recipes of supervised fine-tuning: on a file, on R1-Zero's chains, on rejection samples."""

from typing import Literal, Self

from pydantic import Field, model_validator

from veriloop.data.generated_rows import GENERATED
from veriloop.data.sources import SOURCES
from veriloop.data.worked_rows import Steps, WorkedSource
from veriloop.pipeline.config.fields import (
    Count,
    NotNegative,
    Part,
    Positive,
    Seed,
    Share,
    StopStrings,
    Temperature,
    Whole,
)
from veriloop.pipeline.config.sections import (
    AsksQuestions,
    CheckpointConfig,
    Judged,
    OptimizerConfig,
    Pushed,
    Ranked,
    SamplerConfig,
    Trackers,
    require_known_sources,
    require_used,
)
from veriloop.pipeline.config.user_code import PromptTemplate, SystemMessage
from veriloop.pipeline.errors import did_you_mean


class SFTExamplesConfig(Part):
    """Which rows, and which of their tokens, the loss covers."""

    held_out: Whole = 0
    """Rows to measure on. Never trained on; whole questions, drawn by the seed."""
    turns: Literal["all", "last"] = "all"
    """Assistant turns that the loss covers."""
    max_tokens: Count = 512
    """Tokens per row, including the prompt."""
    too_long: Literal["leave_out", "refuse"] = "leave_out"
    """What happens to longer rows; they are never cut."""
    template: Literal["own", "r1_zero"] = "own"
    """Template of messages. r1_zero: the prompt of the RL stages."""


class CollectedDataConfig(SFTExamplesConfig):
    template: Literal["own", "r1_zero"] = "r1_zero"
    """Template of messages. own: the model's chat template."""


class SFTDataConfig(SFTExamplesConfig):
    source: str
    """Source of rows.

    "arithmetic" or "general" (generated), or a .jsonl or .parquet file in TRL's layout.
    """
    rows: Whole = 0
    """Generated rows, or first rows of a file; 0: all."""
    seed: Seed = 0
    """Seed of generated rows."""

    @model_validator(mode="after")
    def _generated_rows_are_counted(self) -> Self:
        if self.source in GENERATED and not self.rows:
            raise ValueError("rows=0: generated data has no end; set the number of rows")
        return self


class WorkedDataConfig(SFTDataConfig):
    source: str = ""
    """Source of rows. As in `SFTDataConfig`; "" with `problems`."""
    problems: dict[str, Positive] = Field({})
    """Weight per source whose own worked solutions are the rows.

    Published sets with steps in their rows, reasoning-gym tasks on expressions of numbers, and
    "programs".
    """
    steps: dict[str, Steps] = Field({})
    """Steps by source of `problems`; default: operations.

    operations: as the source has them; places: sums of whole numbers in them are spelled out by
    place value ("47 + 38 = 40 + 30 + 7 + 8 = 70 + 15 = 85").
    """

    @model_validator(mode="after")
    def _rows_have_one_origin(self) -> Self:
        if bool(self.source) is bool(self.problems):
            raise ValueError(
                f"source={self.source!r} and problems={self.problems}: set exactly one of them"
            )
        if self.problems and not self.rows:
            raise ValueError("rows=0: set the number of rows to take from `problems`")
        for name in self.steps:
            if name not in self.problems:
                known = ", ".join(self.problems) or "none"
                raise ValueError(
                    f"steps: {name!r} is no source of `problems`."
                    f"{did_you_mean(name, self.problems)} Known: {known}"
                )
        return self


class Supervised(Ranked, AsksQuestions, Pushed):
    """Settings that every supervised recipe shares."""

    name: str
    """Name, also of run folders."""
    seed: Seed = 0
    """Seed of weights, sampling and order of data."""
    start: str
    """Base recipe, or checkpoint folder. A checkpoint is in Hugging Face's format."""
    epochs: Count = 2
    """Passes over the data."""
    batch: Count = 32
    """Rows per optimizer step."""
    optimizer: OptimizerConfig
    """Learning rates, decay and schedule."""
    sampler: SamplerConfig = SamplerConfig()
    """Engine that samples answers."""
    examine: bool = True
    """Evaluate on held-out problems before and after."""
    max_tokens: Count = 112
    """Tokens per sampled answer."""
    stop: StopStrings = ()
    """Strings that end an answer of an evaluation, besides EOS."""
    checkpoint: CheckpointConfig = CheckpointConfig()
    """When checkpoints are written and how many are kept."""
    tensorboard: bool = True
    """Write metrics for TensorBoard."""
    trackers: Trackers = ()
    """Further trackers that metrics are sent to."""


class SFTRecipe(Supervised):
    """Supervised fine-tuning on a file."""

    stage: Literal["sft"] = "sft"
    """Kind of the recipe."""
    data: WorkedDataConfig
    """Rows with prompts and answers."""
    examine: bool = False
    """Evaluate on held-out problems before and after."""

    @property
    def reads_held_out(self) -> bool:
        return self.examine

    @model_validator(mode="after")
    def _rows_are_of_known_sources(self) -> Self:
        require_known_sources(self.data.problems, self.sets)
        for name in self.data.problems:
            generated = name in SOURCES and name not in self.sets
            if generated and not isinstance(SOURCES[name], WorkedSource):
                raise ValueError(f"data.problems: source {name!r} has no worked solutions")
        return self


class CollectConfig(Judged):
    """What is sampled from the teacher, and how many of its answers are kept."""

    problems: dict[str, Positive] = Field({"arithmetic": 1.0})
    """Weight per source of problems."""
    problem_seed: Seed = 0
    """Seed of the problems that are drawn."""
    questions: Count
    """Questions in total."""
    per_prompt: Count = 4
    """Answers per question."""
    keep: Count = 1
    """Most correct answers kept per question. Those with the longest thinking are kept."""
    rows: Whole = 0
    """Most answers kept in total; 0: no limit."""
    temperature: Temperature = 1.0
    """Temperature of sampling."""
    template: PromptTemplate = "r1_zero"
    """Prompt template. chat: the teacher's own; or a file ending in .jinja."""
    system: SystemMessage = ""
    """System message, as in `rollout.system`. r1_zero takes none."""
    max_prompt: Count = 256
    """Tokens of a prompt; longer ones are skipped. The template is included."""
    stop: StopStrings = ()
    """Strings that end an answer of the teacher, besides EOS. As in its `rollout.stop`."""
    at_once: Count = 128
    """Questions per round. Its verified answers are saved."""

    @model_validator(mode="after")
    def _system_is_used(self) -> Self:
        require_used(self.system, self.template)
        return self


class FilterConfig(Part):
    """Filters of samples, as measured by `data/filters.py`. 0: not applied."""

    min_words: Whole = 0
    """Least words of thinking."""
    consistency: Share = 0.9
    """Least share of words in the question's language. Only thinking is measured."""
    max_paragraph: Whole = 0
    """Most words per paragraph."""
    code_blocks: bool = True
    """Drop answers with a code block."""
    ngram: Count = 4
    """Words of the n-grams of `distinct`."""
    distinct: Share = 0.3
    """Least share of distinct n-grams."""
    max_tokens: Whole = 0
    """Most tokens per answer."""
    overlap: Whole = 10
    """Words shared with an evaluation text that drop a row.

    An n-gram of this many words is looked up in evaluation questions and solutions.
    """
    against: str = ""
    """JSONL file with further evaluation texts."""


class RewriteConfig(Part):
    """How a chain is rewritten: by a layout, and optionally by another model first."""

    layout: str = "<think>{thinking}</think><answer>{answer}</answer>"
    """Layout of a row. It contains <think>{thinking}</think> and, after it, {answer}."""
    rewriter: str = ""
    """OpenAI-compatible API of the rewriter. As http://host:8000/v1; "": none."""
    model: str = ""
    """Model of the rewriter's API."""
    seconds: Positive = 120.0
    """Seconds per answer, over all attempts."""
    workers: Count = 8
    """Concurrent requests."""

    @model_validator(mode="after")
    def _layout_is_complete(self) -> Self:
        from veriloop.verifiers.text.think_format import loosely_matches

        thinking, answer = self.layout.find("{thinking}"), self.layout.find("{answer}")
        row = self.layout.replace("{thinking}", "It is 4.").replace("{answer}", "4")
        if not 0 <= thinking < answer or not loosely_matches(row):
            raise ValueError(
                f"layout={self.layout!r} must contain <think>{{thinking}}</think> and, after it, "
                "{answer}: rows in another format are not kept"
            )
        if bool(self.rewriter) is not bool(self.model):
            raise ValueError("rewriter and model: set both or neither")
        return self


class ColdStartRecipe(Supervised):
    """SFT of the base model on long, readable chains of an R1-Zero checkpoint."""

    stage: Literal["cold_start"] = "cold_start"
    """Kind of the recipe."""
    teacher: str
    """Checkpoint that the chains are sampled from."""
    collect: CollectConfig
    """What is sampled from the teacher."""
    filters: FilterConfig = FilterConfig()
    """Filters of samples."""
    rewrite: RewriteConfig = RewriteConfig()
    """How chains are rewritten."""
    data: CollectedDataConfig = CollectedDataConfig()
    """Rows and tokens that the loss covers."""
    epochs: Count = 3
    """Passes over the data."""


class GeneralConfig(Part):
    """Rows without reasoning."""

    source: str = "general"
    """Rows without reasoning.

    "general" (generated), or a .jsonl or .parquet file in TRL's layout.
    """
    seed: Seed = 0
    """Seed of generated rows."""
    reasoning: NotNegative = 3.0
    """Reasoning rows per general row; 0: no general rows."""


class RejectionRecipe(Supervised):
    """SFT of the base model on a reasoning model's verified answers and on general rows."""

    stage: Literal["rejection_sft"] = "rejection_sft"
    """Kind of the recipe."""
    teacher: str
    """Checkpoint that the answers are sampled from."""
    collect: CollectConfig
    """What is sampled from the teacher."""
    filters: FilterConfig = FilterConfig()
    """Filters of samples."""
    general: GeneralConfig = GeneralConfig()
    """Rows without reasoning that are added."""
    data: CollectedDataConfig = CollectedDataConfig()
    """Rows and tokens that the loss covers."""


SupervisedRecipe = SFTRecipe | ColdStartRecipe | RejectionRecipe
