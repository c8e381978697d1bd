"""Published data sets in a recipe: where their rows are, how they are split and read."""

from dataclasses import replace
from difflib import get_close_matches
from typing import Annotated, Self

from pydantic import Field, model_validator

from data.hub.layout import Layout
from data.hub.readers import READERS
from data.hub.sets import SETS
from pipeline.part import Count, Part, Share

Whole = Annotated[int, Field(ge=0)]


class SetConfig(Part):
    """One source of questions. A set that `veriloop data show` lists needs no columns."""

    of: str = ""  # the known set whose columns it has; "": the one of its own name
    path: str = ""  # a file, or a folder as `datasets` reads it; "": the hub, or its cache
    repo: str = ""  # on the hub, where it is no known set
    config: str = ""  # configuration there
    train: str = ""  # split to learn from; "": the set's own
    test: str = ""  # split that is held out, or a file; "": the set's own
    held_out: Share = 0.0  # share held out by a hash of the question, where there is no such split
    rows: Whole = 0  # of the split to learn from, its first ones; 0: all
    only: dict[str, tuple[str | int | bool, ...]] = Field(default_factory=dict)  # column: values of
    # use, in every split; rows with others are left out and counted
    against: tuple[str, ...] = ()  # sets whose held-out questions no question may show
    overlap: Count = 10  # words of an n-gram that is too much of them

    question: tuple[str, ...] = ()  # paragraphs with {column} in them: columns of a set of your own
    answer: str = ""  # its column
    verifier: str = ""
    read: str = "text"  # how the answer is read: text, plain, number, hashes, boxed, ...
    language: str = "en"  # of the questions, by ISO 639-1
    gym: str = ""  # a task of reasoning-gym: generated, nothing of the above
    settings: dict[str, float | int | bool | str] = Field(default_factory=dict)  # of that task
    reference: dict[str, str] = Field(default_factory=dict)  # of several keys: their columns

    @model_validator(mode="after")
    def _split_once(self) -> Self:
        if self.held_out and self.test:
            raise ValueError(f"held_out={self.held_out} and test={self.test!r}: one of the two")
        if self.question and not (self.verifier and (self.answer or self.reference)):
            raise ValueError("question: needs a verifier, and the answer's column beside it")
        if self.read not in READERS:
            raise ValueError(f"read={self.read!r} is not one of {', '.join(READERS)}")
        if self.settings and not self.gym:
            raise ValueError(f"settings={self.settings} are read by a task of reasoning-gym alone")
        if self.gym and self.model_fields_set - {"gym", "settings"}:
            more = sorted(self.model_fields_set - {"gym", "settings"})
            raise ValueError(f"gym={self.gym!r} is generated, and reads no {', '.join(more)}")
        return self

    def layout(self, name: str) -> Layout | None:
        """The columns; None where those of a file have to tell, and of a generated task. Raises
        ValueError."""
        if self.gym:
            return None
        found = self._own() if self.question else self._known(name)
        if not self.only:
            return found
        if found is None:
            raise ValueError(
                f"only={self.only}: {self.path} is no known set; say of which it is, or give "
                "question, answer and verifier"
            )
        return replace(found, only={**found.only, **self.only})

    def _known(self, name: str) -> Layout | None:
        known = self.of or name
        if known in SETS:
            return SETS[known]
        if self.of or not self.path:
            close = get_close_matches(known, SETS, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ValueError(
                f"{known!r} is no known set.{hint} Known: {', '.join(SETS)}; any other needs "
                "question, answer and verifier"
            )
        return None

    def _own(self) -> Layout:
        from verifiers.registry import get

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
            reference=self.reference or {key: self.answer},
        )
