"""Packed tests are read as text; a pickle that would run anything is refused."""

import base64
import os
import pickle
import zlib

import pytest

from veriloop.data.hub import livecodebench
from veriloop.data.hub.layout import Layout, UnusableRow


def pack(raw):
    return base64.b64encode(zlib.compress(raw)).decode()


class Attack:
    """What unpickling would call."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


def test_a_packed_text_is_read(packing):
    assert livecodebench.unpack(packing([{"input": "1"}])) == [{"input": "1"}]
    assert livecodebench.unpack('[{"input": "1"}]') == [{"input": "1"}]


def test_a_pickle_that_calls_something_is_refused_and_calls_nothing(tmp_path):
    marker = tmp_path / "made"
    raw = pickle.dumps(Attack(marker))
    pickle.loads(raw)
    assert marker.is_dir()  # it would have
    marker.rmdir()
    with pytest.raises(UnusableRow, match="a pickle that references code"):
        livecodebench.unpack(pack(raw))
    assert not marker.exists()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_classes_are_refused_in_every_protocol(protocol):
    with pytest.raises(UnusableRow, match="a pickle that references code"):
        livecodebench.unpack(pack(pickle.dumps(Attack("x"), protocol)))


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("AAAA", "neither JSON nor packed"),
        ("not base64!", "neither JSON nor packed"),
        (pack(b"no pickle"), "an unreadable pickle"),
        (pack(b""), "an unreadable pickle"),
        (pack(pickle.dumps([1, 2])[:-2]), "an unreadable pickle"),
        (pack(pickle.dumps({"a": {1}})), "an unreadable pickle"),
        (pack(pickle.dumps("no JSON")), "an unreadable pickle"),
    ],
)
def test_anything_else_is_refused_with_the_reason(said, reason):
    with pytest.raises(UnusableRow, match=reason):
        livecodebench.unpack(said)


def test_what_would_fill_the_memory_is_refused_before_it_does(monkeypatch):
    monkeypatch.setattr(livecodebench, "LARGEST", 1000)
    assert livecodebench.unpack(pack(pickle.dumps('["' + "a" * 900 + '"]')))
    with pytest.raises(UnusableRow, match="too large"):
        livecodebench.unpack(pack(pickle.dumps('["' + "a" * 2000 + '"]')))


def row(tests, metadata="{}"):
    return {"public_test_cases": tests, "private_test_cases": "[]", "metadata": metadata}


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (row([]), "no tests"),
        (row([{"input": "1", "output": "1", "testtype": "new"}]), "an unknown kind"),
        (row([{"input": "1", "output": "1", "testtype": "functional"}]), "no function name"),
        (
            row(
                [{"input": "1 2", "output": "1", "testtype": "functional"}],
                '{"func_name": "f"}',
            ),
            "arguments are not JSON",
        ),
        (row([{"input": "1", "testtype": "stdin"}]), "standard input or output is not text"),
        (
            row([{"input": "1", "output": "1", "testtype": "functional"}], "{broken"),
            "metadata is not JSON",
        ),
        (
            row([{"input": "1", "output": "1", "testtype": "functional"}], '"f"'),
            "no function name",
        ),
    ],
)
def test_tests_that_cannot_be_run_are_reported(found, reason):
    with pytest.raises(UnusableRow, match=reason):
        livecodebench.tests(found, Layout())
