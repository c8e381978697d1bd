"""Collecting: asked, judged, sifted, written anew, judged again; no round is sampled twice."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from veriloop.data.decontaminate import Overlap
from veriloop.data.problem import Problem
from veriloop.pipeline.config.sft import CollectConfig, FilterConfig, RewriteConfig
from veriloop.pipeline.rollouts.grade import VerifierFailuresError
from veriloop.pipeline.sft import rejection_sampling as module
from veriloop.pipeline.sft.rejection_sampling import Teacher, collect
from veriloop.pipeline.types import Rollout
from veriloop.verifiers.registry import judge
from veriloop.verifiers.verdict import Verdict

PROBLEMS = [
    Problem(
        id=f"arithmetic/rl/0/{n}",
        prompt=f"What is {n}+2-1?",
        verifier="number",
        reference={"value": str(n + 1)},
        facts={"language": "en"},
    )
    for n in range(5)
]
GOOD = "<think>First {0}-1. Then {1}. </think><answer>{1}</answer>"


def answers(problem, count):
    """A good answer, a longer good one, a wrong one, and one in another language."""
    n = int(problem.reference["value"])
    said = [
        GOOD.format(n + 1, n),
        GOOD.format(f"we see {n + 1}", n),
        GOOD.format(n + 1, n + 7),
        f"<think>先算{n + 1}。</think><answer>{n}</answer>",
    ]
    return said[:count]


class RolloutGenerator:
    """Stands in for a model that answers as `answers` has it."""

    def __init__(self):
        self.asked = []

    def rollouts(self, sampler, asked, sampling, on_group):
        self.asked.append((len(asked), sampling))
        for _ in asked:
            on_group(())
        return [
            Rollout(
                group=group,
                problem=problem,
                prompt_ids=(1,),
                response_ids=(5,) * 9,
                logp=(0.0,) * 9,
                response=said,
                finish="stop",
                temperature=1.0,
                policy_version=0,
            )
            for group, problem in asked
            for said in answers(problem, sampling.per_prompt)
        ]


class Pool:
    def judge_all(self, tasks):
        return [judge(problem, response) for problem, response in tasks]


@pytest.fixture
def collecting(tmp_path):
    def run(
        generator=None,
        pool=None,
        held_out=(),
        rewrite=None,
        problems=PROBLEMS,
        on_question=lambda _: None,
        say=lambda _: None,
        limits=None,
        folder="samples",
        **config,
    ):
        teacher = Teacher(
            generator=generator or RolloutGenerator(),
            sampler=None,
            pool=pool or Pool(),
            max_tokens=20,
            seed=3,
        )
        return collect(
            teacher,
            problems,
            CollectConfig(**{"questions": 5, "per_prompt": 4, "at_once": 2} | config),
            FilterConfig(**{"min_words": 2, "distinct": 0.0} | (limits or {})),
            rewrite or RewriteConfig(),
            Overlap(held_out),
            tmp_path / folder,
            say,
            on_question,
        )

    return run


def test_a_length_in_tokens_is_counted_for_samples_and_for_what_is_learned(collecting):
    counts = []

    class Counting(Pool):
        def judge_all(self, tasks):
            counts.append({p.facts.get("response_tokens") for p, _ in tasks[::2]})
            return super().judge_all(tasks)

    def tokens(text, *, add_special_tokens=True):  # as of most models, whose first is <bos>
        return SimpleNamespace(input_ids=[0] * add_special_tokens + [1] * len(text))

    generator = RolloutGenerator()
    generator.tokenizer = tokens
    lengths = {"length": {"unit": "tokens"}}
    problems = [replace(p, reference={**p.reference, **lengths}) for p in PROBLEMS]
    collected = collecting(generator, Counting(), problems=problems, at_once=5)
    learned = {len(row["completion"][0]["content"]) for row in collected.rows}
    assert counts[0] == {9} and learned and counts[1] >= learned


def test_the_longest_good_answer_of_each_question_is_kept_and_the_rest_counted(collecting):
    found = collecting()
    assert (found.questions, found.sampled, len(found.rows)) == (5, 20, 5)
    assert found.dropped == {"wrong": 5, "mixed_language": 5, "surplus": 5}
    assert found.rows[0] == {
        "prompt": [{"role": "user", "content": "What is 0+2-1?"}],
        "completion": [
            {
                "role": "assistant",
                "content": "<think>First we see 2-1. Then 1. </think><answer>1</answer>",
            }
        ],
        "source": "arithmetic",
        "language": "en",
        "problem": "arithmetic/rl/0/0",
    }
    assert sum(found.dropped.values()) + len(found.rows) == found.sampled


@pytest.mark.parametrize(
    ("limits", "dropped"),
    [
        ({}, {"mixed_language": 5, "code_block": 10}),
        ({"min_words": 3}, {"mixed_language": 5, "short": 5, "code_block": 5}),
        ({"consistency": 0.0, "min_words": 0}, {"code_block": 15}),
        ({"code_blocks": False}, {"mixed_language": 5}),
        ({"code_blocks": False, "max_paragraph": 9}, {"mixed_language": 5, "long_paragraph": 10}),
        (
            {"code_blocks": False, "distinct": 0.9, "ngram": 1},
            {"mixed_language": 5, "repetition": 10},
        ),
        ({"code_blocks": False, "max_tokens": 8}, {"mixed_language": 5, "too_long": 10}),
        ({"code_blocks": False, "max_tokens": 9}, {"mixed_language": 5}),
    ],
)
def test_every_limit_of_the_recipe_is_applied(collecting, limits, dropped):
    class Fenced(RolloutGenerator):
        def rollouts(self, *arguments):
            found = super().rollouts(*arguments)
            return [
                replace(r, response=r.response.replace("</th", "\n```\n1\n```\n</th"))
                for r in found
            ]

    found = collecting(Fenced(), limits=limits, keep=4).dropped
    assert found == {"wrong": 5, **dropped}


def test_problems_of_two_sources_with_the_same_id_keep_their_own_questions(collecting):
    found = collecting(problems=[replace(problem, id="q1") for problem in PROBLEMS])
    asked = [row["prompt"][0]["content"] for row in found.rows]
    assert asked == [problem.prompt for problem in PROBLEMS]


def test_progress_is_said_after_each_round(collecting):
    said = []
    collecting(say=said.append)
    assert said == [
        f"{asked} of 5 questions sampled, {asked} of {4 * asked} responses accepted"
        for asked in (2, 4, 5)
    ]


def test_the_strings_that_end_an_answer_are_those_of_the_recipe(collecting):
    asked = RolloutGenerator()
    collecting(asked, stop=("</answer>",))
    assert {sampling.stop for _, sampling in asked.asked} == {("</answer>",)}


def test_a_tag_that_the_prompt_of_the_teacher_ended_with_is_part_of_its_answers(collecting):
    """With and without the fact in the data: the teacher's prompt alone decides."""

    class Inside(RolloutGenerator):
        def rollouts(self, sampler, asked, *rest):
            prefilled = [
                (group, replace(problem, facts={**problem.facts, "prefilled_think": True}))
                for group, problem in asked
            ]
            found = super().rollouts(sampler, prefilled, *rest)
            return [replace(r, response=r.response.removeprefix("<think>")) for r in found]

    told = [
        replace(problem, facts={**problem.facts, "prefilled_think": True}) for problem in PROBLEMS
    ]
    usual = collecting(folder="usual")
    assert collecting(Inside(), folder="inside") == usual
    assert collecting(problems=told, folder="told") == usual
    assert collecting(Inside(), problems=told, folder="both") == usual


def test_an_answer_that_was_cut_off_is_dropped(collecting):
    class CutOff(RolloutGenerator):
        def rollouts(self, *arguments):
            return [replace(rollout, finish="length") for rollout in super().rollouts(*arguments)]

    found = collecting(CutOff())
    assert found.dropped == {"wrong": 5, "mixed_language": 5, "too_long": 10}


def test_a_round_that_is_there_is_not_sampled_again(collecting, tmp_path):
    first, again = RolloutGenerator(), RolloutGenerator()
    found = collecting(first)
    assert [count for count, _ in first.asked] == [2, 2, 1]
    assert [s.seed for _, s in first.asked] == [300_001, 300_002, 300_003]
    assert {(s.temperature, s.per_prompt, s.max_tokens) for _, s in first.asked} == {(1.0, 4, 20)}
    (tmp_path / "samples" / "round_00001.jsonl").unlink()
    assert collecting(again) == found
    assert [s.seed for _, s in again.asked] == [300_002]


def test_answers_that_wait_for_their_judges_are_removed_once_they_are_judged(collecting, tmp_path):
    found = collecting()
    left = tmp_path / "samples" / "unjudged_round_00001.jsonl"
    left.write_text("")  # of a run that was killed between writing the round and removing them
    assert collecting() == found and not left.exists()


def test_half_a_surrogate_pair_of_a_model_is_learned_as_a_question_mark(collecting):
    class Broken(RolloutGenerator):
        def rollouts(self, *arguments):
            found = super().rollouts(*arguments)
            return [replace(r, response=r.response.replace("First", "Fi\ud800rst")) for r in found]

    said = collecting(Broken()).rows[0]["completion"][0]["content"]
    assert said == "<think>Fi?rst we see 2-1. Then 1. </think><answer>1</answer>"


def test_sampled_and_reread_questions_are_counted_as_progress(collecting, tmp_path):
    sampled, again = [], []
    collecting(on_question=sampled.append)
    (tmp_path / "samples" / "round_00001.jsonl").unlink()
    collecting(on_question=again.append)
    assert sampled == [1] * 5 and again == [2, 1, 1, 1]


def test_it_ends_when_a_round_brings_just_the_rows_that_are_wanted(collecting):
    generator = RolloutGenerator()
    found = collecting(generator, rows=2)
    assert (len(found.rows), len(generator.asked)) == (2, 1)


def test_it_ends_with_as_many_rows_as_are_wanted(collecting):
    generator = RolloutGenerator()
    found = collecting(generator, rows=3)
    assert (len(found.rows), found.questions, len(generator.asked)) == (3, 4, 2)
    assert found.dropped["surplus"] == 4 + 1
    assert sum(found.dropped.values()) + len(found.rows) == found.sampled


def test_the_check_of_the_layout_is_not_sent_the_reference(collecting):
    class Noting(Pool):
        def judge_all(self, tasks):
            assert {bool(problem.reference) for problem, _ in tasks[::2]} == {True}
            assert {bool(problem.reference) for problem, _ in tasks[1::2]} == {False}
            return super().judge_all(tasks)

    assert collecting(pool=Noting()).rows


class Failing(Pool):
    """Fails on the answers of some calls, counted from 1: 0: of all."""

    def __init__(self, *calls):
        self.calls, self.made = calls, 0

    def judge_all(self, tasks):
        self.made += 1
        if self.calls and self.made not in self.calls:
            return super().judge_all(tasks)
        return [Verdict(score=None, status="error", detail="judge unreachable") for _ in tasks]


def test_a_failed_verifier_counts_as_unjudged(collecting):
    found = collecting(pool=Failing(), verifier_error_share=1.0)
    assert found.rows == () and found.dropped == {"unjudged": 20}


@pytest.mark.parametrize("failing", [0, 1], ids=["accuracy", "format"])
def test_an_answer_that_one_of_both_verifiers_could_not_judge_counts_as_unjudged(
    collecting, failing
):
    class OneFails(Pool):
        def judge_all(self, tasks):
            failed = Verdict(score=None, status="error", detail="judge unreachable")
            verdicts = super().judge_all(tasks)
            return [failed if n % 2 == failing else v for n, v in enumerate(verdicts)]

    found = collecting(pool=OneFails(), verifier_error_share=1.0)
    assert found.rows == () and found.dropped == {"unjudged": 20}


def test_too_many_failures_end_collecting_and_the_answers_are_judged_when_it_resumes(
    collecting, tmp_path
):
    first, again = RolloutGenerator(), RolloutGenerator()
    unjudged = tmp_path / "samples" / "unjudged_round_00001.jsonl"
    with pytest.raises(VerifierFailuresError) as failure:
        collecting(first, pool=Failing(3))  # two calls for each round
    assert str(failure.value) == (
        "round 2: verifiers failed on 8 of 8 answers, more than verifier_error_share=0.5 allows. "
        "Commonest reasons: 8 x number: judge unreachable; 8 x think_format_lenient: judge "
        f"unreachable. The answers are kept in {unjudged}; --resume judges them again"
    )
    assert [len(unjudged.read_text().splitlines()), len(first.asked)] == [8, 2]
    progress = []
    found = collecting(again, on_question=progress.append)
    assert found == collecting() and progress == [2, 2, 1]
    assert [s.seed for _, s in again.asked] == [300_003]  # only the round that was not sampled
    assert not list((tmp_path / "samples").glob("unjudged*"))


def test_too_many_failures_on_rewritten_answers_end_collecting(collecting):
    with pytest.raises(VerifierFailuresError, match=r"^round 1, answers as they will be learned: "):
        collecting(pool=Failing(2), keep=4, at_once=5)
    found = collecting(pool=Failing(1), keep=4, at_once=5, verifier_error_share=1.0)
    assert found.rows == () and found.dropped["unjudged"] == 10


def test_responses_with_a_held_out_question_are_dropped(collecting):
    found = collecting(held_out=["What is 3+2-1?"])
    assert len(found.rows) == 4 and found.dropped["contaminated"] == 2


def test_a_rewritten_response_is_verified_again(collecting, monkeypatch):
    def spoiling(samples, config):
        del config
        return [None, *(s.response.replace("<answer>", "<answer>9") for s in samples[1:])]

    monkeypatch.setattr(module, "rewrite_all", spoiling)
    found = collecting()
    assert found.rows == ()
    assert found.dropped["rewrite_failed"] == 3 and found.dropped["rewrite_spoiled"] == 2


def test_the_layout_of_the_recipe_is_what_is_learned(collecting):
    layout = "<think>{thinking}</think>\n<answer> {answer} </answer>"
    said = collecting(rewrite=RewriteConfig(layout=layout)).rows[0]["completion"][0]["content"]
    assert said == "<think>First we see 2-1. Then 1. </think>\n<answer> 1 </answer>"


def test_a_question_without_a_language_may_be_thought_about_in_any(collecting):
    plain = [replace(problem, facts={}) for problem in PROBLEMS]
    found = collecting(problems=plain, keep=4)
    assert len(found.rows) == 15 and found.dropped == {"wrong": 5}
    assert {row["language"] for row in found.rows} == {""}


def test_a_tag_of_a_language_and_a_region_is_read_as_the_verifier_reads_it(collecting):
    tagged = [replace(p, facts=p.facts | {"language": p.facts["language"] + "-XX"})
              for p in PROBLEMS]  # fmt: skip
    plain, found = collecting(), collecting(problems=tagged)
    assert found.dropped == plain.dropped and len(found.rows) == len(plain.rows)


def test_a_resumed_run_asks_the_rewriter_for_what_failed_and_nothing_else(collecting, monkeypatch):
    asked = []

    def rewriting(samples, config):
        asked.append([sample.response for sample in samples])
        failed = samples[0].response if len(asked) == 1 else None
        return [None if s.response == failed else s.response for s in samples]

    monkeypatch.setattr(module, "rewrite_all", rewriting)
    rewriter = RewriteConfig(rewriter="http://host/v1", model="m")
    first = collecting(rewrite=rewriter)
    assert first.dropped["rewrite_failed"] == 1
    (failed, *_), rounds = asked[0], len(asked)
    again = collecting(rewrite=rewriter)
    assert asked[rounds:] == [[failed], *[[]] * (rounds - 1)]
    assert again.dropped.get("rewrite_failed", 0) == 0 and len(again.rows) == len(first.rows) + 1
