"""Data sets in a recipe: where their rows come from, how they are split and parsed."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from veriloop.data.gym import PREFIX
from veriloop.data.hub.files import held_out_split
from veriloop.data.hub.layout import Layout, columns_named
from veriloop.data.hub.reference_readers import READERS
from veriloop.data.hub.sets import SETS
from veriloop.data.sources import SOURCES
from veriloop.pipeline.config.fields import Count, Part, Share, Whole
from veriloop.pipeline.errors import did_you_mean

# Keys of a mapping of columns, which begins with `question`.
MAPPING = ("answer", "verifier", "read", "language", "reference", "fixed", "facts")


class SetConfig(Part):
    """One source of questions. A set listed by `veriloop data show` needs no columns."""

    of: str = ""
    """Known set with the same columns; "": the set of this name."""
    path: str = ""
    """File, or folder for `datasets`; "": the hub or its cache."""
    repo: str = ""
    """Repository on the hub, for a set that is not known."""
    config: str = ""
    """Configuration of the repository."""
    train: str = ""
    """Training split; "": the set's default."""
    test: str = ""
    """Held-out split, or a file; "": the set's default."""
    held_out: Share = 0.0
    """Share held out by a hash of the question, without a test split."""
    rows: Whole = 0
    """First rows of the training split; 0: all."""
    only: dict[str, tuple[str | int | bool, ...]] = Field(default_factory=dict)
    """Column -> accepted values, in every split. Other rows are dropped and counted."""
    against: tuple[str, ...] = ()
    """Sets whose held-out questions must not overlap with these."""
    overlap: Count = 10
    """Words of a shared n-gram that count as overlap."""

    question: tuple[str, ...] = ()
    """Paragraphs of the question with {column} placeholders."""
    answer: str = ""
    """Column of the reference answer."""
    verifier: str = ""
    """Verifier of the answers, by name."""
    read: str = "text"
    """How the answer is parsed: text, plain, number, hashes, boxed, or as tests of a program."""
    language: str = "en"
    """Language of the questions, ISO 639-1."""
    gym: str = ""
    """A reasoning-gym task, generated. Excludes every other setting except `settings`."""
    settings: dict[str, float | int | bool | str] = Field(default_factory=dict)
    """Settings of the reasoning-gym task."""
    reference: dict[str, str] = Field(default_factory=dict)
    """Key of the reference -> column, for several keys."""
    fixed: dict[str, Any] = Field(default_factory=dict)
    """Parts of the reference that are the same in every row.

    For prompts without an answer column, as in `verifier: length` with a bound.
    """
    facts: dict[str, str] = Field(default_factory=dict)
    """Fact of a problem -> column.

    `language` is the question's. Where `kind` is harm, a reward model judges the whole response.
    """

    @field_validator("question", mode="before")
    @classmethod
    def _one_paragraph(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _asks_columns(self) -> Self:
        if self.question and not any(map(columns_named, self.question)):
            meant = "{" + self.question[0].strip().split(" ")[0].strip("{}") + "}"
            raise ValueError(
                f"question={list(self.question)} names no column in braces, so all questions would "
                f"be the same text. Did you mean {meant!r}?"
            )
        return self

    @model_validator(mode="after")
    def _split_once(self) -> Self:
        if self.held_out and self.test:
            raise ValueError(f"held_out={self.held_out} and test={self.test!r}: set only one")
        known = self.answer or self.reference or self.fixed
        if self.question and not (self.verifier and known):
            raise ValueError(
                "question needs a verifier, and the column of the answer; for prompts without an "
                "answer a `fixed` reference, as in verifier: length, fixed: {length: {at_least: 1}}"
            )
        if self.path and self.repo:
            raise ValueError(f"path={self.path!r} and repo={self.repo!r}: set only one")
        if self.answer and self.reference:
            raise ValueError(f"answer={self.answer!r} and reference={self.reference}: set only one")
        if self.read not in READERS:
            hint = did_you_mean(self.read, READERS)
            raise ValueError(f"read={self.read!r} is not one of {', '.join(READERS)}.{hint}")
        if "source" in self.facts:
            raise ValueError(f"facts={self.facts}: the fact 'source' is the name of the set")
        if self.settings and not self.gym:
            raise ValueError(f"settings={self.settings} are read only by a reasoning-gym task")
        defaults = SetConfig.model_construct()
        others = SetConfig.model_fields.keys() - {"gym", "settings"}
        more = sorted(name for name in others if getattr(self, name) != getattr(defaults, name))
        if self.gym and more:
            raise ValueError(f"gym={self.gym!r} is generated and does not read {', '.join(more)}")
        return self

    @model_validator(mode="after")
    def _mapping_is_read(self) -> Self:
        if self.question:
            if self.of:
                raise ValueError(f"of={self.of!r} and question={list(self.question)}: set only one")
            return self
        plain = SetConfig.model_construct()
        for name in MAPPING:
            if (value := getattr(self, name)) != getattr(plain, name):
                raise ValueError(f"{name}={value!r} is read only with `question`")
        return self

    def layout(self, name: str) -> Layout | None:
        """The columns; None for a generated task, and for a file whose columns decide the layout.

        Raises ValueError for an unknown set.
        """
        if self.gym:
            return None
        layout = self._own() if self.question else self._known(name)
        if layout is not None and self.repo:  # its configurations have names of their own
            layout = replace(layout, repo=self.repo, config=self.config, script=False)
        if not self.only:
            return layout
        if layout is None:
            raise ValueError(
                f"only={self.only}: {self.path} is no known set; set `of`, or question, answer and "
                "verifier"
            )
        return replace(layout, only={**layout.only, **self.only})

    def holds_out(self, name: str) -> bool:
        """Whether a split or a share of the questions is held out, as far as the settings say."""
        layout = self.layout(name)
        if layout is None or self.held_out:  # generated, or the file's columns decide
            return True
        return bool(held_out_split(layout, self.path, self.test)[1])

    def _known(self, name: str) -> Layout | None:
        known = self.of or name
        if known in SETS:
            return SETS[known]
        if self.of or not self.path:
            raise ValueError(
                f"{known!r} is no known set.{did_you_mean(known, SETS)} Known: {', '.join(SETS)}; "
                "any other needs question, answer and verifier"
            )
        return None

    def _own(self) -> Layout:
        from veriloop.verifiers.registry import get

        try:
            key = next(iter(get(self.verifier).example.reference), "")
        except KeyError as unknown:
            raise ValueError(str(unknown.args[0])) from unknown
        return Layout(
            repo=self.repo,
            config=self.config,
            train=self.train or "train",
            test=self.test,
            ask=self.question,
            verifier=self.verifier,
            read=self.read,
            language=self.language,
            reference=self.reference or ({key: self.answer} if self.answer else {}),
            fixed=self.fixed,
            facts=self.facts,
        )


def replaced(flags: Mapping[str, Any]) -> dict[str, str]:
    """What flags into `sets` replace, by dotted key: a `path` the `repo` of its set and the
    reverse, unless the flags name both."""
    other = {"path": "repo", "repo": "path"}
    keys = [key.rpartition(".") for key, value in flags.items() if value]
    pairs = [(head, other[last]) for head, _, last in keys if last in other]
    return {
        f"{head}.{last}": ""
        for head, last in pairs
        if head.startswith("sets.") and head.count(".") == 1 and f"{head}.{last}" not in flags
    }


def gym_task(name: str, sets: Mapping[str, SetConfig]) -> str | None:
    """The reasoning-gym task behind a source; None for any other source."""
    if name in sets:
        return sets[name].gym or None
    return name.removeprefix(PREFIX) if name.startswith(PREFIX) else None


def is_generated(name: str, sets: Mapping[str, SetConfig]) -> bool:
    """Whether a source is generated, or a reasoning-gym task, instead of a published set."""
    return gym_task(name, sets) is not None or (name in SOURCES and name not in sets)
