"""Processes that begin with torch and the samplers imported: forked from one that has them."""

import atexit
import contextlib
import faulthandler
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import traceback
from multiprocessing import forkserver
from multiprocessing.reduction import DupFd
from pathlib import Path
from tempfile import TemporaryDirectory, mkstemp

from veriloop.pipeline.sampling.ports import reserved_port

CONTEXT = multiprocessing.get_context("forkserver")
ROOT = Path(__file__).parents[1]
IMPORTED = [
    "tests.vllm_stand_in", "veriloop.pipeline.sampling.torch_engine",
    "veriloop.pipeline.sampling.vllm_worker", "veriloop.pipeline.rl.loop", "veriloop.stages.cli",
    "veriloop.stages.rank_worker", "torch._dynamo", "transformers.models.llama.modeling_llama",
]  # fmt: skip


def start_server():
    """Start the process that the others are forked from, if it does not run. They have its mask of
    signals, which is that of this thread now."""
    CONTEXT.set_forkserver_preload(IMPORTED)
    forkserver.ensure_running()


def forked(target, *arguments):
    """(process, connection) of `target(connection, *arguments)`, a function of a module."""
    start_server()
    own, others = CONTEXT.Pipe()
    process = CONTEXT.Process(target=target, args=(others, *arguments), daemon=True)
    process.start()
    others.close()
    return process, own


def forked_command(words, cwd=ROOT, said=os.devnull, **variables):
    """The process of `veriloop WORDS`, whose output goes to the file `said`."""
    return _process(veriloop, [*map(str, words)], cwd, said, variables)


class ForkedGroup:
    """`veriloop WORDS` as the leader of a group of processes, as a shell starts it."""

    def __init__(self, words, folder):
        """`folder`: where its output is kept."""
        descriptor, name = mkstemp(suffix=".said", dir=folder)
        os.close(descriptor)
        self._said = Path(name)
        self._process = _process(_leader, [*map(str, words)], ROOT, name, {})
        self.pid = self._process.pid

    @property
    def code(self):
        """None while it runs."""
        return self._process.exitcode

    @property
    def said(self):
        return self._said.read_text()

    def signal(self, number, *, group=False):
        (os.killpg if group else os.kill)(self.pid, number)

    def ended(self, seconds):
        """Its exit code and what it said."""
        self._process.join(seconds)
        if self.code is None:
            self.signal(signal.SIGKILL, group=True)
            raise AssertionError(f"it runs after {seconds} s: {self.said}")
        return self.code, self.said


def forked_popen(words, *, pass_fds, env, stdin, stdout, stderr):
    """In place of the `subprocess.Popen` with which `process_engine` starts a sampler. Engines of
    vLLM begin in a new interpreter all the same. Signals are blocked meanwhile: `start_server` must
    have been called."""
    killed, engine, *cores = words[5:]  # after python -m MODULE SOCKET LIFE
    if engine != "torch":
        return subprocess.Popen(
            words, pass_fds=pass_fds, env=env, stdin=stdin, stdout=stdout, stderr=stderr
        )
    return ForkedEngine([killed, engine, *cores], [*pass_fds, stdout.fileno()], env)


class ForkedEngine:
    """A sampler's process, as `subprocess.Popen` has it."""

    def __init__(self, words, descriptors, environment):
        passed = [_Passed(descriptor) for descriptor in descriptors]
        arguments = (words, passed, environment)
        self._process = CONTEXT.Process(target=_engine, args=arguments, daemon=True)
        self._process.start()
        self.pid, self.kill = self._process.pid, self._process.kill

    def wait(self, timeout=None):
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("engine", timeout)
        return self._process.exitcode


class _Passed:
    """A file descriptor that arrives in the process as one of its own."""

    def __init__(self, fd):
        self.fd = fd

    def __reduce__(self):
        return _received, (DupFd(self.fd),)


def _received(duplicate):
    return duplicate.detach()


def forked_ranks(words, count, cwd=ROOT, seconds=480):
    """What `count` ranks of `veriloop WORDS` say, as a launcher starts them; each ends with 0."""
    return called_on_ranks(veriloop, [*map(str, words)], count, cwd, seconds)


def called_on_ranks(function, arguments, count, cwd=ROOT, seconds=480):
    """What `count` ranks say that each call a function of a module; each ends with 0."""
    codes, said = ends_of_ranks(function, arguments, count, cwd, seconds)
    assert codes == [0] * count, f"exit codes {codes}: {said[-4000:]}"
    return said


def ends_of_ranks(function, arguments, count, cwd=ROOT, seconds=480):
    """The exit codes of `count` ranks that each call a function of a module, and what they say, one
    after the other. The first that fails is the end of the others, as under a launcher."""
    whole = {"WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1"}
    with TemporaryDirectory() as folder, reserved_port("127.0.0.1") as port:
        whole["MASTER_PORT"] = port.getsockname()[1]
        said = [Path(folder) / str(rank) for rank in range(count)]
        ranks = []
        for rank in range(count):
            variables = {**whole, "RANK": rank, "LOCAL_RANK": rank}
            named = {name: str(value) for name, value in variables.items()}
            said[rank].touch()  # a rank may end before it opens its file
            ranks.append(_process(function, arguments, cwd, said[rank], named))
        deadline = time.monotonic() + seconds
        while any(rank.exitcode is None for rank in ranks):
            late = time.monotonic() > deadline
            if late:
                _show_stacks(ranks)
            if late or any(rank.exitcode for rank in ranks):
                for rank in ranks:
                    rank.kill()
            time.sleep(0.05)
        return [rank.exitcode for rank in ranks], "".join(own.read_text() for own in said)


def _show_stacks(processes):
    """Each process adds to what it says where its threads are."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGUSR1)
    time.sleep(1)


def _process(function, arguments, cwd, said, variables):
    start_server()
    named = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src"), **variables}
    settings = (str(cwd), str(said), {**os.environ, **named})
    process = CONTEXT.Process(target=_called, args=(function, arguments, *settings))
    process.start()
    return process


def _called(function, arguments, cwd, said, environment):
    import torch

    output = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
    faulthandler.enable(2)  # a crash says where
    faulthandler.register(signal.SIGUSR1, 2)
    os.environ.clear()
    os.environ.update(environment)
    torch.set_num_threads(1)
    os.chdir(cwd)
    try:
        code = function(*arguments)
    except Exception:  # noqa: BLE001 - an exit function may end the process before it is said
        traceback.print_exc()
        code = 1
    finally:
        atexit._run_exitfuncs()  # which multiprocessing leaves out
    sys.exit(code)


def _engine(words, descriptors, environment):
    import torch

    from veriloop.pipeline.sampling import engine_process

    socket, life, output = descriptors
    for stream in (1, 2):
        os.dup2(output, stream)
    os.environ.update(environment)
    torch.set_num_threads(int(environment.get("OMP_NUM_THREADS", "1")))
    engine_process.main([str(socket), str(life), *words])


def _leader(*words):
    os.setsid()
    return veriloop(*words)


def veriloop(*words):
    """Run the command in this process; its exit code."""
    from veriloop.stages.cli import entry

    sys.argv = ["veriloop", *words]
    return entry()
