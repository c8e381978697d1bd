"""From the words of the API to how a run ended, and back."""

import pytest

from veriloop.sandbox.limits import Limits
from veriloop.sandbox.remote.messages import CommandResult, RunReply, read_reply
from veriloop.sandbox.remote.outcomes import FaultError, printable, to_execution, to_reply
from veriloop.sandbox.result import Execution

LIMITS = Limits(cpu_s=1, wall_s=3, memory_mb=64, output_bytes=1000, error_bytes=50)


def ended(of_all="Failed", /, *, message="", **ran):
    reply = RunReply(
        status=of_all, message=message, run_result=CommandResult(**{"status": "Finished", **ran})
    )
    return to_execution(reply, LIMITS)


@pytest.mark.parametrize(
    ("ran", "end", "code", "number", "why"),
    [
        ({"return_code": 1, "stderr": "x\nValueError: no\n"}, "error", 1, None,
         "exit code 1: ValueError: no"),
        ({"return_code": 3, "status": "Error"}, "error", 3, None, "exit code 3: "),
        ({"return_code": 128}, "error", 128, None, "exit code 128: "),
        ({"return_code": 200}, "error", 200, None, "exit code 200: "),
        ({"return_code": -11}, "signal", None, 11, "died of signal 11"),
        ({"return_code": 137}, "signal", None, 9, "died of signal 9"),
        ({"return_code": -9, "status": "Error"}, "signal", None, 9, "died of signal 9"),
        ({"status": "TimeLimitExceeded"}, "wall", None, None, "still running after 3 s"),
        ({"return_code": 1, "stderr": "Traceback\nMemoryError"}, "memory", 1, None,
         "MemoryError within 64 MB"),
        ({"return_code": -9, "message": "Memory limit exceeded"}, "memory", None, 9,
         "Memory limit exceeded"),
        ({"return_code": 1, "message": "MemoryLimitExceeded"}, "memory", 1, None,
         "MemoryLimitExceeded"),
    ],
)  # fmt: skip
def test_every_way_to_fail_has_its_end(ran, end, code, number, why):
    done = ended(**ran)
    assert (done.ended, done.exit_code, done.signal, done.why) == (end, code, number, why)


@pytest.mark.parametrize(
    ("status", "ran"),
    [
        ("Success", {"return_code": None}),
        ("Success", {"return_code": 0, "status": "TimeLimitExceeded"}),
        ("Success", {"return_code": 0, "status": "Error"}),
        ("Failed", {"return_code": 0}),
        ("Failed", {"status": "Error"}),
        ("SandboxError", {"return_code": 0, "message": "out of memory"}),
    ],
)
def test_words_that_do_not_go_together_are_a_fault(status, ran):
    with pytest.raises(FaultError):
        ended(status, **ran)


def test_a_compiler_that_fails_is_the_programs_error():
    failed = CommandResult(status="Finished", return_code=1, stderr="x.cpp:1: error: no")
    done = to_execution(RunReply(status="Failed", compile_result=failed), LIMITS)
    assert (done.ended, done.exit_code, done.stderr) == ("error", 1, b"x.cpp:1: error: no")
    slow = CommandResult(status="TimeLimitExceeded")
    assert to_execution(RunReply(status="Failed", compile_result=slow), LIMITS).ended == "wall"
    fine = CommandResult(status="Finished", return_code=0)
    with pytest.raises(FaultError):
        to_execution(RunReply(status="Success", compile_result=fine), LIMITS)
    ran = RunReply(status="Success", compile_result=fine, run_result=fine)
    assert to_execution(ran, LIMITS).ended == "ok"


def test_our_caps_hold_whatever_comes():
    done = ended("Success", return_code=0, stdout="é" * 501, stderr="e" * 100)
    assert done.ended == "output" and done.why == "wrote more than 1000 bytes"
    assert len(done.stdout) == 1000 and len(done.stderr) == 50
    assert ended("Success", return_code=0, stdout="é" * 500).ended == "ok"


@pytest.mark.parametrize(
    ("ran", "end"),
    [
        ({"status": "TimeLimitExceeded"}, "sandbox_error"),  # it may have waited for its reader
        ({"return_code": 1}, "error"),
        ({"return_code": -9}, "signal"),
    ],
)
def test_a_doubtful_output_spoils_only_what_depends_on_it(ran, end):
    reply = RunReply(
        status="Failed",
        run_result=CommandResult(**{"status": "Finished", **ran, "stdout": "x" * 99}),
    )
    assert to_execution(reply, LIMITS, 99).ended == end
    assert to_execution(reply, LIMITS, 100).ended != "sandbox_error"


@pytest.mark.parametrize(
    ("ran", "status", "of_command", "code"),
    [
        (Execution(ended="ok", exit_code=0, stdout=b"\xff\x00", cpu_s=0.5, peak_mb=9.5),
         "Success", "Finished", 0),
        (Execution(ended="error", exit_code=3, stderr=b"\xfe", why="so"), "Failed", "Finished", 3),
        (Execution(ended="signal", signal=11), "Failed", "Finished", -11),
        (Execution(ended="cpu", signal=9, wall_s=2.5), "Failed", "TimeLimitExceeded", None),
        (Execution(ended="wall", signal=9), "Failed", "TimeLimitExceeded", None),
        (Execution(ended="memory", exit_code=1), "Failed", "Finished", 1),
        (Execution(ended="memory"), "Failed", "Finished", -9),
        (Execution(ended="output", exit_code=0), "Failed", "Finished", -9),
        (Execution(ended="error", exit_code=137), "Failed", "Finished", 137),
    ],
)  # fmt: skip
def test_an_execution_comes_back_as_it_went(ran, status, of_command, code):
    reply = to_reply(ran)
    assert (reply.status, reply.run_result.status, reply.run_result.return_code) == (
        status, of_command, code
    )  # fmt: skip
    assert to_execution(read_reply(reply.flat()), LIMITS, 1) == ran


def test_without_our_addition_the_same_response_still_means_the_same():
    for ran, end in (
        (Execution(ended="ok", exit_code=0), "ok"),
        (Execution(ended="error", exit_code=3), "error"),
        (Execution(ended="signal", signal=11), "signal"),
        (Execution(ended="cpu", signal=9), "wall"),
        (Execution(ended="memory", exit_code=1, stderr=b"MemoryError"), "memory"),
    ):
        data = to_reply(ran).flat()
        del data["measured"]
        assert to_execution(read_reply(data), LIMITS).ended == end


def test_our_own_failure_stays_one():
    reply = to_reply(Execution(ended="sandbox_error", why="the slot is gone"))
    assert (reply.status, reply.run_result, reply.measured) == ("SandboxError", None, None)
    with pytest.raises(FaultError, match="the server failed: the slot is gone"):
        to_execution(reply, LIMITS)


def test_what_a_server_says_is_one_short_printable_line():
    assert printable("a\nb\x1b[31m\u202e" + "x" * 999) == "a b?[31m?" + "x" * 291
