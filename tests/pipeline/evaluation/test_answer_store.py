"""What was sampled stays, whatever kills the writer."""

import errno
import fcntl
import json
from dataclasses import replace

import pytest

from veriloop.data import arithmetic
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.evaluation.answer_store import Answer, AnswerFile, sample_missing
from veriloop.pipeline.model.policy import load_generation_config, load_tokenizer
from veriloop.pipeline.rollouts.generate import RolloutGenerator
from veriloop.pipeline.sampling.sampler import Completion, Sampling

FACTS = {"set": "gsm8k", "seed": 1}


def answer(text):
    return Answer(response=text, tokens=len(text), finish="stop")


@pytest.fixture
def path(tmp_path):
    """A file with two answers to "a" and one to "b"."""
    path = tmp_path / "deep/answers.jsonl"
    with AnswerFile(path, FACTS) as file:
        file.add("a", [answer("one"), answer("zwei\ud83d\n")])
        file.add("b", [answer("three")])
    return path


def test_answers_are_read_again_in_their_order(path):
    with AnswerFile(path, FACTS) as file:
        assert [one.response for one in file.answers_to("a")] == ["one", "zwei\ud83d\n"]
        assert file.answers_to("b") == [answer("three")] and not file.answers_to("c")
        file.add("a", [answer("more")])
        assert len(file.answers_to("a")) == 3
    with AnswerFile(path, FACTS) as file:
        assert [one.response for one in file.answers_to("a")][2] == "more"


def test_every_answer_is_on_the_disk_before_the_file_is_closed(tmp_path):
    path = tmp_path / "answers.jsonl"
    with AnswerFile(path, FACTS) as file:
        file.add("a", [answer("one")])
        lines = path.read_text().splitlines()
    assert json.loads(lines[0]) == FACTS
    assert json.loads(lines[1])["answers"] == [{"response": "one", "tokens": 3, "finish": "stop"}]


def test_a_line_cut_at_any_byte_is_lost_alone(path):
    whole = path.read_bytes()
    last = whole[:-1].rfind(b"\n") + 1
    for cut in (last, last + 1, (last + len(whole)) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with AnswerFile(path, FACTS) as file:
            assert len(file.answers_to("a")) == 2 and not file.answers_to("b")
            file.add("b", [answer("again")])
        with AnswerFile(path, FACTS) as file:
            assert file.answers_to("b") == [answer("again")]


def test_a_file_whose_first_line_was_never_finished_begins_anew(path):
    path.write_bytes(path.read_bytes()[:5])
    with AnswerFile(path, FACTS) as file:
        assert not file.answers_to("a")
        file.add("a", [answer("one")])
    with AnswerFile(path, FACTS) as file:
        assert file.answers_to("a") == [answer("one")]


def test_answers_sampled_otherwise_are_refused(path):
    with pytest.raises(RecipeError, match=r"with other settings: .*'seed': 1"):
        AnswerFile(path, FACTS | {"seed": 2})


@pytest.mark.parametrize("line", ["[1]", '{"question": "a"}', "no json", '{"question": 1'])
def test_a_file_of_anything_else_is_refused_and_left_as_it_is(path, line):
    path.write_text(json.dumps(FACTS) + f"\n{line}\n")
    with pytest.raises(RecipeError, match="is no file of sampled answers"):
        AnswerFile(path, FACTS)
    assert line in path.read_text()


def test_a_second_writer_is_refused_while_the_first_is_there(path):
    with AnswerFile(path, FACTS), pytest.raises(RecipeError, match="another evaluation"):
        AnswerFile(path, FACTS)
    AnswerFile(path, FACTS).__exit__()


def test_a_file_system_without_locks_is_reported_and_the_answers_are_stored(
    tmp_path, monkeypatch, capsys
):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with AnswerFile(tmp_path / "a.jsonl", FACTS) as file:
        file.add("a", [answer("one")])
    warned = capsys.readouterr().err
    assert f"{tmp_path}/a.jsonl cannot be locked" in warned and "No locks available" in warned
    with AnswerFile(tmp_path / "a.jsonl", FACTS) as file:
        assert file.answers_to("a") == [answer("one")]


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
    generator = RolloutGenerator(tokenizer, load_generation_config(tiny_checkpoint()))
    problems = arithmetic.distinct("test", 0, 4)

    def run(*, sampling=HOW, at_once=8, dies_at=None, some=4):
        engine = Engine(tokenizer, dies_at)
        with AnswerFile(tmp_path / "answers.jsonl", {}) as file:
            try:
                sample_missing(file, problems[:some], sampling, engine.open, generator, at_once)
            except Killed:
                assert dies_at is not None
            held = [[one.response for one in file.answers_to(p.id)] for p in problems]
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


def test_no_question_meets_a_seed_twice_whichever_are_asked_together(world):
    runs = [(4, 2), (4, 4), (2, 6), (4, 6), (1, 8)]
    seeds = []  # of the turns that asked the first question
    for some, samples in runs:
        before = len(seeds)
        engine, held = world(sampling=replace(HOW, per_prompt=samples), some=some, at_once=1)
        seeds += [turn.seed for count, turn in engine.turns if count == some]
        assert len(held[0]) == max(samples, before)
    assert len(seeds) == len(set(seeds)) == 8


def test_the_same_seed_gives_the_same_turns(world, tmp_path):
    first = world()[0].turns
    (tmp_path / "answers.jsonl").unlink()
    assert world()[0].turns == first


def test_a_killed_evaluation_continues_where_it_was(world):
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
