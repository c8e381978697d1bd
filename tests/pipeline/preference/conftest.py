"""Examples of random ids that a small model can be taught."""

from random import Random

import pytest
import torch

from veriloop.data.preference_ids import EncodedAnswer
from veriloop.pipeline.model.policy import load_tokenizer
from veriloop.pipeline.model.scalar_head import load_classifier
from veriloop.pipeline.preference.examples import Example, Match, mismatched

VOCABULARY = 40


@pytest.fixture
def model(tiny_checkpoint):
    """A reward model on an untrained one."""
    start = tiny_checkpoint(tied=False)
    torch.manual_seed(0)
    return load_classifier(start, load_tokenizer(start))


@pytest.fixture
def answer():
    """Factory of random answers; `segments` divides one into nearly equal parts."""

    def build(random, *, prompt=None, segments=1):
        length = random.randint(segments, segments + 5)
        return EncodedAnswer(
            prompt=tuple(prompt or [random.randrange(1, VOCABULARY) for _ in range(3)]),
            completion=tuple(random.randrange(1, VOCABULARY) for _ in range(length)),
            segments=tuple(i * segments // length for i in range(length)),
        )

    return build


@pytest.fixture
def pairs(answer):
    """Factory of `count` pairs, their answers of `segments` segments, all of them matched."""

    def build(count, *, seed=0, segments=1):
        random, found = Random(seed), []
        for _ in range(count):
            prompt = [random.randrange(1, VOCABULARY) for _ in range(random.randint(2, 5))]
            both = tuple(answer(random, prompt=prompt, segments=segments) for _ in range(2))
            matches = tuple(
                Match(
                    chosen=k,
                    rejected=segments - 1 - k,
                    chosen_score=random.random(),
                    rejected_score=random.random(),
                )
                for k in range(segments)
            )
            found.append(Example(answers=both, gap=random.random(), matches=matches))
        return found

    return build


@pytest.fixture
def labelled_answers(answer):
    """Factory of KTO's examples."""

    def build(count, *, seed=0):
        random = Random(seed)
        answers = [answer(random) for _ in range(count)]
        return mismatched(answers, [random.random() < 0.5 for _ in answers])

    return build
