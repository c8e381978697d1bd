"""An evaluation samples what is missing, in turns, and nothing twice."""

import pytest

from data import arithmetic
from pipeline.answer_file import AnswerFile
from pipeline.policy import load_generation_config, load_tokenizer
from pipeline.sampling.sampler import Completion, Sampling
from pipeline.scribe import Scribe
from pipeline.set_sampling import fill

HOW = Sampling(per_prompt=5, temperature=0.6, top_p=0.95, max_tokens=8, seed=7)


class Killed(Exception):  # noqa: N818  as by a signal
    pass


class Engine:
    """Writes a number of its own into each answer; dies before answer group `dies_at`."""

    name, version = "counting", 0

    def __init__(self, tokenizer, dies_at=None):
        self.tokenizer, self.dies_at = tokenizer, dies_at
        self.turns, self.opened, self.written = [], 0, 0

    def open(self):
        self.opened += 1
        return self

    def sample(self, prompts, sampling, told=None):
        self.turns.append((len(prompts), sampling))
        groups = []
        for place in range(len(prompts)):
            if self.written == self.dies_at:
                raise Killed
            self.written += 1
            ids = self.tokenizer(str(self.written), add_special_tokens=False).input_ids
            one = Completion(ids=tuple(ids), logp=(0.0,) * len(ids), finish="length")
            groups.append([one] * sampling.per_prompt)
            told(place, groups[-1])
        return groups


@pytest.fixture
def world(tiny_checkpoint, tmp_path):
    """Function: fill the file of four problems by an engine; and the engine and what is held."""
    tokenizer = load_tokenizer(tiny_checkpoint())
    scribe = Scribe(tokenizer, load_generation_config(tiny_checkpoint()))
    problems = arithmetic.distinct("test", 0, 4)

    def run(*, sampling=HOW, at_once=8, dies_at=None, some=4):
        engine = Engine(tokenizer, dies_at)
        with AnswerFile(tmp_path / "answers.jsonl", {}) as file:
            try:
                fill(file, problems[:some], sampling, engine.open, scribe, at_once)
            except Killed:
                assert dies_at is not None
            held = [[one.response for one in file.held(p.id)] for p in problems]
        return engine, held

    return run


def test_samples_come_in_turns_that_fill_the_engine(world):
    engine, held = world()
    assert [(n, turn.per_prompt) for n, turn in engine.turns] == [(4, 2), (4, 2), (4, 1)]
    assert [len(some) for some in held] == [5] * 4
    assert held[0] == ["1", "1", "5", "5", "9"] and held[3][0] == "4"
    seeds = [turn.seed for _, turn in engine.turns]
    assert len(set(seeds)) == 3 and HOW.seed not in seeds
    for _, turn in engine.turns:
        assert (turn.temperature, turn.top_p, turn.max_tokens) == (0.6, 0.95, 8)


def test_the_same_seed_gives_the_same_turns(world, tmp_path):
    first = world()[0].turns
    (tmp_path / "answers.jsonl").unlink()
    assert world()[0].turns == first


def test_a_killed_evaluation_goes_on_where_it_was(world):
    _, before = world(dies_at=6)
    assert [len(some) for some in before] == [4, 4, 2, 2]
    engine, held = world()
    assert [(n, turn.per_prompt) for n, turn in engine.turns] == [(2, 2), (4, 1)]
    assert [some[: len(old)] for some, old in zip(held, before, strict=True)] == before
    assert [len(some) for some in held] == [5] * 4


def test_no_engine_is_opened_where_nothing_is_missing(world):
    world()
    engine, _ = world()
    assert engine.opened == 0


def test_more_samples_or_more_questions_take_up_what_is_there(world):
    world(some=2, at_once=100)
    engine, held = world(at_once=100)
    assert [(n, turn.per_prompt) for n, turn in engine.turns] == [(2, 5)]
    assert [len(some) for some in held] == [5] * 4


def test_a_turn_is_one_sample_of_each_where_the_engine_holds_fewer(world):
    engine, _ = world(at_once=1)
    assert [turn.per_prompt for _, turn in engine.turns] == [1] * 5
