"""Examples of random ids for a small model to learn."""

from random import Random

import pytest

from veriloop.data.sft_ids import EncodedExample

VOCABULARY = 40


@pytest.fixture
def random_examples():
    """Factory of `count` examples of several lengths, some of them of two learned turns."""

    def build(count, *, seed=0, longest=14):
        random, found = Random(seed), []
        for number in range(count):
            length = random.randint(4, longest)
            learned = [i >= random.randint(2, 3) for i in range(length)]
            if number % 3 == 0:  # a turn between two others
                learned = [i in (1, length - 2, length - 1) for i in range(length)]
            ids = tuple(random.randrange(VOCABULARY) for _ in range(length))
            found.append(EncodedExample(ids=ids, learned=(False, *learned[1:-1], True)))
        return found

    return build
