"""The whole loop on an untrained model, in seconds: it learns, it resumes, it notices faults."""

import json
import os
import signal
import threading
from contextlib import ExitStack
from dataclasses import replace

import pytest
import torch

from veriloop.pipeline.config.rl import ZeroRecipe
from veriloop.pipeline.errors import NonFiniteError, StageError, Stopped
from veriloop.pipeline.rl import learner
from veriloop.pipeline.rl.loop import Loop
from veriloop.pipeline.rl.metrics import reproducible
from veriloop.pipeline.rl.update import MismatchError
from veriloop.pipeline.rollouts import grade, stream
from veriloop.pipeline.rollouts.collect import RolloutCollector
from veriloop.pipeline.rollouts.grade import VerifierFailuresError
from veriloop.pipeline.runs import checkpoint
from veriloop.pipeline.runs.record import read_metrics, read_rollouts
from veriloop.pipeline.sampling.sync import SyncError
from veriloop.pipeline.training.measurements import MemoryBoundError
from veriloop.stages import rl, zero
from veriloop.verifiers.verdict import Verdict

pytestmark = pytest.mark.usefixtures("one_pool", "forked_engines")


def recipe(**changes):
    values = {
        "name": "test",
        "start": "given",
        "steps": 4,
        "rollout": {"prompts": 4, "per_prompt": 4, "max_tokens": 12},
        "algorithm": {"minibatches": 2, "reference_every": 4, "kl_coefficient": 0.01},
        "optimizer": {"learning_rate": 1e-2},
        "sampler": {"engine": "torch"},
        "evaluation": {"problems": 4, "samples": 2},
        "checkpoint": {"every": 1, "keep": 9},
        "tensorboard": False,
    }
    for key, value in changes.items():
        values[key] = values[key] | value if isinstance(values.get(key), dict) else value
    return ZeroRecipe.model_validate(values)


def low_ids(rollout, verdicts):
    """A reward that an untrained model can learn: the share of ids under 150."""
    del verdicts
    return sum(i < 150 for i in rollout.response_ids) / len(rollout.response_ids)


def trainer(tiny_checkpoint, place):
    """Function: run a loop in `place`/name, that `prepare(loop)` may break; returns the loop."""

    def run(name, told=None, prepare=lambda loop: None, *, resume=False, tied=False):
        told = told or recipe()
        folder, start = place / name, tiny_checkpoint(tied=tied)
        found = checkpoint.load_latest(folder) if resume else None
        with ExitStack() as stack:
            loop = rl.open_loop(stack, told, zero.task(told), folder, start, found)
            loop.collector.task = replace(loop.task, reward=low_ids)
            prepare(loop)
            loop.run(lambda: 0.0)
        return loop

    return run


@pytest.fixture
def train(tiny_checkpoint, tmp_path):
    return trainer(tiny_checkpoint, tmp_path)


@pytest.fixture(scope="module")
def whole(tiny_checkpoint, lent_pool, tmp_path_factory):
    """A run of the recipe as it is, for all who look at one."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(grade, "VerifierPool", lambda *_, **__: lent_pool)
        return trainer(tiny_checkpoint, tmp_path_factory.mktemp("loop"))("whole")


def metrics(loop):
    rows = read_metrics(loop.deps.directory / "metrics.jsonl")
    return [reproducible(row) for row in rows]


def bits(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.slow
def test_a_reward_within_reach_rises(train):
    rows = metrics(train("a", recipe(steps=12, rollout={"per_prompt": 8})))
    assert rows[-1]["reward"] > rows[0]["reward"] + 0.2
    assert [row["step"] for row in rows] == list(range(1, 13))
    assert all(row["sync/max"] <= 1e-4 for row in rows)
    assert all(row["sync/moved"] > 1e-3 for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("tied", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_run_that_was_stopped_continues_as_if_it_never_had(train, whole, tied):
    whole = train("whole", tied=True) if tied else whole

    def stop_in_step_three(loop):
        turn = loop.turn

        def turn_and_ask():
            turn()
            if loop.step == 3:
                os.kill(os.getpid(), signal.SIGINT)

        loop.turn = turn_and_ask

    with pytest.raises(Stopped, match="after step 3 of 4"):
        train("broken", prepare=stop_in_step_three, tied=tied)
    resumed = train("broken", resume=True, tied=tied)
    assert resumed.step == 4 and metrics(resumed) == metrics(whole)
    assert same(bits(resumed.policy), bits(whole.policy))
    assert same(bits(resumed.learner.reference.model), bits(whole.learner.reference.model))
    assert resumed.learner.reference.replaced_at == whole.learner.reference.replaced_at == 8
    one, other = (loop.evaluations.read_text() for loop in (resumed, whole))
    assert one == other and [json.loads(x)["step"] for x in one.splitlines()] == [0, 4]


@pytest.mark.slow
def test_every_tenth_step_gives_its_responses_to_the_trackers(train, monkeypatch):
    monkeypatch.setattr("veriloop.pipeline.rl.loop.SAMPLES_EVERY", 2)
    sampled = {}

    def listen(loop):
        write = loop.deps.record.write_metrics

        def heard(step, metrics, samples):
            sampled[step] = len(samples)
            write(step, metrics, samples)

        loop.deps.record.write_metrics = heard

    train("sampled", recipe(steps=3), listen)
    assert sampled == {1: 16, 2: 0, 3: 16}


@pytest.mark.slow
def test_a_run_past_its_memory_ends_after_what_it_has_saved(train):
    with pytest.raises(MemoryBoundError, match=r"trainer\.memory_gib allows"):
        train("bound", recipe(trainer={"memory_gib": 0.01}, checkpoint={"every": 1}))


@pytest.mark.slow
def test_a_run_that_samples_ahead_learns_a_step_late_and_continues_as_if_never_stopped(
    train,
):
    told = recipe(steps=6, rollout={"ahead": 1}, checkpoint={"every": 3}, evaluation={"every": 2})
    asked = []

    def watched(loop):
        ask = loop.deps.sampler.sample
        names = threading.current_thread
        loop.deps.sampler.sample = lambda *told: asked.append(names().name) or ask(*told)

    whole = train("whole", told, watched)
    rows = metrics(whole)
    assert [row["staleness"] for row in rows] == [0, 2, 2, 2, 2, 2]  # optimizer steps
    assert sum(name.startswith("prefetch") for name in asked) == 5  # all but the first
    assert all(row["sync/max"] <= 1e-4 for row in rows)
    gaps = [row["sampling/sampling_logp_difference/mean"] for row in rows]
    assert gaps[0] < 1e-4 < 1e-3 < min(gaps[1:])  # what the ratios correct
    assert not same(bits(whole.policy), bits(train("other").policy))

    def die_in_step_five(loop):
        turn = loop.turn

        def turn_or_die():
            if loop.step == 4:
                raise KeyboardInterrupt
            turn()

        loop.turn = turn_or_die

    with pytest.raises(KeyboardInterrupt):
        train("broken", told, die_in_step_five)
    resumed = train("broken", told, resume=True)
    assert metrics(resumed) == rows and same(bits(resumed.policy), bits(whole.policy))

    begun = []

    def stop_while_step_three_learns(loop):
        learn, begin = loop.learner.learn, loop.prefetcher.begin
        loop.prefetcher.begin = lambda step, random: begun.append(step) or begin(step, random)

        def learn_and_ask(step, *given):
            if step == 2:
                os.kill(os.getpid(), signal.SIGINT)
            return learn(step, *given)

        loop.learner.learn = learn_and_ask

    with pytest.raises(Stopped, match="after step 3 of 6"):
        train("asked", told, stop_while_step_three_learns)
    assert max(begun) == 3  # gathered beside step three, and none after it
    resumed = train("asked", told, resume=True)
    assert metrics(resumed) == rows and same(bits(resumed.policy), bits(whole.policy))


def several_ahead(ahead=3, **changes):
    return recipe(
        steps=7,
        rollout={"ahead": ahead},
        algorithm={"old_logp": "trainer"},
        checkpoint={"every": 3},
        **changes,
    )


def spans_of(loop):
    """(step, versions of each token) of every rollout."""
    files = sorted((loop.deps.directory / "rollouts").glob("*.parquet"))
    rows = [row for file in files for row in read_rollouts(file)]
    return [
        (row["step"], row["versions"] or [row["policy_version"]] * len(row["logp"])) for row in rows
    ]


@pytest.mark.slow
def test_turns_that_begin_expect_the_longest_answer_of_the_turn_that_ended(train, monkeypatch):
    monkeypatch.setattr(stream, "longest", lambda turn: turn.step + 4)  # another one each turn
    expected = {}  # by turn

    def watched(loop):
        admitted = loop.stream._admitted

        def noted(*arguments):
            turns = admitted(*arguments)
            expected.update((turn.step, turn.expected) for turn in turns)
            return turns

        loop.stream._admitted = noted

    values = several_ahead()
    train("whole", values, watched)
    first = values.rollout.max_tokens  # nothing has ended
    assert expected == {0: first, 1: first, 2: first, 3: 4, 4: 5, 5: 6, 6: 7}


@pytest.mark.slow
def test_no_token_is_older_than_the_bound_and_a_killed_run_continues_to_the_bit(train):
    told = several_ahead(evaluation={"every": 2})
    whole = train("whole", told)
    rows = metrics(whole)
    updates = told.algorithm.minibatches
    ages = [updates * (step - 1) - min(versions) for step, versions in spans_of(whole)]
    assert max(ages) == 3 * updates  # reached and never passed
    assert all(versions == sorted(versions) for _, versions in spans_of(whole))
    assert max(len(set(versions)) for _, versions in spans_of(whole)) == 3
    assert max(row["staleness/max"] for row in rows) == 3 * updates
    assert all(0 < row["staleness"] < row["staleness/max"] for row in rows[2:])
    assert len(spans_of(whole)) == 7 * 16  # every group is learned once

    def die_in_step_five(loop):
        turn = loop.turn

        def turn_or_die():
            if loop.step == 4:
                raise KeyboardInterrupt
            turn()

        loop.turn = turn_or_die

    with pytest.raises(KeyboardInterrupt):
        train("broken", told, die_in_step_five)
    resumed = train("broken", told, resume=True)
    assert metrics(resumed) == rows and same(bits(resumed.policy), bits(whole.policy))
    assert spans_of(resumed) == spans_of(whole)


@pytest.mark.slow
def test_responses_that_were_begun_for_other_prompts_begin_anew(train, capsys):
    told, shift = several_ahead(), 1000

    def die_in_step_five(loop):
        turn = loop.turn
        loop.turn = lambda: turn() if loop.step < 4 else loop.no_such_turn()

    def with_another_last_question(loop):
        problem = loop.collector.task.problem
        last = recipe().rollout.prompts - 1
        other = lambda n: problem(n + shift if n % (last + 1) == last else n)  # noqa: E731
        loop.collector.task = replace(loop.collector.task, problem=other)

    with pytest.raises(AttributeError):
        train("broken", told, die_in_step_five)
    begun = spans_of(train("same", told))
    resumed = train("broken", told, with_another_last_question, resume=True)
    assert "step 5: 1 of 4 prompts have changed since their" in capsys.readouterr().out
    known = 3 * told.algorithm.minibatches  # of the weights that the run resumed with
    fifth = [(min(a), min(b)) for (step, a), (_, b) in zip(spans_of(resumed), begun, strict=True)
              if step == 5]  # fmt: skip
    assert [one for one, _ in fifth[:12]] == [one for _, one in fifth[:12]]
    assert min(one for one, _ in fifth[:12]) < known
    assert {one for one, _ in fifth[12:]} == {known}


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.parametrize("tied", [False, True])
def test_with_vllm_every_sync_is_proven_and_a_stopped_run_continues(train, tied):
    pytest.importorskip("vllm")
    told = recipe(sampler={"engine": "vllm", "cache_gib": 0.1, "max_batch": 32})
    whole = train("whole", told, tied=tied)
    assert all(0 < row["sync/max"] <= 1e-4 for row in metrics(whole))
    assert all(row["sync/moved"] > 1e-3 for row in metrics(whole))

    def stop_in_step_two(loop):
        save = loop.trainer.save
        loop.trainer.save = lambda seconds: save(seconds) if loop.step == 2 else None
        turn = loop.turn

        def turn_or_die():
            if loop.step == 2:
                raise KeyboardInterrupt
            turn()

        loop.turn = turn_or_die

    with pytest.raises(KeyboardInterrupt):
        train("broken", told, stop_in_step_two, tied=tied)
    assert metrics(train("broken", told, resume=True, tied=tied)) == metrics(whole)


@pytest.mark.slow
def test_work_after_the_last_checkpoint_is_redone_and_leaves_one_record(train, whole):
    def die_in_step_two(loop):
        turn = loop.turn

        def turn_or_die():
            if loop.step == 3:
                raise KeyboardInterrupt
            turn()

        loop.turn = turn_or_die

    def die_later(loop):
        die_in_step_two(loop)
        save = loop.trainer.save
        loop.trainer.save = lambda seconds: save(seconds) if loop.step != 3 else None

    with pytest.raises(KeyboardInterrupt):
        train("broken", recipe(checkpoint={"every": 3}), die_later)
    resumed = train("broken", recipe(checkpoint={"every": 3}), resume=True)
    assert metrics(resumed) == metrics(whole)


def test_no_problem_is_asked_twice_and_each_group_has_its_own_id(whole):
    files = sorted((whole.deps.directory / "rollouts").glob("*.parquet"))
    rows = [row for file in files for row in read_rollouts(file)]
    assert [f.name for f in files] == [f"step_{n:06d}.parquet" for n in range(1, 5)]
    groups = {row["group"]: row["problem_id"] for row in rows}
    assert len(groups) == len(set(groups.values())) == 16
    assert all(sum(row["group"] == g for row in rows) == 4 for g in groups)


@pytest.mark.slow
def test_the_seed_decides_the_rollouts(train, whole):
    again, other = train("again"), train("other", recipe(seed=1, steps=1))
    assert metrics(again) == metrics(whole)
    assert metrics(other)[0]["reward"] != metrics(whole)[0]["reward"]


@pytest.mark.slow
def test_without_a_kl_coefficient_no_reference_exists(train):
    loop = train("a", recipe(algorithm={"kl_coefficient": 0.0, "reference_every": 0}))
    assert loop.learner.reference is None and all(row["kl"] == 0.0 for row in metrics(loop))


@pytest.mark.slow
def test_the_reference_is_replaced_on_time_and_the_kl_starts_again_at_zero(train):
    rows = metrics(train("a", recipe(steps=5, algorithm={"minibatches": 1})))
    # one optimizer step a turn: replaced after turn 4, so turn 5 scores the reference itself
    assert rows[0]["kl"] == 0.0 and all(row["kl"] > 1e-6 for row in rows[1:4])
    assert rows[4]["kl"] == 0.0


@pytest.mark.slow
def test_rollouts_whose_verifier_failed_are_recorded_and_not_trained_on(train):
    def failing(loop):
        def regrade(graded, random):
            return [replace(g, reward=None) if i % 3 == 0 else g for i, g in enumerate(graded)]

        loop.collector.task = replace(loop.collector.task, regrade=regrade)

    loop = train("a", recipe(steps=1), failing)
    rows = read_rollouts(loop.deps.directory / "rollouts" / "step_000001.parquet")
    assert [row["reward"] is None for row in rows] == [i % 3 == 0 for i in range(16)]
    assert [row["advantage"] is None for row in rows] == [i % 3 == 0 for i in range(16)]
    assert metrics(loop)[0]["unscored"] == 6.0


@pytest.mark.slow
def test_a_reward_that_pays_nobody_is_shown_once_and_changes_nothing(train, whole, capsys):
    loop = train("shown", recipe(warn_zero_reward_after=2))
    lines = [line for line in capsys.readouterr().out.splitlines() if "paid nothing" in line]
    assert lines[0].startswith(
        "accuracy paid nothing in 2 steps in a row. What its verifier saw in step 2"
    )
    assert len(lines) == len({line.split()[0] for line in lines})
    assert metrics(loop) == metrics(whole) and same(bits(loop.policy), bits(whole.policy))


@pytest.mark.slow
def test_a_sampler_that_is_to_sleep_does_so_during_the_update_and_new_weights_wake_it(train):
    told = []

    def prepare(loop):
        asked = recipe(steps=2)
        awake = asked.sampler.model_copy(update={"sleep": True})
        loop.recipe = asked.model_copy(update={"sampler": awake})
        sampler, learn = loop.deps.sampler, loop.learner.learn
        load = sampler.load_weights
        sampler.sleep = lambda: told.append("sleep")
        sampler.load_weights = lambda *given: (told.append("wake"), load(*given))
        loop.learner.learn = lambda *given: (told.append("learn"), learn(*given))[1]

    train("a", recipe(steps=2), prepare)
    assert told == ["wake", *["sleep", "learn", "wake"] * 2]


@pytest.mark.slow
def test_controls_replace_the_rewards(train):
    loop = train("a", recipe(steps=1, reward={"control": "random"}))
    rows = read_rollouts(loop.deps.directory / "rollouts" / "step_000001.parquet")
    assert {row["reward"] for row in rows} == {0.0, 1.0}


@pytest.mark.slow
def test_old_log_probs_of_the_trainer_give_the_same_run(train, whole):
    other = train("two", recipe(algorithm={"old_logp": "trainer"}))
    for a, b in zip(metrics(whole), metrics(other), strict=True):
        assert a["loss"] == pytest.approx(b["loss"], abs=1e-4)
        assert b["reward"] == pytest.approx(a["reward"], abs=1e-6)


def sync_off(loop):
    def load_weights(weights, version):
        loop.deps.sampler.version = version

    loop.deps.sampler.load_weights = load_weights


def another_temperature(loop):
    sample = loop.deps.sampler.sample
    loop.deps.sampler.sample = lambda prompts, how: sample(
        prompts, replace(how, temperature=0.9 * how.temperature)
    )


def log_probs_late(loop):
    rollouts = loop.deps.generator.rollouts
    loop.deps.generator.rollouts = lambda *asked: [
        replace(r, logp=(*r.logp[1:], r.logp[0])) for r in rollouts(*asked)
    ]


def reference_kept(loop):
    loop.learner.reference._copy = lambda policy: None


def reference_forgotten(loop):
    loop.learner.reference.replace_when_due = lambda policy, done: False


def reference_trained(loop):
    next(loop.learner.reference.model.parameters()).data[0, 0] += 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "step", "message"),
    [
        (sync_off, 0, "holds other weights than were sent"),
        (another_temperature, 0, "disagree on"),
        (log_probs_late, 0, "misplaced tokens"),
        (reference_kept, 1, "but .* was copied at optimizer step 4"),
        (reference_forgotten, 1, "4 optimizer steps old"),
        (reference_trained, 0, "was copied at optimizer step 0"),
    ],
)
def test_a_planted_fault_is_caught_by_its_check(train, fault, step, message):
    reached = []

    def prepare(loop):
        fault(loop)
        reached.append(loop)

    with pytest.raises(StageError, match=message):
        train("a", prepare=prepare)
    assert reached[0].step == step


def test_the_errors_of_the_checks_are_stage_errors():
    assert issubclass(SyncError, StageError) and issubclass(MismatchError, StageError)
    assert isinstance(Loop.run, type(lambda: None))


def regraded(change):
    """What prepares a loop whose rollouts are changed after grading."""

    def prepare(loop):
        task = replace(loop.collector.task, regrade=lambda graded, random: change(graded))
        loop.collector.task = task

    return prepare


def unjudged(graded):
    failed = {"accuracy": Verdict(score=None, status="error", detail="judge unreachable")}
    return [replace(g, reward=None, verdicts=failed) for g in graded]


@pytest.mark.slow
def test_a_judge_that_fails_on_everything_stops_the_run(train, tmp_path, capsys):
    with pytest.raises(
        VerifierFailuresError, match=r"16 x accuracy \(number\): judge unreach"
    ) as failure:
        train("a", recipe(), regraded(unjudged))
    path = tmp_path / "a/refused/step_000001.parquet"
    assert str(path) in str(failure.value) and len(read_rollouts(path)) == 16
    assert not (tmp_path / "a/metrics.jsonl").exists()
    assert "verifiers failed on 16 of 16 answers" in capsys.readouterr().out


@pytest.mark.slow
def test_every_reason_why_verifiers_fail_is_told_once(train, capsys):
    """The judge fails on five answers of each step; on two others programs, from the second on."""
    steps = []

    def some(graded):
        steps.append(len(steps) + 1)
        made = unjudged(graded[:5])
        if steps[-1] > 1:
            failed = {"accuracy": Verdict(score=None, status="error", detail="no sandbox")}
            made += [replace(g, reward=None, verdicts=failed) for g in graded[5:7]]
        return [*made, *graded[len(made) :]]

    train("a", recipe(verifier_error_share=0.5, steps=3), regraded(some))
    told = [line for line in capsys.readouterr().out.split("\n") if "verifiers failed" in line]
    assert [line[line.index("step") :] for line in told] == [
        "step 1: verifiers failed on 5 of 16 answers: 5 x accuracy (number): judge unreachable",
        "step 2: verifiers failed on 7 of 16 answers: 2 x accuracy (number): no sandbox",
    ]


def test_verifiers_of_steps_that_fail_on_everything_stop_the_run(train, tmp_path):
    def failing(problem, response):
        raise OSError("no endpoint")

    def prepare(loop):
        loop.task = replace(loop.task, step_scores=failing)
        loop.collector.task = replace(loop.collector.task, step_scores=failing)

    process = recipe(algorithm={"advantage": "process"})
    with pytest.raises(VerifierFailuresError, match="step 1: verifiers of steps") as failure:
        train("a", process, prepare)
    path = tmp_path / "a/refused/step_000001.parquet"
    assert str(path) in str(failure.value) and len(read_rollouts(path)) == 16


def unlearnable(loop, turn):
    """Makes the gradient of the first optimizer step of `turn` NaN."""
    learn = loop.learner.learn

    def poisoned(step, graded, shuffle):
        if step != turn:
            return learn(step, graded, shuffle)
        weight = next(loop.policy.parameters())
        hook = weight.register_hook(lambda grad: (hook.remove(), grad * float("nan"))[1])
        return learn(step, graded, shuffle)

    loop.learner.learn = poisoned


def infinite_reward(graded):
    return [replace(graded[0], reward=float("inf")), *graded[1:]]


def sampled_with_nan(graded):
    """A token of the first rollout has the log-prob NaN under the policy that sampled."""
    first = graded[0].rollout
    logp = (float("nan"), *first.logp[1:])
    return [replace(graded[0], rollout=replace(first, logp=logp)), *graded[1:]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (lambda loop: unlearnable(loop, 0), "gradient norm is nan at optimizer step 0"),
        (regraded(infinite_reward), "rewards of 1 of 16 answers are not finite"),
        (regraded(sampled_with_nan), "sampler's log-probs of 1 of 16 answers are not"),
    ],
)
def test_numbers_that_are_not_finite_stop_the_run_and_keep_the_batch(
    train, tmp_path, prepare, said
):
    loops = []

    def keep(loop):
        prepare(loop)
        loops.append((loop, bits(loop.policy)))

    with pytest.raises(NonFiniteError, match=said):
        train("a", recipe(), keep)
    ((loop, before),) = loops
    assert same(bits(loop.policy), before)
    assert len(read_rollouts(tmp_path / "a/refused/step_000001.parquet")) == 16


@pytest.mark.slow
@pytest.mark.parametrize(
    "prepare",
    [lambda loop: unlearnable(loop, 1), regraded(infinite_reward), regraded(sampled_with_nan)],
)
def test_a_run_that_skips_them_continues(train, tmp_path, prepare, capsys):
    loop = train("a", recipe(nonfinite="skip"), prepare)
    assert [row["step"] for row in metrics(loop)] == [1, 2, 3, 4]
    assert all(p.isfinite().all() for p in loop.policy.parameters())
    assert (tmp_path / "a/refused/step_000002.parquet").exists()
    assert "WARNING: " in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("nonfinite", ["stop", "skip"])
def test_scores_before_the_first_update_are_refused_as_gradients_are(
    train, tmp_path, monkeypatch, nonfinite
):
    plain, turns = learner.score_parts, []

    def poisoned(*arguments):
        first, *others = plain(*arguments)
        turns.append(first)
        if len(turns) != 2:
            return [first, *others]
        signals, *more = first.signals
        lost = replace(signals, reference_M=signals.reference_M * float("nan"))
        return [replace(first, signals=(lost, *more)), *others]

    monkeypatch.setattr(learner, "score_parts", poisoned)
    if nonfinite == "stop":
        with pytest.raises(NonFiniteError, match=r"of the reference are not finite before .*3"):
            train("a", recipe(nonfinite=nonfinite))
    else:
        rows = metrics(train("a", recipe(nonfinite=nonfinite)))
        assert ["grad_norm" in row for row in rows] == [True, False, True, True]
    assert (tmp_path / "a/refused/step_000002.parquet").exists()


@pytest.mark.slow
def test_a_step_without_a_mixed_group_is_recorded_and_teaches_nothing(train, tmp_path):
    begun = {}
    told = recipe(steps=2, algorithm={"dynamic_sampling": 1})  # no answer is right, all differ
    loop = train("a", told, lambda loop: begun.update(bits(loop.policy)))
    assert same(bits(loop.policy), begun)
    for row in metrics(loop):
        assert row["groups_missing"] == 4 and row["optimizer_steps"] == 0
        assert "grad_norm" not in row and row["reward_std"] > 0
    rows = read_rollouts(tmp_path / "a/rollouts/step_000002.parquet")
    assert len(rows) == 2 * 4 * 4 and {row["advantage"] for row in rows} == {None}


@pytest.mark.slow
def test_verifiers_that_fail_on_dropped_groups_stop_the_run(train, tmp_path, monkeypatch, capsys):
    lost = {"accuracy (number)": Verdict(score=None, status="error", detail="no worker")}
    collect, wanted = RolloutCollector._collect, 9

    def beside_lost_groups(*asked):
        return replace(collect(*asked), dropped=[lost] * wanted)

    monkeypatch.setattr(RolloutCollector, "_collect", beside_lost_groups)
    told = recipe(steps=1, verifier_error_share=0.4)
    loop = train("a", told)  # 9 of 25
    assert metrics(loop)[0]["unscored"] == 9.0
    assert (
        "step 1: verifiers failed on 9 of 25 answers: 9 x accuracy (num" in capsys.readouterr().out
    )
    wanted = 11  # of 27
    with pytest.raises(
        VerifierFailuresError, match=r"failed on 11 of 27 answers, more than .*0\.4"
    ):
        train("b", told)
    assert len(read_rollouts(tmp_path / "b/refused/step_000001.parquet")) == 16
