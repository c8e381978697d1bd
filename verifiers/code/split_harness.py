"""Runs assert-style tests without exposing their expected values to the program.

The tests run in one sandbox and the program in another, joined by two pipes. The tests send
requests (call this, read that attribute, give the next items), and the program answers, or sends a
request itself where it was given a callback. Only plain data crosses; objects, generators and
functions stay on their side, and the other side gets a proxy (`verifiers/code/split`). The program
can access neither the tests nor their verdict, which the tests' process returns.
"""

from collections.abc import Sequence

from veriloop.sandbox.executor import DIALOGUE_BACKENDS, Dialogue, Executor, Program
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.result import Execution
from veriloop.verifiers.code.budget import Budget
from veriloop.verifiers.code.outcome import OURS, Outcome
from veriloop.verifiers.code.split.channel import STARTED
from veriloop.verifiers.code.split_code import side_call, side_program
from veriloop.verifiers.code.split_replay import run_replayed

_ATTEMPTS = 2  # at a program whose sandbox fails


def run_trial(
    box: Executor,
    program: Program,
    needed: Sequence[str],
    tests: str,
    limits: Limits,
    setup: str = "",
    budget: Budget | None = None,
) -> Outcome:
    """The outcome of `tests` on the program.

    The program must define all names in `needed`; the first is the function or class under test.
    The `limits` hold for the tests and for the program, and both are charged to `budget`. Tests may
    be statements, define `check(candidate)`, be functions and classes for pytest or unittest, and
    import the program as `solution`. The outcome is "broken" if the tests are unusable whatever the
    program answers: they fail before its first answer, send no request, or need something that no
    proxy supports.

    On a backend that runs one program at a time, each message takes a run: see `run_replayed`.
    """
    whole = Budget(limits.wall) if budget is None else budget
    if box.backend not in DIALOGUE_BACKENDS:
        return run_replayed(box, program, needed, tests, limits, setup, whole)
    cap = limits.output_bytes
    dialogue = Dialogue(
        call=side_call("live_trial", list(needed), setup, tests, cap),
        peer=side_program(program.preload),
        peer_call=side_call("serve", program.source, list(needed), cap),
    )
    outcome = Outcome("sandbox_error")
    for _ in range(_ATTEMPTS):
        execution = box.run(side_program(program.preload), dialogue, limits)
        for run in (execution, execution.peer):
            if run is not None:
                whole.charge(run, limits.wall)
        outcome = _outcome(execution)
        if outcome.ended != "sandbox_error":
            break
    return outcome


def _outcome(execution: Execution) -> Outcome:
    peer = execution.peer
    if execution.ended in OURS or peer is None:
        return Outcome("sandbox_error", execution.why)
    if execution.ended != "ok":
        return _ended_by_tests(execution)
    match execution.value:
        case ["over", str() as ended]:
            return Outcome(ended)
        case ["over", "broken" as ended, str() as reason]:
            return Outcome(ended, reason)
    if peer.ended in OURS:
        return Outcome(peer.ended, peer.why)
    return Outcome("wrong" if peer.ended == "ok" else peer.ended)  # it hung up


def _ended_by_tests(execution: Execution) -> Outcome:
    """The outcome if the tests' process ended without a verdict.

    Only a process that has certainly had no answer died by itself; "wall" may be the program's.
    """
    if execution.stderr == STARTED and execution.ended != "wall":
        return Outcome("broken", f"the tests ended with {execution.ended} before any answer")
    return Outcome(execution.ended)
