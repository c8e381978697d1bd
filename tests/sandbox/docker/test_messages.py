"""The host believes nothing: a reply is in order to a bit, or it is refused."""

import io
import math
from dataclasses import replace

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from veriloop.sandbox import wire
from veriloop.sandbox.docker import messages
from veriloop.sandbox.docker.messages import (
    Refusal,
    read_reply,
    read_request,
    reply,
    run_parts,
    run_request,
)
from veriloop.sandbox.executor import Call, Dialogue, Program, Stdin
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.result import Execution
from veriloop.sandbox.wire import WireError

LIMITS = Limits(output_bytes=1000, error_bytes=100)
DONE = Execution(
    ended="ok", exit_code=0, stdout=b"out", stderr=b"err", value={"a": (1, b"\0")}, cpu_s=0.5,
    wall_s=1.0, peak_mb=2.0, why="",
)  # fmt: skip


def taker(data):
    """Reads from bytes; running out of them is an EOFError."""
    stream = io.BytesIO(data)

    def take(size):
        taken = stream.read(size)
        if len(taken) != size:
            raise EOFError
        return taken

    return take


def row(**changes):
    """A reply with one result, some of its fields changed."""
    fields = {
        "ended": "ok", "exit_code": 0, "signal": None, "cpu_s": 0.5, "wall_s": 1.0, "waited_s": 0.0,
        "peak_mb": 2.0,
        "why": "", "sizes": [3, 3, 12],
    }  # fmt: skip
    return fields | changes


def raw(head, *parts):
    return taker(b"".join([wire.encode(head), *parts]))


PARTS = (b"out", b"err", wire.encode(None))


def test_what_goes_in_comes_out():
    given = [
        Stdin(data=b"\xff\n"),
        Call(function="f", args=[1, (2, {3})], kwargs={"x": [None, 1.5, "\ud800"]}),
    ]
    program = Program(source="x = '\ud800'", language="sql", preload=("json",))
    limits = Limits(cpu_s=0.5, wall_s=None, processes=3)
    sent = run_request(program, given, limits)
    assert run_parts(read_request(taker(sent))) == (program, given, limits)


def test_arguments_that_are_no_plain_data_are_refused_by_name():
    with pytest.raises(ValueError, match="arguments of 'solve' are not plain data"):
        run_request(Program(source=""), [Call(function="solve", args=[object()])], LIMITS)


def test_a_dialogue_goes_in_as_it_was_and_comes_back_with_its_peer():
    call = Call(function="f", args=[1], kwargs={"x": 2})
    peer = Program(source="y", preload=("json",))
    dialogue = Dialogue(call=call, peer=peer, peer_call=Call(function="g", args=[3]))
    given, program = [Stdin(), dialogue, call], Program(source="x")
    sent = run_request(program, given, LIMITS)
    assert run_parts(read_request(taker(sent))) == (program, given, LIMITS)
    assert messages.count_runs(given) == 4
    died = Execution(ended="signal", signal=9)
    executions = [DONE, replace(DONE, peer=died), died]
    back = read_reply(taker(reply(executions, LIMITS)), 4, LIMITS)
    assert messages.join_peers(given, back) == executions


def test_a_reply_brings_every_field():
    error = Execution(ended="signal", signal=11, stderr=b"x" * 100, why="died of SIGSEGV")
    sent = reply([DONE, error], LIMITS)
    assert read_reply(taker(sent), 2, LIMITS) == [DONE, error]


@drawn(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text() | st.binary() | st.floats(),
        lambda one: st.lists(one) | st.dictionaries(st.text(), one),
        max_leaves=20,
    )
)
def test_any_value_arrives_as_it_was(value):
    done = Execution(ended="ok", value=value)
    roomy = Limits(output_bytes=1 << 20)
    (back,) = read_reply(taker(reply([done], roomy)), 1, roomy)
    assert repr(back.value) == repr(value) and back.ended == "ok"


def test_a_value_that_grows_too_long_is_the_programs_fault():
    (back,) = read_reply(
        taker(reply([Execution(ended="ok", value="x" * 270_000)], LIMITS)), 1, LIMITS
    )
    assert (back.ended, back.value) == ("protocol", None) and "too long" in back.why


def test_a_value_that_is_no_value_is_the_programs_fault_and_the_rest_is_still_read():
    broken = b"\0" * 7 + b"\4nope"
    parts = (b"out", b"err", broken)
    take = raw({"done": [row(), row()]}, *parts, *PARTS)
    first, second = read_reply(take, 2, LIMITS)
    assert (first.ended, first.value, first.stdout) == ("protocol", None, b"out")
    assert (second.ended, second.stdout) == ("ok", b"out")


@pytest.mark.parametrize(
    "head",
    [
        [],
        None,
        {},
        {"done": []},
        {"done": {}},
        {"done": [row(), row()]},
        {"done": [[]]},
        {"done": [row(more=1)]},
        {"done": [{k: v for k, v in row().items() if k != "why"}]},
        {"done": [row(ended="passed")]},
        {"done": [row(ended=["ok"])]},
        {"done": [row(why=None)]},
        {"done": [row(exit_code="0")]},
        {"done": [row(exit_code=True)]},
        {"done": [row(signal=1.5)]},
        {"done": [row(cpu_s=1)]},
        {"done": [row(wall_s=-1.0)]},
        {"done": [row(peak_mb=math.nan)]},
        {"done": [row(sizes=[3, 3])]},
        {"done": [row(sizes=None)]},
        {"done": [row(sizes=[3, 3, True])]},
        {"done": [row(sizes=[1001, 3, 12])]},
        {"done": [row(sizes=[3, 101, 12])]},
        {"done": [row(sizes=[3, 3, 1 << 40])]},
        {"done": [row(sizes=[-1, 3, 12])]},
        {"raised": "SystemExit", "text": ""},
        {"raised": "ValueError", "text": 3},
        {"raised": "ValueError", "text": "", "more": 1},
    ],
    ids=repr,
)
def test_a_reply_out_of_order_is_refused(head):
    padding = b"\0" * 2000
    with pytest.raises(WireError):
        read_reply(raw(head, *PARTS, padding), 1, LIMITS)


def test_the_reply_that_the_others_were_made_from_is_in_order():
    (done,) = read_reply(raw({"done": [row()]}, *PARTS), 1, LIMITS)
    assert (done.ended, done.stdout, done.stderr, done.value) == ("ok", b"out", b"err", None)


def test_a_head_beyond_its_cap_is_refused_before_it_is_read():
    size = (messages.HEAD_BYTES + 1).to_bytes(8, "big")
    with pytest.raises(WireError, match="at most 65536 are allowed"):
        read_reply(taker(size), 1, LIMITS)
    with pytest.raises(EOFError):  # the same of two cases may be longer
        read_reply(taker(size), 2, LIMITS)


def test_a_refusal_brings_its_words():
    said = messages.refusal(ValueError("language 'cobol'"))
    assert read_reply(taker(said), 1, LIMITS) == Refusal(kind="ValueError", text="language 'cobol'")
