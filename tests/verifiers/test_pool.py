"""The pool keeps order, bounds every judgement, and is whole again after anything."""

import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.cpu_budget import cpu_budget
from veriloop.data.problem import Problem
from veriloop.sandbox.namespace.deadline import PATIENCE
from veriloop.verifiers import worker
from veriloop.verifiers.pool import CHUNK, VerifierPool
from veriloop.verifiers.registry import get, seconds_for
from veriloop.verifiers.verdict import UnreadyVerifierError, Verdict

ROOT = Path(__file__).parents[2]
PLUGIN = str(Path(__file__).parent / "misbehaving.py")
LIMIT_S = 0.6
GOOD = "<answer>12</answer>"


def acts(response, **reference):
    return Problem(id="p/0", prompt="", verifier="misbehaves", reference=reference), response


def sums(value, response=GOOD):
    problem = Problem(id="p/1", prompt="", verifier="number", reference={"value": value})
    return problem, response


@pytest.fixture(scope="module")
def pool():
    with VerifierPool(workers=1, limit_s=LIMIT_S, memory_mb=1024, plugins=[PLUGIN]) as pool:
        pool.warm(["number", "misbehaves"])
        yield pool


def assert_whole(pool):
    assert pool.judge_all([acts("behave")])[0].score == 1.0


def test_order_is_kept_over_many_chunks(pool):
    tasks = [sums(12 + (i % 3 == 0)) for i in range(5 * CHUNK + 7)]
    verdicts = pool.judge_all(tasks)
    assert [v.score for v in verdicts] == [float(i % 3 != 0) for i in range(len(tasks))]


def test_no_tasks_no_verdicts(pool):
    assert pool.judge_all([]) == []


@pytest.mark.slow
def test_order_is_kept_under_failure(pool):
    responses = ["behave", "exit 7", "no", "raise", "behave", "none", "behave"]
    verdicts = pool.judge_all([acts(response) for response in responses])
    assert [v.score for v in verdicts] == [1.0, None, 0.0, None, 1.0, None, 1.0]
    assert verdicts[1].detail == "verifier worker died with exit code 7"
    assert "ZeroDivisionError" in verdicts[3].detail
    for verdict in verdicts:
        assert verdict.status == ("error" if verdict.score is None else "graded")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["hang", "hang holding the interpreter"])
def test_a_hang_is_killed_in_time_and_the_next_batch_works(pool, how):
    assert_whole(pool)
    began = time.monotonic()
    (verdict,) = pool.judge_all([acts(how)])
    took = time.monotonic() - began
    assert (verdict.score, verdict.status) == (None, "error")
    assert verdict.detail == f"verifier exceeded its {LIMIT_S} s limit"
    assert LIMIT_S <= took < PATIENCE * LIMIT_S + 5.0
    assert verdict.exec_s == LIMIT_S and verdict.queue_s < took  # also waiting for a processor
    assert_whole(pool)


@pytest.mark.slow
def test_the_seconds_a_verifier_states_come_on_top_of_the_limit(pool):
    late, fine = pool.judge_all([acts("work"), acts("work", states=0.6)])
    assert late.status == "error" and late.detail == f"verifier exceeded its {LIMIT_S} s limit"
    assert (fine.score, fine.status) == (1.0, "graded") and 0.9 <= fine.exec_s < 2.0
    began = time.monotonic()
    (verdict,) = pool.judge_all([acts("hang", states=0.5)])
    assert verdict.detail == "verifier exceeded its 1.1 s limit" and verdict.exec_s == 1.1
    assert 1.1 <= time.monotonic() - began < 6.0
    assert_whole(pool)


@pytest.mark.parametrize("states", [math.nan, math.inf, -1.0, "x", None])
def test_seconds_that_make_no_sense_add_nothing(pool, states):
    assert seconds_for(acts("behave", states=states)[0]) == 0.0
    assert pool.judge_all([acts("behave", states=states)])[0].score == 1.0
    assert seconds_for(acts("behave", states=2)[0]) == 2.0 and seconds_for(sums(12)[0]) == 0.0


@pytest.mark.slow
def test_a_program_that_hangs_is_a_timeout_however_short_the_pools_own_limit():
    tests = [{"args": [n], "expected": n} for n in range(4)]
    limits = {"cpu_s": 0.5, "wall_s": 0.5}
    reference = {"function": "f", "tests": tests, "limits": limits, "scoring": "share"}
    problem = Problem(id="p", prompt="", verifier="code_tests", reference=reference)
    with VerifierPool(limit_s=1.0) as short:
        hangs = "<answer>import time\ndef f(n): time.sleep(60)</answer>"
        (verdict,) = short.judge_all([(problem, hangs)])
    assert (verdict.score, verdict.status) == (0.0, "timeout"), verdict
    assert verdict.exec_s > 1.0


@pytest.mark.slow
def test_the_neighbours_of_a_hang_are_judged_all_the_same(pool):
    verdicts = pool.judge_all([acts("behave"), acts("hang"), acts("behave")])
    assert [v.score for v in verdicts] == [1.0, None, 1.0]
    assert "exceeded" in verdicts[1].detail


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("exit 7", "died with exit code 7"),
        ("exit 0", "died with exit code 0"),
        ("sys.exit", "SystemExit: bye"),
        ("bomb", "MemoryError"),
        ("nan component", "must be finite"),
        ("score two", "got 2.0"),
        ("odd answer", "must be text"),
    ],
)
def test_a_crash_is_an_error_and_the_pool_lives_on(pool, how, said):
    (verdict,) = pool.judge_all([acts(how)])
    assert (verdict.score, verdict.status) == (None, "error") and said in verdict.detail
    assert_whole(pool)


def test_what_cannot_be_sent_is_an_error_of_its_own(pool):
    odd = Problem(id="p", prompt="", verifier="number", reference={"value": threading.Lock()})
    verdicts = pool.judge_all([sums(12), (odd, GOOD), sums(12)])
    assert [v.score for v in verdicts] == [1.0, None, 1.0] and "pickle" in verdicts[1].detail


def test_scores_are_finite_and_bounded_and_times_are_real(pool):
    for verdict in pool.judge_all([sums(12), sums(13), acts("behave"), sums(12, "")]):
        assert math.isfinite(verdict.score) and 0.0 <= verdict.score <= 1.0
        assert 0.0 < verdict.exec_s < 0.5 and 0.0 <= verdict.queue_s < 5.0


def test_several_threads_get_their_own_verdicts(pool):
    got = {}

    def ask(value):
        tasks = [sums(value, f"<answer>{n}</answer>") for n in range(40)]
        got[value] = [v.score for v in pool.judge_all(tasks)]

    threads = [threading.Thread(target=ask, args=(value,)) for value in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == {value: [float(n == value) for n in range(40)] for value in range(6)}


@pytest.mark.slow
def test_a_crash_in_one_thread_does_not_touch_another(pool):
    got = {}
    jobs = {"bad": [acts("exit 7")] * 2, "good": [sums(12)] * 200}
    threads = [
        threading.Thread(target=lambda key=key: got.update({key: pool.judge_all(jobs[key])}))
        for key in jobs
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {v.score for v in got["good"]} == {1.0} and {v.score for v in got["bad"]} == {None}


@pytest.mark.slow
def test_waiting_is_reported_and_never_counts_against_the_limit(pool):
    naps = [acts("sleep", nap=n) for n in range(5)]  # 1 s in all, under a limit of 0.6 s each
    assert_whole(pool)
    verdicts = pool.judge_all(naps)
    assert [v.score for v in verdicts] == [1.0] * 5
    waits = [v.queue_s for v in verdicts]
    assert all(0.19 < v.exec_s < 0.5 for v in verdicts)
    assert waits == sorted(waits) and waits[0] < 0.5 and waits[-1] > 0.7


@pytest.mark.slow
def test_fast_verifiers_pay_little_for_the_trip(pool):
    tasks = [sums(12, f"<think>{n}</think>{GOOD}") for n in range(4_000)]
    with cpu_budget(100e-6 * len(tasks)):
        pool.judge_all(tasks)


@pytest.mark.slow
def test_small_batches_of_fast_items_go_in_one_trip_and_slow_ones_are_shared_out(monkeypatch):
    with VerifierPool(workers=2, plugins=[PLUGIN]) as pool:
        pool.warm(["number", "misbehaves"])
        trips = []
        schedule = pool.schedule
        monkeypatch.setattr(pool, "schedule", lambda *call: trips.append(1) or schedule(*call))
        pool.judge_all([sums(12, f"{GOOD}{k}") for k in range(8)])
        assert len(trips) == 2 and pool.costs["number"] > 0.0  # shared out: its cost was not known
        trips.clear()
        for n in range(2):
            pool.costs["number"] = 10e-6  # on a busy host what is measured may be any value
            pool.judge_all([sums(12, f"{GOOD}{n}{k} again") for k in range(8)])
        assert len(trips) == 2
        trips.clear()
        for n in range(2):
            pool.judge_all([acts("sleep", nap=(n, k)) for k in range(2)])
        assert len(trips) == 4


@pytest.mark.slow
def test_verdicts_come_as_they_are_reached(pool):
    tasks = [acts("sleep", nap=f"{n} of three") for n in range(3)]
    groups = list(pool.judge_groups([*tasks, sums(12)]))
    told = {index: verdict for group in groups for index, verdict in group.items()}
    assert sorted(told) == [0, 1, 2, 3] and len(told) == sum(map(len, groups))
    assert all(verdict.score == 1.0 for verdict in told.values()) and len(groups) > 1


@pytest.mark.slow
def test_the_same_response_to_the_same_problem_is_judged_once(pool):
    first, second = pool.judge_all([acts("sleep", nap="twice"), acts("sleep", nap="twice")])
    assert first.score == second.score == 1.0
    assert first.exec_s > 0.19 and 0.0 < second.exec_s < 0.15
    (other,) = pool.judge_all([acts("sleep", nap="another")])
    assert other.exec_s > 0.19
    verdicts = pool.judge_all([acts("raise")] * 2)
    assert [v.status for v in verdicts] == ["error"] * 2


def test_what_ran_out_of_time_or_failed_is_not_remembered(monkeypatch):
    asked = []

    def judge(problem, response):
        asked.append(response)
        if response == "late":
            return Verdict(score=0.0, status="timeout")
        if response == "error":
            return Verdict(score=None, status="error")
        return Verdict(score=1.0, answer=response)

    monkeypatch.setattr(worker, "judge", judge)
    monkeypatch.setattr(worker, "_cache", {})
    monkeypatch.setattr(worker, "CACHE_SIZE", 2)
    problem = sums(1)[0]
    for response in ["late", "late", "error", "error", "a", "a", "b", "a", "c", "a", "x" * 3000]:
        worker._judge(problem, response)
    assert asked == ["late", "late", "error", "error", "a", "b", "c", "a", "x" * 3000]
    assert len(worker._cache) == 2


@pytest.mark.slow
def test_replaced_workers_are_counted(pool):
    before = pool.restarts
    pool.judge_all([acts("exit 7")])
    pool.judge_all([acts("hang", name="counted")])
    assert pool.restarts == before + 2


@pytest.mark.slow
def test_many_hangs_leave_the_pool_whole():
    with VerifierPool(workers=2, limit_s=0.05, plugins=[PLUGIN]) as pool:
        pool.warm(["misbehaves"])
        verdicts = pool.judge_all([acts("hang", name=n) for n in range(30)])
        assert {(v.score, v.status) for v in verdicts} == {(None, "error")}
        pool.limit_s = 5.0
        assert_whole(pool)
        assert pool.restarts >= 30
        children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
        if children.exists():
            assert len(children.read_text().split()) < 20  # nobody is left behind


def test_an_unknown_verifier_is_refused_before_anything_runs(pool):
    problem = Problem(id="p", prompt="", verifier="numbr", reference={})
    with pytest.raises(KeyError, match="Did you mean 'number'"):
        pool.judge_all([(problem, "")])


@pytest.mark.slow
def test_a_worker_killed_from_outside_is_replaced(pool):
    (verdict,) = pool.judge_all([acts("torch?")])
    os.kill(int(verdict.answer), signal.SIGKILL)
    verdicts = pool.judge_all([acts("torch?")] * 3)
    assert [v.status for v in verdicts] == ["graded"] * 3
    assert verdicts[0].answer != verdict.answer


def test_ctrl_c_is_left_to_the_parent(pool):
    (before,) = pool.judge_all([acts("torch?")])
    os.kill(int(before.answer), signal.SIGINT)
    assert pool.judge_all([acts("torch?")])[0].answer == before.answer


@pytest.mark.parametrize("name", ["workers", "limit_s", "memory_mb"])
def test_bounds_are_positive(name):
    with pytest.raises(ValueError, match=f"{name} must be positive, got 0"):
        VerifierPool(**{name: 0})
    with pytest.raises(ImportError, match=r"absent.py"):
        VerifierPool(plugins=["absent.py"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sandbox", "variable", "resolved"),
    [
        ("docker", "reduced", "docker"),
        ("auto", "reduced", "reduced"),
        ("auto", "", "namespace"),
    ],
)
def test_workers_use_the_backend_of_the_pool(monkeypatch, sandbox, variable, resolved):
    monkeypatch.setenv("VERILOOP_SANDBOX", variable)
    with VerifierPool(plugins=[PLUGIN], sandbox=sandbox) as pool:
        assert pool.judge_all([acts("backend")])[0].answer == resolved


def test_a_pool_with_an_unknown_backend_is_refused():
    with pytest.raises(ValueError, match=r"no backend 'doker'\. Did you mean 'docker'"):
        VerifierPool(sandbox="doker")


def test_a_closed_pool_says_so():
    pool = VerifierPool()
    pool.close()
    pool.close()
    with pytest.raises(RuntimeError, match="closed"):
        pool.judge_all([sums(12)])


@pytest.mark.slow
def test_closing_frees_a_thread_that_waits():
    pool = VerifierPool(limit_s=60.0, plugins=[PLUGIN])
    pool.warm(["misbehaves"])
    raised = []

    def ask():
        with pytest.raises(RuntimeError, match="closed") as info:
            pool.judge_all([acts("hang")])
        raised.append(info)

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.3)
    pool.close()
    thread.join(timeout=5.0)
    assert raised


@pytest.mark.slow
def test_warm_workers_do_not_bill_imports_to_the_first_item():
    one = get("math_answer")
    with VerifierPool(limit_s=20.0) as pool:
        pool.warm(["math_answer"])
        (verdict,) = pool.judge_all([(one.example_problem(), one.example.accepts)])
    assert verdict.score == 1.0 and verdict.exec_s < 0.2  # the import alone takes longer


@pytest.mark.slow
def test_who_begins_to_warm_does_not_wait_and_who_judges_then_does():
    one = get("math_answer")
    with VerifierPool(limit_s=20.0) as pool:
        began = time.perf_counter()
        pool.begin_to_warm(["math_answer"])
        begun = time.perf_counter() - began
        pool.warm(["math_answer"])
        assert time.perf_counter() - began > 3 * begun
        asked, schedule = [], pool.schedule
        pool.schedule = lambda *call: asked.append(call[0].__name__) or schedule(*call)
        pool.begin_to_warm(["math_answer"])
        (verdict,) = pool.judge_all([(one.example_problem(), one.example.accepts)])
    assert verdict.exec_s < 0.2 and asked == ["judge_chunk"]


@pytest.fixture
def unready(tmp_path):
    """A plugin whose verifier fails on its own example."""
    path = tmp_path / "unready.py"
    path.write_text(
        "from veriloop.verifiers.registry import verifier\n"
        "@verifier('unready', reference={}, accepts='')\n"
        "def check(problem, response):\n    raise OSError('no engine')\n"
    )
    return str(path)


@pytest.mark.slow
def test_what_fails_to_warm_says_so_to_each_who_waits_for_it(unready):
    with VerifierPool(plugins=[unready]) as pool:
        pool.begin_to_warm(["unready", "number"])
        for names in (["number"], ["unready"]):
            with pytest.raises(UnreadyVerifierError, match=r"cannot judge .*: OSError: no engine"):
                pool.warm(names)
        with pytest.raises(KeyError, match="Did you mean 'number'"):
            pool.begin_to_warm(["numbr"])


@pytest.mark.slow
def test_a_verifier_that_fails_on_its_own_example_stops_the_run(unready):
    problem = Problem(id="p", prompt="", verifier="unready", reference={})
    with (
        VerifierPool(plugins=[unready]) as pool,
        pytest.raises(UnreadyVerifierError, match=r"cannot judge .*: OSError: no engine"),
    ):
        pool.judge_all([(problem, "")])


SCRIPT = """
import sys, time
{imports}
from veriloop.data.problem import Problem
from veriloop.verifiers.pool import VerifierPool
pool = VerifierPool(limit_s=60.0, plugins=[{plugin!r}])
problem = Problem(id="p", prompt="", verifier="misbehaves", reference={{}})
(verdict,) = pool.judge_all([(problem, "torch?")])
print(verdict.answer, verdict.score, flush=True)
{after}
"""


def script(imports, after):
    text = SCRIPT.format(imports=imports, after=after, plugin=PLUGIN)
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    return text, environment


@pytest.mark.slow
def test_a_worker_neither_runs_the_main_script_again_nor_loads_torch(tmp_path):
    text, environment = script("sys.modules['torch'] = sys", "pool.close(); print('once')")
    path = tmp_path / "main.py"
    path.write_text(text)
    ran = subprocess.run(
        [sys.executable, path], env=environment, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split()[1:] == ["0.0", "once"]


@pytest.mark.slow
def test_workers_die_with_their_parent(tmp_path):
    after = "pool.judge_all([(problem, 'hang')])"
    text, environment = script("", after)
    path = tmp_path / "main.py"
    path.write_text(text)
    with subprocess.Popen(
        [sys.executable, path], env=environment, stdout=subprocess.PIPE, text=True
    ) as parent:
        worker = int(parent.stdout.readline().split()[0])
        time.sleep(0.3)
        assert Path(f"/proc/{worker}").exists()
        parent.kill()
    deadline = time.monotonic() + 5.0
    while Path(f"/proc/{worker}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{worker}").exists()


@pytest.fixture
def short_lived(tmp_path):
    """Function: a plugin whose worker is killed the first `times` that it warms up."""

    def write(times):
        path = tmp_path / "short_lived.py"
        path.write_text(
            "import os\nfrom pathlib import Path\n"
            "from veriloop.verifiers.registry import verifier\n"
            "from veriloop.verifiers.verdict import Verdict\n"
            f"LIVES = Path({str(tmp_path / 'lives')!r})\n"
            "@verifier('short_lived', reference={}, accepts='')\n"
            "def check(problem, response):\n"
            "    LIVES.open('a').write('x')\n"
            f"    if len(LIVES.read_text()) <= {times}:\n"
            "        os.kill(os.getpid(), 9)\n"
            "    return Verdict(score=1.0)\n"
        )
        return str(path)

    return write


@pytest.mark.slow
def test_a_worker_killed_while_it_warms_up_is_replaced(short_lived):
    problem = Problem(id="p", prompt="", verifier="short_lived", reference={})
    with VerifierPool(plugins=[short_lived(2)]) as pool:
        (verdict,) = pool.judge_all([(problem, "")])
        assert verdict.score == 1.0 and pool.restarts == 2


@pytest.mark.slow
def test_a_verifier_that_kills_every_worker_stops_the_run(short_lived):
    with (
        VerifierPool(plugins=[short_lived(10**6)]) as pool,
        pytest.raises(UnreadyVerifierError, match="died with exit code -9; `veriloop verifier"),
    ):
        pool.warm(["short_lived"])
