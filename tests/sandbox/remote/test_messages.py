"""Requests and responses are read strictly: the wrong field is named."""

import pytest

from veriloop.sandbox.limits import Limits
from veriloop.sandbox.remote.fields import FieldError, dump, load
from veriloop.sandbox.remote.messages import (
    CommandResult,
    Measured,
    RunReply,
    RunRequest,
    read_reply,
    read_request,
)

LEAST = {"code": "x", "language": "python"}


def test_the_least_request_takes_the_usual_values():
    assert read_request(LEAST) == RunRequest(
        code="x", language="python", stdin="", compile_timeout=10, run_timeout=10,
        memory_limit_MB=-1, limits=None,
    )  # fmt: skip
    empty = {"stdin": None, "files": {}, "fetch_files": [], "args": [], "limits": None}
    assert read_request({**LEAST, **empty}) == read_request(LEAST)


def test_a_request_comes_back_as_it_went():
    limits = Limits(cpu_s=2.5, wall_s=None, memory_mb=77, processes=3)
    asked = RunRequest(
        code="é\x00", language="cpp", stdin="1\n", compile_timeout=1.5, run_timeout=0.25,
        memory_limit_MB=9, limits=limits,
    )  # fmt: skip
    assert read_request(load(dump(asked.flat()))) == asked
    assert "limits" not in RunRequest(code="x", language="python").flat()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"cod": "x"}, "the request has no field 'cod'. Did you mean 'code'? Known: code, lang"),
        ({"code": None}, "code must be a string, got None"),
        ({"code": "\ud800"}, "code must be text without lone surrogates"),
        ({"language": 3}, "language must be a string, got 3"),
        ({"stdin": ["x"]}, "stdin must be a string, got ['x']"),
        ({"run_timeout": "1"}, "run_timeout must be a number from 0 to 3600, got '1'"),
        ({"run_timeout": True}, "run_timeout must be a number from 0 to 3600, got True"),
        ({"run_timeout": 0}, "run_timeout must be more than 0 seconds, got 0"),
        ({"run_timeout": -1}, "run_timeout must be a number from 0 to 3600, got -1"),
        ({"compile_timeout": 3601}, "compile_timeout must be a number from 0 to 3600, got 3601"),
        ({"run_timeout": 10**400}, "run_timeout must be a number"),
        ({"run_timeout": float("nan")}, "run_timeout must be a number"),
        ({"memory_limit_MB": 1.5}, "memory_limit_MB must be an integer from"),
        ({"memory_limit_MB": 10**12}, "memory_limit_MB must be an integer from"),
        ({"files": {"a": "eA=="}}, "files must be empty: no files and no arguments here, got {'a'"),
        ({"fetch_files": ["a"]}, "fetch_files must be empty"),
        ({"args": ["-x"]}, "args must be empty"),
        ({"limits": 3}, "limits must be an object, got 3"),
        ({"limits": {"cpu": 1}}, "limits has no field 'cpu'. Did you mean 'cpu_s'?"),
        ({"limits": {"cpu_s": "1"}}, "cpu_s must be a number from 0 to 3600, got '1'"),
        ({"limits": {"cpu_s": 0}}, "Limits.cpu_s must be positive, got 0"),
        ({"limits": {"memory_mb": 1.0}}, "memory_mb must be an integer from 0 to"),
        ({"limits": {"memory_mb": None}}, "memory_mb must be an integer from 0 to"),
    ],
)
def test_a_wrong_field_is_named_with_its_value_and_what_is_allowed(fields, said):
    with pytest.raises(FieldError) as raised:
        read_request({**LEAST, **fields})
    assert said in str(raised.value) and len(str(raised.value)) < 400


@pytest.mark.parametrize("data", [None, [], "x", 3, {"code": "x"}, {"language": "python"}])
def test_a_request_that_lacks_what_it_must_have_is_refused(data):
    with pytest.raises(
        FieldError, match=r"must be an object|has no '(code|language)'; it must have"
    ):
        read_request(data)


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"\xff", b"[" * 100_000, b"NaN", b"-Infinity", b"9" * 5000, b"{} x"]
)
def test_a_body_that_is_no_json_is_refused(raw):
    with pytest.raises(FieldError, match="the body is no JSON"):
        load(raw)


MEASURED = Measured(
    ended="ok", exit_code=0, signal=None, cpu_s=0.5, waited_s=0.25, peak_mb=1.5, why=""
)


def test_a_response_comes_back_as_it_went_and_what_else_is_in_it_is_ignored():
    told = RunReply(
        status="Success",
        message="m",
        compile_result=CommandResult(status="Finished", return_code=0),
        run_result=CommandResult(status="Finished", execution_time=0.5, return_code=0, stdout="é"),
        measured=MEASURED,
    )
    data = load(dump(told.flat()))
    assert data["files"] == {}
    assert read_reply({**data, "executor_pod_name": "p"}) == told


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"status": "success"}, "Did you mean 'Success'?"),
        ({"status": None}, "status must be one of Success, Failed, SandboxError, got None"),
        ({"message": 3}, "message must be a string, got 3"),
        ({"run_result": "x"}, "run_result must be an object"),
        ({"run_result": {}}, "run_result has no 'status'"),
        ({"run_result": {"status": "Timeout"}}, "status must be one of Finished, Error, TimeLimit"),
        ({"run_result": {"status": "Finished", "return_code": True}}, "return_code must be an int"),
        ({"run_result": {"status": "Finished", "execution_time": -1}}, "execution_time must be"),
        ({"compile_result": []}, "compile_result must be an object"),
        ({"measured": {"ended": "ok"}}, "measured has no 'exit_code'"),
        ({"measured": {**RunReply(status="Failed", measured=MEASURED).flat()["measured"],
                       "ended": "fine"}}, "ended must be one of ok, error"),
        ({"measured": {**RunReply(status="Failed", measured=MEASURED).flat()["measured"],
                       "stdout_base64": "?"}}, "stdout_base64 must be base64"),
    ],
)  # fmt: skip
def test_a_response_that_makes_no_sense_is_refused(fields, said):
    with pytest.raises(FieldError) as raised:
        read_reply({"status": "Failed", "run_result": None, **fields})
    assert said in str(raised.value)
