"""Work on large bodies happens in other processes, which may die or take too long."""

import asyncio
import os
import threading
import time

import pytest

from veriloop.sandbox.remote import off_loop
from veriloop.sandbox.remote.fields import FieldError
from veriloop.sandbox.remote.json_size import json_values
from veriloop.sandbox.remote.messages import RunRequest, load_request
from veriloop.sandbox.remote.off_loop import INLINE_BYTES, in_process, in_thread
from veriloop.sandbox.remote.refusal import Refusal
from veriloop.verifiers.service.json_body import parse

LARGE = INLINE_BYTES + 1


@pytest.fixture(autouse=True)
def processes(monkeypatch):
    own = off_loop._Processes()
    monkeypatch.setattr(off_loop, "_processes", lambda process: own)
    yield own
    own._pool.stop()
    own._pool.join()


def test_small_bodies_are_read_in_line_and_large_ones_in_another_process():
    assert asyncio.run(in_process(INLINE_BYTES, os.getpid)) == os.getpid()
    assert asyncio.run(in_process(LARGE, os.getpid)) != os.getpid()


def test_the_processes_give_way_to_the_one_that_serves():
    assert asyncio.run(in_process(LARGE, os.nice, 0)) == min(19, os.nice(0) + off_loop._NICE)


def test_small_bodies_are_handled_in_line_and_large_ones_in_a_thread():
    own = threading.get_ident()
    assert asyncio.run(in_thread(INLINE_BYTES, threading.get_ident)) == own
    assert asyncio.run(in_thread(LARGE, threading.get_ident)) != own
    assert asyncio.run(in_thread(LARGE, os.getpid)) == os.getpid()


def test_values_are_the_same_in_line_and_in_a_process():
    raw = b'{"a": [1, 2.5, "\\ud800", null, true, 123456789012345678901234567890]}'
    request = b'{"code": "x", "language": "python", "limits": {"cpu_s": 3}}'
    for size in (1, LARGE):
        assert asyncio.run(in_process(size, parse, raw)) == {
            "a": [1, 2.5, "\ud800", None, True, 123456789012345678901234567890]
        }
        assert isinstance(asyncio.run(in_process(size, load_request, request)), RunRequest)
        assert asyncio.run(in_process(size, json_values, raw)) == 8


@pytest.mark.parametrize("size", [1, LARGE])
def test_errors_are_the_same_in_line_and_in_a_process(size):
    with pytest.raises(Refusal) as refused:
        asyncio.run(in_process(size, parse, b"[NaN]"))
    assert refused.value.status == 422 and refused.value.detail.startswith("JSON decode error")
    assert refused.value.headers == {} and str(refused.value).startswith("422: JSON")
    with pytest.raises(FieldError, match="the request has no field 'stdn'"):
        asyncio.run(in_process(size, load_request, b'{"stdn": ""}'))


def test_each_call_has_its_own_result():
    async def lengths():
        calls = [in_process(LARGE, len, "x" * n) for n in range(20)]
        return await asyncio.gather(*calls)

    assert asyncio.run(lengths()) == list(range(20))


def test_a_process_that_dies_is_a_503_and_is_replaced():
    assert asyncio.run(in_process(LARGE, len, "ab")) == 2
    with pytest.raises(Refusal) as refused:
        asyncio.run(in_process(LARGE, os._exit, 3))
    assert refused.value.status == 503 and refused.value.headers == {"Retry-After": "1"}
    assert asyncio.run(in_process(LARGE, len, "abc")) == 3


@pytest.mark.parametrize("limit", ["LIMIT_S", "WAIT_S"])
def test_a_call_without_end_is_a_503_and_does_not_block_the_next(monkeypatch, limit):
    asyncio.run(in_process(LARGE, len, ""))
    with monkeypatch.context() as patch:
        patch.setattr(off_loop, limit, 0.2)
        with pytest.raises(Refusal) as refused:
            asyncio.run(in_process(LARGE, time.sleep, 3600))
    assert refused.value.status == 503 and "too long" in refused.value.detail
    assert asyncio.run(in_process(LARGE, len, "abc")) == 3


def test_a_pool_that_broke_is_replaced(processes):
    asyncio.run(in_process(LARGE, len, ""))
    broken = processes._pool
    broken.stop()
    assert asyncio.run(in_process(LARGE, len, "abc")) == 3
    assert processes._pool is not broken
