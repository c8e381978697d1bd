"""Evaluation against a sampler that answers as told."""

import json
from dataclasses import replace

import pytest

from veriloop.data import arithmetic
from veriloop.data.problem import Problem
from veriloop.pipeline.errors import StageError
from veriloop.pipeline.evaluation.evaluate import MEASURED, evaluate, passes
from veriloop.pipeline.model.policy import load_generation_config, load_tokenizer
from veriloop.pipeline.rollouts.generate import RolloutGenerator
from veriloop.pipeline.rollouts.grade import VerifierFailuresError
from veriloop.pipeline.sampling.sampler import Completion, Sampling
from veriloop.verifiers.pool import VerifierPool
from veriloop.verifiers.verdict import Verdict

VERIFIERS = {"accuracy": None, "format": "think_format"}
RIGHT, WRONG, BARE = "right", "wrong", "bare"


class Told:
    """Answers the n-th prompt with `answers[n]`, and greedily with its first one."""

    name, version, dtype = "told", 0, "float32"

    def __init__(self, tokenizer, problems, answers, cut=()):
        self.tokenizer, self.problems, self.answers, self.cut = tokenizer, problems, answers, cut
        self.asked = []

    def sample(self, prompts, sampling, told=None):
        del told
        self.asked.append(sampling)
        return [
            [self.completion(n, kind) for kind in self.answers[n][: sampling.per_prompt]]
            for n in range(len(prompts))
        ]

    def completion(self, n, kind):
        value = int(self.problems[n].reference["value"]) + (kind == WRONG)
        text = f"<think></think><answer>{value}</answer>" if kind != BARE else f"It is {value}."
        ids = self.tokenizer(text, add_special_tokens=False).input_ids
        if n not in self.cut:
            ids.append(self.tokenizer.eos_token_id)
        finish = "length" if n in self.cut else "stop"
        return Completion(ids=tuple(ids), logp=(0.0,) * len(ids), finish=finish)


@pytest.fixture(scope="module")
def pool():
    with VerifierPool() as pool:
        yield pool


@pytest.fixture
def ask(tiny_checkpoint, pool):
    tokenizer = load_tokenizer(tiny_checkpoint())
    scribe = RolloutGenerator(tokenizer, load_generation_config(tiny_checkpoint()))

    def run(answers, *, cut=(), **named):
        problems = arithmetic.distinct("test", 0, len(answers))
        sampler = Told(tokenizer, problems, answers, cut)
        how = Sampling(per_prompt=len(answers[0]), temperature=0.7, max_tokens=64, seed=1)
        named = {"error_share": 0.5} | named
        result = evaluate(sampler, scribe, problems, VERIFIERS, pool, how, **named)
        return result, sampler

    return run


@pytest.mark.slow
def test_every_estimate_by_hand(ask):
    answers = [
        [RIGHT, WRONG, WRONG, BARE],  # pass@1 1/4, pass@4 1, majority wrong, format 3/4
        [RIGHT, RIGHT, WRONG, RIGHT],  # 3/4, 1, right, 1
        [WRONG, WRONG, WRONG, BARE],  # 0, 0, wrong, 3/4
        [RIGHT, RIGHT, WRONG, WRONG],  # 1/2, 1, a tie, 1
    ]
    result, sampler = ask(answers)
    values = {name: e.value for name, e in result.estimates.items()}
    assert values == {
        "pass@1": 0.375,
        "pass@4": 0.75,
        "maj@4": 0.375,
        "format": 0.875,
        "greedy": 0.75,
    }
    assert (result.problems, result.samples, result.failed, result.truncated) == (4, 4, 0, 0.0)
    first, greedy = sampler.asked
    assert (first.temperature, greedy.temperature, greedy.per_prompt) == (0.7, 0.0, 1)
    for estimate in result.estimates.values():
        assert estimate.low < estimate.value < estimate.high and estimate.n == 4


def test_truncation_and_length_are_measured_on_the_samples(ask):
    result, sampler = ask([[RIGHT], [BARE]], cut=(1,), greedy=False)
    assert result.truncated == 0.5 and len(sampler.asked) == 1
    lengths = [len(sampler.completion(n, kind).ids) for n, kind in ((0, RIGHT), (1, BARE))]
    assert result.mean_length == sum(lengths) / 2
    assert set(result.estimates) == {"pass@1", "format"}


def test_the_flat_form_has_every_value_and_its_interval(ask):
    result, _ = ask([[RIGHT, WRONG]])
    flat = result.flat()
    assert flat["pass@1"] == 0.5 and flat["pass@1 95%"][0] < 0.5 < flat["pass@1 95%"][1]
    assert flat["temperature"] == 0.7 and "estimates" not in flat
    assert flat["by_problem"]["scores"] == {"pass@1": [0.5], "format": [1.0], "greedy": [1.0]}


def test_samples_that_no_verifier_could_judge_count_nowhere(ask, pool, monkeypatch):
    judge_all = pool.judge_all

    def failing(tasks):
        broken = Verdict(score=None, status="error", detail="worker died")
        verdicts = judge_all(tasks)
        return [broken if i in (0, 1) else v for i, v in enumerate(verdicts)]

    monkeypatch.setattr(pool, "judge_all", failing)
    result, _ = ask([[WRONG, RIGHT], [WRONG, RIGHT]], greedy=False)
    assert result.failed == 1
    assert result.estimates["pass@1"].value == 0.75  # 1/1 of the first, 1/2 of the second
    pass_2, maj_2 = (result.estimates[name] for name in ("pass@2", "maj@2"))
    assert (pass_2.value, maj_2.value) == (1.0, 0.5)  # the second alone has two judged samples
    assert pass_2.n == maj_2.n == 1


def test_metrics_at_k_are_left_out_where_no_problem_has_k_judged_samples(by_source):
    result, _ = by_source(("sums", ("right", "broken")), ("sums", ("broken", "no")))
    assert result.estimates["pass@1"].value == 0.5 and result.failed == 3
    assert not {"pass@2", "maj@2"} & set(result.estimates)


def failing(pool, monkeypatch, broken):
    """Make the verdicts on those of the pool's tasks fail, by call."""
    judge_all, calls = pool.judge_all, []

    def judged(tasks):
        calls.append(tasks)
        failed = Verdict(score=None, status="error", detail="the judge is unreachable")
        verdicts = judge_all(tasks)
        return [failed if broken(len(calls), i) else v for i, v in enumerate(verdicts)]

    monkeypatch.setattr(pool, "judge_all", judged)


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (lambda call, i: call == 1 and i < 10, r"evaluation: verifiers failed on 5 of 9 answers"),
        (lambda call, i: call == 2 and i < 10, r"greedy answers: verifiers failed on 5 of 9"),
    ],
    ids=["samples", "greedy"],
)
def test_too_many_failures_end_an_evaluation_after_its_samples_were_kept(
    ask, pool, monkeypatch, broken, told
):
    failing(pool, monkeypatch, broken)
    kept = []
    with pytest.raises(VerifierFailuresError, match=told) as failure:
        ask([[RIGHT]] * 9, keep=kept.extend)
    assert "verifier_error_share=0.5" in str(failure.value) and len(kept) == 9
    assert "5 x accuracy (number): the judge is unreachable" in str(failure.value)
    failing(pool, monkeypatch, broken)
    result, _ = ask([[RIGHT]] * 9, error_share=0.6)
    assert result.failed == 5


def test_greedy_answers_that_no_verifier_could_judge_are_not_wrong(ask, pool, monkeypatch):
    failing(pool, monkeypatch, lambda call, i: call == 2 and i == 0)
    result, _ = ask([[RIGHT], [RIGHT], [WRONG]])
    assert (result.estimates["greedy"].value, result.estimates["greedy"].n) == (0.5, 2)
    assert result.failed == 1
    failing(pool, monkeypatch, lambda call, i: call == 2)
    with pytest.raises(
        StageError, match=r"every greedy answer: 1 x accuracy \(number\): .*unreachable"
    ):
        ask([[RIGHT]])


def test_an_answer_that_is_partly_right_is_not_right(ask, pool, monkeypatch):
    def halved(tasks):
        return [Verdict(score=0.5, status="graded") for _ in tasks]

    monkeypatch.setattr(pool, "judge_all", halved)
    result, _ = ask([[RIGHT, RIGHT]], greedy=False)
    assert result.estimates["pass@1"].value == result.estimates["pass@2"].value == 0.0


def test_spellings_of_the_right_answer_vote_together(ask, pool, monkeypatch):
    told = [(1.0, r"\frac{1}{2}"), (1.0, "0.5"), (0.0, "3"), (0.0, "3")]

    def spelled(tasks):
        kinds = iter(told)
        return [
            Verdict(score=1.0) if problem.verifier == "think_format" else
            Verdict(**dict(zip(("score", "answer"), next(kinds), strict=True)))
            for problem, _ in tasks
        ]  # fmt: skip

    monkeypatch.setattr(pool, "judge_all", spelled)
    monkeypatch.setattr(Told, "completion", distinct_completion)
    result, _ = ask([[0, 1, 2, 3]], greedy=False)
    assert result.estimates["maj@4"].value == 0.5


def distinct_completion(self, n, kind):
    del n
    ids = self.tokenizer(str(kind), add_special_tokens=False).input_ids
    return Completion(ids=tuple(ids), logp=(0.0,) * len(ids), finish="stop")


def test_problems_of_two_sources_with_the_same_id_have_their_own_verdicts(
    tiny_checkpoint, pool, monkeypatch
):
    tokenizer = load_tokenizer(tiny_checkpoint())
    scribe = RolloutGenerator(tokenizer, load_generation_config(tiny_checkpoint()))
    problems = [
        Problem(id="q1", prompt="2+2?", verifier="number", reference={"value": value},
                facts={"source": value})
        for value in ("4", "5")
    ]  # fmt: skip
    sampler = Told(tokenizer, problems, [["<answer>4</answer>"]] * 2)
    monkeypatch.setattr(Told, "completion", distinct_completion)
    how = Sampling(per_prompt=1, temperature=0.7, max_tokens=64, seed=1)
    result = evaluate(
        sampler, scribe, problems, VERIFIERS, pool, how, error_share=0.5, greedy=False
    )
    assert result.by_problem["scores"]["pass@1"] == [1.0, 0.0]


class Judges:
    """Scores by what the response says, in the order of the components."""

    def judge_all(self, tasks):
        found = []
        for problem, response in tasks:
            score = {"number": "right" in response, "language": 0.5}.get(problem.verifier, True)
            broken = "broken" in response
            found.append(
                Verdict(
                    score=None if broken else float(score), status="error" if broken else "graded"
                )
            )
        return found


@pytest.fixture
def by_source(graded):
    """Function: the evaluation of (source, what its samples say), and what was asked greedily."""

    def run(*told, keep=None):
        problems = [
            Problem(id=f"{source}/test/{i}", prompt=str(i), verifier="number", reference={})
            for i, (source, _) in enumerate(told)
        ]
        greedy = []

        class RolloutGenerator:
            def rollouts(self, sampler, groups, sampling, on_group):
                if sampling.temperature == 0:
                    greedy.extend(problem.id for _, problem in groups)
                texts = {p.id: said for p, (_, said) in zip(problems, told, strict=True)}
                return [
                    replace(graded(problem=problem, group=group).rollout, response=text)
                    for group, problem in groups
                    for text in texts[problem.id][: sampling.per_prompt]
                ]

        how = Sampling(per_prompt=2, temperature=1.0, max_tokens=8, seed=1)
        result = evaluate(
            None, RolloutGenerator(), problems, MEASURED, Judges(), how, error_share=0.5, keep=keep
        )
        return result, greedy

    return run


def test_sources_are_distinguished_and_general_prompts_are_no_part_of_pass_at_1(by_source):
    result, greedy = by_source(
        ("sums", ("right", "right")),
        ("programs", ("right", "no")),
        ("general", ("right", "no")),
        ("sums", ("no", "no")),
        ("general", ("no", "no")),
    )
    values = {name: e.value for name, e in result.estimates.items()}
    assert values == {  # without maj@2: right ones name no answer to vote on
        "pass@1": 0.5,  # of 1, 1/2 and 0
        "pass@2": pytest.approx(2 / 3),
        "pass@1/sums": 0.5,
        "pass@1/programs": 0.5,
        "general": 0.25,
        "format": 1.0,
        "language": 0.5,
        "greedy": pytest.approx(2 / 3),
        "greedy/sums": 0.5,
        "greedy/programs": 1.0,
    }
    assert result.estimates["pass@1"].n == 3 and result.estimates["general"].n == 2
    assert result.estimates["language"].n == 5
    assert greedy == ["sums/test/0", "programs/test/1", "sums/test/3"]
    scores = result.by_problem["scores"]
    assert scores["pass@1"] == [1, 0, 0.5] and scores["pass@1/sums"] == [1, 0]
    assert scores["general"] == [0.5, 0] and scores["greedy/programs"] == [1]


def test_a_problem_that_nobody_could_judge_keeps_its_place(by_source):
    result, _ = by_source(
        ("sums", ("broken", "broken")), ("sums", ("right", "broken")), ("sums", ("no", "no"))
    )
    scores = result.by_problem["scores"]
    assert scores["pass@1"] == [None, 1, 0] and scores["format"] == [None, 1, 1]
    assert scores["greedy"] == [None, 1, 0]
    assert result.estimates["pass@1"].value == 0.5 and result.estimates["pass@1"].n == 2


def test_general_prompts_alone_have_no_pass_at_1(by_source):
    result, greedy = by_source(("general", ("right", "right")))
    assert set(result.estimates) == {"general", "format", "language"} and greedy == []


def test_a_source_that_nobody_could_judge_is_a_failure_of_the_stage(by_source):
    with pytest.raises(
        StageError, match=r"failed on every sample of programs: 3 x accuracy \(number\): "
    ):
        by_source(("sums", ("right", "broken")), ("programs", ("broken", "broken")))


def test_two_samples_of_problems_spread_over_all_are_kept(ask, monkeypatch):
    monkeypatch.setattr("veriloop.pipeline.evaluation.evaluate.KEPT_PROBLEMS", 3)
    kept = []
    ask([[RIGHT, WRONG, RIGHT]] * 7, keep=kept.extend)
    asked = [problem.id for problem in arithmetic.distinct("test", 0, 7)]
    assert [g.rollout.problem.id for g in kept] == [name for name in asked[::3] for _ in range(2)]
    assert [g.reward for g in kept] == [1.0, 0.0] * 3


def test_kept_samples_are_of_every_source_also_where_they_take_turns(by_source, monkeypatch):
    monkeypatch.setattr("veriloop.pipeline.evaluation.evaluate.KEPT_PROBLEMS", 4)
    kept = []
    by_source(*[("sums", ("right", "no")), ("programs", ("no", "no"))] * 4, keep=kept.extend)
    names = [g.rollout.problem.id.partition("/")[0] for g in kept]
    assert names == ["programs"] * 4 + ["sums"] * 4


@pytest.mark.parametrize("greedy", [True, False])
def test_every_problem_of_every_pass_is_counted_as_progress(ask, greedy):
    counted = []
    ask([[RIGHT, WRONG]] * 3, greedy=greedy, on_problem=lambda: counted.append(1))
    assert len(counted) == passes(arithmetic.distinct("test", 0, 3), greedy=greedy)
    assert len(counted) == (6 if greedy else 3)
    if greedy:
        assert passes(arithmetic.distinct("test", 0, 3)) == 6


class Kept:
    """Evaluations by what was asked, as JSON."""

    def __init__(self):
        self.by_asked = {}

    def find(self, asked):
        text = self.by_asked.get(json.dumps(asked, sort_keys=True))
        return None if text is None else json.loads(text)

    def add(self, asked, evaluation):
        self.by_asked[json.dumps(asked, sort_keys=True)] = json.dumps(evaluation)


@pytest.fixture
def ask_once(tiny_checkpoint, pool):
    """Asks two problems, right and wrong; returns the result and the sampler that was asked."""
    tokenizer = load_tokenizer(tiny_checkpoint())
    scribe = RolloutGenerator(tokenizer, load_generation_config(tiny_checkpoint()))
    problems = arithmetic.distinct("test", 0, 2)
    how = Sampling(per_prompt=1, temperature=0.7, max_tokens=64, seed=1)

    def run(store, *, how=how, problems=problems, dtype="float32", greedy=True):
        sampler = Told(tokenizer, problems, [[RIGHT], [WRONG]])
        sampler.dtype = dtype
        result = evaluate(
            sampler,
            scribe,
            problems,
            VERIFIERS,
            pool,
            how,
            error_share=0.5,
            greedy=greedy,
            store=store,
        )
        return result, sampler.asked

    run.how, run.problems = how, problems
    return run


def test_what_was_asked_before_is_not_asked_again(ask_once):
    store = Kept()
    first, asked = ask_once(store)
    assert len(asked) == 2  # samples, and greedy answers
    again, asked = ask_once(store)
    assert not asked and again == first and again.flat() == first.flat()
    assert ask_once(None)[1]
    facts = [{**p.facts, "a": 1, "b": 2} for p in ask_once.problems]
    for order in (list, lambda items: [*items][::-1]):  # of facts, which says nothing
        problems = [replace(p, facts=dict(order(f.items()))) for p, f in zip(
            ask_once.problems, facts, strict=True)]  # fmt: skip
        assert bool(ask_once(store, problems=problems)[1]) == (order is list)


def test_any_other_question_is_asked(ask_once, pool, monkeypatch):
    store = Kept()
    ask_once(store)
    how, problems = ask_once.how, ask_once.problems
    others = [
        {"how": replace(how, temperature=0.8)},
        {"how": replace(how, seed=2)},
        {"how": replace(how, max_tokens=63)},
        {"problems": problems[::-1]},
        {"problems": [replace(problems[0], reference={"value": "7"}), problems[1]]},
        {"dtype": "bfloat16"},
        {"greedy": False},
    ]
    for count, other in enumerate(others, 2):
        assert ask_once(store, **other)[1] and len(store.by_asked) == count, other
    real = pool.fingerprint
    monkeypatch.setattr(
        pool, "fingerprint", lambda names: dict.fromkeys(real(names), "0.2+another")
    )
    assert ask_once(store)[1]


def test_an_evaluation_with_failures_is_made_again(ask_once, pool, monkeypatch):
    judge_all, broken = pool.judge_all, Verdict(score=None, status="error", detail="worker died")
    monkeypatch.setattr(pool, "judge_all", lambda tasks: [broken, *judge_all(tasks)[1:]])
    store = Kept()
    result, _ = ask_once(store)
    assert result.failed and not store.by_asked
