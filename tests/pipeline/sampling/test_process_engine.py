"""An engine in another process: the same answers, its errors passed on, nobody left behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from veriloop.pipeline.config.sections import SamplerConfig
from veriloop.pipeline.model.policy import load_policy
from veriloop.pipeline.sampling import prelaunch as early
from veriloop.pipeline.sampling import process_engine
from veriloop.pipeline.sampling.open import open_sampler
from veriloop.pipeline.sampling.process_engine import (
    ApartSampler,
    EngineGoneError,
    EngineProcess,
    EngineStuckError,
)
from veriloop.pipeline.sampling.sampler import Sampling

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_engines")]  # each has a process
PROMPTS = [(1, 40, 41, 42), (1, 50)]
SAMPLING = Sampling(per_prompt=3, temperature=1.0, max_tokens=12, seed=7)


def config(**changes):
    return SamplerConfig(**{"engine": "torch", "apart": True, "max_batch": 32, **changes})


def opened(folder, **changes):
    return open_sampler(config(**changes), str(folder), max_length=96, say=print)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pid, within=20.0):
    until = time.monotonic() + within
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.05)
    return not alive(pid)


@pytest.fixture
def as_installed(monkeypatch):
    """Engines begin as they do for a user, in a new interpreter."""
    monkeypatch.setattr(process_engine, "subprocess", subprocess)


@pytest.fixture
def apart(tiny_checkpoint):
    sampler = opened(tiny_checkpoint())
    yield sampler
    sampler._process.stop()


@pytest.fixture(scope="module")
def lasting(tiny_checkpoint):
    """An engine that every test leaves as it was."""
    sampler = opened(tiny_checkpoint())
    yield sampler
    sampler._process.stop()


def test_it_samples_what_an_engine_in_this_process_does(as_installed, apart, tiny_checkpoint):
    del as_installed
    assert isinstance(apart, ApartSampler) and apart._process._process.pid != os.getpid()
    here = opened(tiny_checkpoint(), apart=False)
    assert apart.sample(PROMPTS, SAMPLING) == here.sample(PROMPTS, SAMPLING)
    policy = load_policy(tiny_checkpoint())
    for version in (1, 2):  # the second time the memory is there already
        with torch.no_grad():
            for p in policy.parameters():
                p.mul_(1 + 0.3 * version)
        for sampler in (apart, here):
            sampler.load_weights(policy.named_parameters(), version)
        assert apart.version == here.version == version
        assert apart.sample(PROMPTS, SAMPLING) == here.sample(PROMPTS, SAMPLING)


def test_an_error_of_the_engine_is_raised_here_and_the_next_request_is_answered(lasting):
    with pytest.raises(ValueError, match="prompt 0 has 4000 tokens"):
        lasting.sample([(1,) * 4000], SAMPLING)
    assert len(lasting.sample(PROMPTS, SAMPLING)) == 2
    with pytest.raises(ValueError, match="22 weights do not match by name"):
        lasting.load_weights([("other", torch.zeros(2))], 1)
    assert lasting.version == 0


def test_a_checkpoint_that_cannot_be_opened_is_told_at_the_first_use(tmp_path):
    sampler = opened_anywhere = ApartSampler(
        EngineProcess("torch"), str(tmp_path), max_length=9, dtype="float32", cache_gib=1.0,
        max_batch=4,
    )  # fmt: skip
    try:
        with pytest.raises((OSError, ValueError), match=r"config\.json|model_type"):
            opened_anywhere.sample(PROMPTS, SAMPLING)
    finally:
        sampler._process.stop()


def test_an_engine_that_dies_is_told_by_its_exit_and_its_last_words(apart):
    apart.sample(PROMPTS, SAMPLING)
    apart._process._output.write(b"out of everything\n")
    os.kill(apart._process._process.pid, signal.SIGKILL)
    with pytest.raises(EngineGoneError, match=r"killed by signal 9.*\n?.*out of everything"):
        apart.sample(PROMPTS, SAMPLING)


def test_an_engine_that_dies_before_it_gets_the_weights_is_told_by_its_exit(apart):
    apart.sample(PROMPTS, SAMPLING)
    os.kill(apart.pid, signal.SIGKILL)
    apart._process._process.wait()
    with pytest.raises(EngineGoneError, match="killed by signal 9"):
        apart._process.hand_over(0)


def test_an_engine_given_up_while_it_loads_raises_nothing_when_it_is_closed(tiny_checkpoint):
    sampler = opened(tiny_checkpoint())
    sampler.abandon()
    sampler.close()
    assert gone(sampler.pid)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_request_ends_the_engine_and_answers_no_later_one(apart, kind):
    def interrupted(*_):
        raise kind("here")

    with pytest.raises(kind, match="here"):
        apart.sample(PROMPTS, SAMPLING, interrupted)
    assert apart.given_up
    with pytest.raises(EngineGoneError, match="killed by signal 9"):
        apart.sample(PROMPTS[:1], SAMPLING)
    apart.close()


def test_closing_does_not_wait_for_an_engine_that_loads_for_long(tiny_checkpoint, monkeypatch):
    monkeypatch.setattr(process_engine, "PATIENCE_S", 0.5)
    process = EngineProcess("torch")
    os.kill(process.pid, signal.SIGSTOP)
    sampler = ApartSampler(process, str(tiny_checkpoint()), max_length=9, cache_gib=1.0)
    began = time.monotonic()
    sampler.close()
    assert time.monotonic() - began < 60.0 and gone(sampler.pid)


def test_closing_ends_the_process(as_installed, apart):
    del as_installed
    pid = apart._process._process.pid
    apart.close()
    assert gone(pid)


def test_it_dies_with_the_process_that_started_it():
    script = """
import os, signal
from veriloop.pipeline.sampling.process_engine import EngineProcess
engine = EngineProcess("torch")
print(engine._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL and gone(int(ended.stdout))


def test_an_interrupt_from_the_terminal_is_not_for_the_engine(lasting):
    lasting.sample(PROMPTS, SAMPLING)
    os.kill(lasting._process._process.pid, signal.SIGINT)
    assert len(lasting.sample(PROMPTS, SAMPLING)) == 2


def test_a_process_begun_early_is_taken_where_it_fits_and_ended_where_not(tiny_checkpoint):
    early.begin(config())
    begun = early._waiting
    sampler = opened(tiny_checkpoint())
    assert sampler._process is begun and early._waiting is None
    sampler.close()
    early.begin(config())
    pid = early._waiting._process.pid
    core = min(os.sched_getaffinity(0))
    other = early.taken("torch", (core,))
    assert other.cores == (core,) and gone(pid)
    other.stop()
    early.begin(config())
    pid = early._waiting._process.pid
    early.forget()
    assert gone(pid) and early._waiting is None


def test_the_engine_stays_on_its_cores(tiny_checkpoint):
    core = min(os.sched_getaffinity(0))
    sampler = open_sampler(
        config(apart=False), str(tiny_checkpoint()), max_length=96, say=print, cores=(core,)
    )
    sampler.sample(PROMPTS, SAMPLING)
    assert os.sched_getaffinity(sampler._process._process.pid) == {core}
    sampler.close()


def test_the_halves_are_all_cores_and_share_none(monkeypatch):
    for cores, ours, theirs in [({0, 1}, (0,), (1,)), ({2, 5, 7}, (2,), (5, 7)), ({3}, (3,), (3,))]:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: cores)
        assert early.halves() == (ours, theirs)


def test_sleeping_is_for_the_engine_to_do_or_to_refuse(lasting):
    with pytest.raises(NotImplementedError, match="no GPU memory to release"):
        lasting.sleep()
    assert len(lasting.sample(PROMPTS, SAMPLING)) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_signal_to_the_engine_that_still_starts_is_left_to_the_parent(as_installed, number):
    del as_installed
    engine = EngineProcess("torch")
    try:
        os.kill(engine.pid, number)  # before its first line of Python
        time.sleep(1.0)
        os.kill(engine.pid, number)
        assert engine._process.poll() is None
    finally:
        engine.stop()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_signal_to_the_engine_that_samples_is_left_to_the_parent(lasting, number):
    lasting.sample(PROMPTS, SAMPLING)
    os.kill(lasting.pid, number)
    assert len(lasting.sample(PROMPTS, SAMPLING)) == 2


def test_a_stuck_engine_is_killed_at_its_deadline_and_named(apart):
    apart.sample(PROMPTS, SAMPLING)
    apart._process.set_deadline(0.5)
    os.kill(apart.pid, signal.SIGSTOP)
    said = rf"\(pid {apart.pid}\) was silent for 0\.5 s \(sampler\.deadline_s\) .*'sample'"
    with pytest.raises(EngineStuckError, match=said):
        apart.sample(PROMPTS, SAMPLING)
    assert gone(apart.pid)
    apart.close()  # harmless


def test_an_engine_that_reads_nothing_is_stuck_too(apart):
    apart.sample(PROMPTS, SAMPLING)
    apart._process.set_deadline(0.5)
    os.kill(apart.pid, signal.SIGSTOP)
    with pytest.raises(EngineStuckError, match="'sample'"):
        apart.sample([tuple(range(1, 90))] * 20_000, SAMPLING)


def test_a_slow_engine_is_not_stuck_while_parts_of_its_reply_arrive(apart):
    apart._wait_until_loaded()
    apart._process.set_deadline(3600.0)
    assert len(apart.sample(PROMPTS * 4, SAMPLING)) == 8


def test_closing_does_not_wait_for_a_stuck_engine(apart, monkeypatch):
    monkeypatch.setattr(process_engine, "PATIENCE_S", 0.2)
    apart.sample(PROMPTS, SAMPLING)
    os.kill(apart.pid, signal.SIGSTOP)
    failures = []

    def sample():
        try:
            apart.sample(PROMPTS, SAMPLING)
        except EngineGoneError as failure:
            failures.append(failure)

    thread = threading.Thread(target=sample)
    thread.start()
    while apart._process.idle:
        time.sleep(0.01)
    apart.close()
    thread.join(60)
    assert len(failures) == 1 and gone(apart.pid)
