"""Each line once, torn ones awaited, and word when a file is no longer what it was."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veriloop.pipeline.watch import tail as module
from veriloop.pipeline.watch.tail import FilePosition, RewrittenError, Tail


@pytest.fixture
def path(tmp_path):
    return tmp_path / "lines.jsonl"


def add(path, content):
    with path.open("ab") as file:
        file.write(content)


def test_lines_come_once_and_a_torn_one_when_it_is_whole(path):
    tail = Tail(path)
    assert tail.read() == []
    add(path, b"one\ntwo\nthr")
    assert tail.read() == [b"one", b"two"] and tail.read() == []
    add(path, b"ee")
    assert tail.read() == []
    add(path, b"\nfour\n")
    assert tail.read() == [b"three", b"four"] and tail.read() == []


def test_an_unchanged_file_is_not_even_opened(path, monkeypatch):
    add(path, b"one\n")
    tail = Tail(path)
    while tail.read():
        pass
    tail.read()
    monkeypatch.setattr(type(path), "open", None)
    assert tail.read() == []


@pytest.mark.parametrize("content", [b"", b"one\n", b"one\nsix\n", b"one\nsix\nseven\n", None])
def test_what_was_taken_back_is_reported_once_and_read_anew(path, content):
    add(path, b"one\ntwo\n")
    tail = Tail(path)
    assert tail.read() == [b"one", b"two"]
    path.unlink()
    if content is not None:
        add(path, content)
    with pytest.raises(RewrittenError):
        tail.read()
    assert b"\n".join(tail.read()) == (content or b"")[:-1]


def test_the_same_beginning_in_another_file_is_read_on(path, tmp_path):
    add(path, b"one\ntwo\n")
    tail = Tail(path)
    tail.read()
    add(tmp_path / "fresh", b"one\ntwo\nthree\n")
    (tmp_path / "fresh").replace(path)
    assert tail.read() == [b"three"]


def test_a_line_that_is_too_long_is_passed_over(path, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 8)
    monkeypatch.setattr(module, "MAX_LINE", 32)
    tail = Tail(path)
    add(path, b"a\n" + b"x" * 30)
    assert tail.read() == [b"a"] and tail.read() == []
    add(path, b"\n" + b"y" * 60)
    assert tail.read() == [b"x" * 30] and tail.read() == []
    add(path, b"\nend\n")
    assert tail.read() == [None] and tail.read() == [b"end"]


def test_a_block_is_the_most_that_is_read(path, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 10)
    add(path, b"12345\n" * 3)
    tail = Tail(path)
    assert [len(tail.read()) for _ in range(4)] == [1, 1, 1, 0]


def test_a_place_is_held_by_the_file_it_was_taken_of(path):
    add(path, b"one\ntwo\n")
    tail = Tail(path)
    tail.read()
    other = Tail(path)
    assert other.holds(tail.position) and other.holds(FilePosition())
    assert not other.holds(FilePosition(4, tail.position.mark)) and not other.holds(
        FilePosition(400, 0)
    )
    assert not Tail(path.with_name("none")).holds(tail.position)
    assert Tail(path.with_name("none")).holds(FilePosition())


def test_nothing_behind_a_place_is_read_up_to_it(path):
    add(path, b"one\n")
    tail = Tail(path)
    tail.read()
    add(path, b"two\n")
    other = Tail(path)
    assert other.read(tail.position) == [b"one"] and other.read(tail.position) == []
    assert other.position == tail.position and other.read() == [b"two"]


@pytest.mark.slow
@given(st.lists(st.binary(max_size=30)), st.integers(1, 12))
def test_however_a_file_is_written_its_whole_lines_come_in_order(tmp_path_factory, parts, most):
    path = tmp_path_factory.mktemp("tail") / "lines"
    tail, found = Tail(path), []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "BLOCK", most)
        for part in parts:
            add(path, part)
            while lines := tail.read():
                found += lines
    assert found == b"".join(parts).split(b"\n")[:-1]
