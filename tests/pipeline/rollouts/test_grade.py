"""Rollouts to graded ones: rules by a pool, batches by judges here, and rewards by the turn."""

from dataclasses import replace

import pytest

from veriloop.data.problem import Problem
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.rollouts import grade as grading
from veriloop.pipeline.rollouts.grade import (
    Task,
    VerifierUse,
    grade,
    open_judges,
    score_of,
    verdicts_of,
    verifier_names,
)
from veriloop.sandbox.backends import AUTO
from veriloop.verifiers.verdict import Verdict

OWN = Problem(id="a/0", prompt="", verifier="number", reference={"language": "python"})
FAILED = Verdict(score=None, status="error")


class Pool:
    """Says yes to everything, and remembers what it was asked."""

    def __init__(self):
        self.asked = []

    def judge_all(self, tasks):
        self.asked += tasks
        return [Verdict(score=1.0) for _ in tasks]


@pytest.fixture
def rollouts(graded):
    one = graded(problem=OWN).rollout
    return [replace(one, response=text) for text in ("x", "y", "z")]


def total(rollout, verdicts):
    return sum(v.score for v in verdicts.values())


def test_a_reference_is_shown_to_its_own_verifier_alone(rollouts):
    pool = Pool()
    grade(rollouts[:1], {"accuracy": None, "language": "language"}, pool, total)
    (own, _), (other, _) = pool.asked
    assert own == OWN
    assert (other.verifier, other.reference, other.id) == ("language", {}, OWN.id)


@pytest.mark.parametrize("name", ["length", "overlong"])
def test_a_length_in_tokens_is_counted_for_the_verifier(rollouts, name):
    pool, responses = Pool(), [replace(r, response_ids=(1,) * n) for n, r in enumerate(rollouts, 3)]
    tokens = VerifierUse(name=name, reference={name: {"at_most": 9, "unit": "tokens"}}, sources=())
    words = VerifierUse(name=name, reference={name: {"at_most": 9}}, sources=())
    grade(responses, {"tokens": tokens, "words": words}, pool, total)
    counts = [
        (p.facts.get("response_tokens"), p.reference == tokens.reference) for p, _ in pool.asked
    ]
    assert counts == [(3, True), (None, False), (4, True), (None, False), (5, True), (None, False)]


def test_equal_texts_of_other_lengths_in_tokens_have_their_own_verdicts(rollouts):
    class Lengths:
        def judge_all(self, tasks):
            return [Verdict(score=p.facts["response_tokens"] / 10) for p, _ in tasks]

    use = VerifierUse(name="length", reference={"length": {"unit": "tokens"}}, sources=())
    answers = [replace(rollouts[0], response_ids=(1,) * n) for n in (3, 9, 3)]
    assert [g.reward for g in grade(answers, {"length": use}, Lengths(), total)] == [0.3, 0.9, 0.3]


def test_a_batch_judge_sees_every_rollout_and_may_leave_some_out(rollouts):
    seen = []

    def judge(given):
        seen.append([r.response for r in given])
        return [Verdict(score=0.5), None, FAILED]

    done = grade(rollouts, {"accuracy": None}, Pool(), total, {"preference": judge})
    assert seen == [["x", "y", "z"]]
    assert [list(g.verdicts) for g in done] == [
        ["accuracy", "preference"], ["accuracy"], ["accuracy", "preference"],
    ]  # fmt: skip
    assert [g.reward for g in done] == [1.5, 1.0, None]  # an error is no reward, not 0


def test_equal_responses_of_a_group_are_judged_once_and_others_apart(rollouts):
    class Counting(Pool):
        def judge_all(self, tasks):
            self.asked += tasks
            return [Verdict(score=i / 10) for i, _ in enumerate(tasks)]

    first, second, _ = rollouts
    given = [first, second, first, replace(first, group="other")]
    pool = Counting()
    done = grade(given, {"accuracy": None, "format": "think_format"}, pool, total)
    assert [text for _, text in pool.asked] == ["x", "x", "y", "y", "x", "x"]
    scores = [[v.score for v in g.verdicts.values()] for g in done]
    assert scores == [[0.0, 0.1], [0.2, 0.3], [0.0, 0.1], [0.4, 0.5]]
    assert [g.rollout for g in done] == given


def test_names_are_of_every_kind_of_problem():
    other = replace(OWN, verifier="code_tests")
    verifiers = {"accuracy": None, "format": "think_format"}
    assert verifier_names(verifiers, [OWN, other, OWN]) == ["code_tests", "number", "think_format"]
    assert verifier_names({"format": "think_format"}, [OWN]) == ["think_format"]


@pytest.mark.parametrize(("turn", "late"), [(0, False), (2, False), (3, True), (9, True)])
def test_a_late_reward_takes_over_in_its_turn(turn, late):
    task = Task(
        problem=lambda n: OWN, held_out=(), verifiers={}, reward=total,
        late_reward=max, late_from=3,
    )  # fmt: skip
    assert task.reward_in(turn) is (max if late else total)
    assert replace(task, late_reward=None).reward_in(turn) is total
    at_once = replace(task, late_from=Task.__dataclass_fields__["late_from"].default)
    assert at_once.reward_in(0) is max


def test_a_verifier_with_its_own_reference_judges_the_problems_of_its_sources(rollouts):
    other = replace(
        rollouts[0], group="other", problem=replace(OWN, id="b/0", facts={"source": "b"})
    )
    mine = replace(rollouts[0], problem=replace(OWN, id="c/0", facts={"source": "a"}))
    everywhere = VerifierUse(name="language")
    here = VerifierUse(name="words", reference={"least": 3}, sources=("a",))
    pool = Pool()
    done = grade([mine, other], {"every": everywhere, "some": here}, pool, total)
    asked = [(p.id, p.verifier, dict(p.reference)) for p, _ in pool.asked]
    assert asked == [
        ("c/0", "language", {}), ("c/0", "words", {"least": 3}), ("b/0", "language", {}),
    ]  # fmt: skip
    assert [list(g.verdicts) for g in done] == [["every", "some"], ["every"]]
    assert verifier_names({"some": here, "format": "think_format"}, []) == ["think_format", "words"]


def test_a_score_is_that_of_the_component():
    assert (
        score_of({"accuracy": Verdict(score=0.25), "format": Verdict(score=1.0)}, "accuracy")
        == 0.25
    )


class Opened:
    """A pool or a client that remembers how it was opened, and refuses the verifier `unknown`."""

    def __init__(self, *arguments, **options):
        self.arguments, self.options = arguments, options
        self.warmed, self.closed = None, False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.closed = True

    def warm(self, names):
        if "unknown" in names:
            raise KeyError("no verifier 'unknown'")
        self.warmed = names

    begin_to_warm = warm


def test_workers_are_opened_as_told_and_stay_open(monkeypatch):
    monkeypatch.setattr(grading, "VerifierPool", Opened)
    pool = open_judges(["number"])
    assert pool.arguments == (1, 5.0) and pool.options == {"sandbox": AUTO, "facts": {}}
    assert pool.warmed == ["number"] and not pool.closed
    told = open_judges(["number"], workers=3, limit_s=2.0, sandbox="docker", facts={"a": "b"})
    assert told.arguments == (3, 2.0)
    assert told.options == {"sandbox": "docker", "facts": {"a": "b"}}


def test_a_service_is_asked_for_its_verifiers_and_left_where_it_lacks_one(monkeypatch):
    opened = []

    class Client(Opened):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            opened.append(self)

    monkeypatch.setattr(grading, "ServicePool", Client)
    pool = open_judges(["number"], "http://x", facts={"a": "b"})
    assert (pool.arguments, pool.options) == (("http://x",), {"facts": {"a": "b"}})
    assert pool.warmed == ["number"] and not pool.closed
    with pytest.raises(RecipeError, match="verifier_service http://x: no verifier 'unknown'"):
        open_judges(["unknown"], "http://x")
    with pytest.raises(RecipeError, match="verifier_service http://x http://y: no verifier"):
        open_judges(["unknown"], ("http://x", "http://y"))
    assert opened[-1].closed


def test_accuracy_is_named_after_the_verifier_of_its_problem(graded):
    verdicts = {"accuracy": Verdict(score=1.0), "format": FAILED}
    assert verdicts_of([graded(problem=OWN, verdicts=verdicts)]) == [
        {"accuracy (number)": Verdict(score=1.0), "format": FAILED}
    ]
