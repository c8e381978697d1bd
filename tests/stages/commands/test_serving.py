"""What every command that serves has in common."""

import subprocess
import sys

import pytest

from veriloop.pipeline.errors import RecipeError
from veriloop.stages.commands.serving import serving_on, token_of

FREED = """
import sys, psutil
from veriloop.stages.commands.serving import return_freed_bodies
if sys.argv[1:]:
    return_freed_bodies()
def body(): return b"x" * (16 << 20)
before = psutil.Process().memory_info().rss
body()  # glibc would keep all later blocks up to this size
bodies = [body() for _ in range(8)]
pin = b"x" * (200 << 10)
del bodies
print((psutil.Process().memory_info().rss - before) >> 20)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_memory_of_freed_bodies_is_returned():
    def kept(*words):
        command = [sys.executable, "-c", FREED, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return int(done.stdout)

    assert kept() > 64 > 8 > kept("returned")


@pytest.mark.parametrize("failure", [ValueError, OverflowError, OSError])
def test_an_address_out_of_use_is_named(failure):
    with (
        pytest.raises(RecipeError, match="cannot serve on somewhere:80: no"),
        serving_on("somewhere", 80),
    ):
        raise failure("no")


def test_what_is_served_has_messages_of_its_own():
    with pytest.raises(RecipeError, match=r"^no head in here$"), serving_on("somewhere", 80):
        raise RecipeError("no head in here")


def test_a_token_comes_from_a_variable_or_a_file(monkeypatch, tmp_path):
    path = tmp_path / "token"
    path.write_text("abc\nrest\n")
    monkeypatch.setenv("A_TOKEN", "xyz")
    assert (token_of(""), token_of("A_TOKEN"), token_of("", str(path))) == ("", "xyz", "abc")


def test_what_holds_no_token_is_named(monkeypatch, tmp_path):
    path = tmp_path / "token"
    path.write_bytes(b"")
    monkeypatch.delenv("NOT_SET", raising=False)
    for words, said in {
        ("NOT_SET",): "--token-variable NOT_SET holds no token",
        ("", str(path)): f"--token-file {path} holds no token",
        ("", "/no/such/file"): "--token-file /no/such/file: .*No such file",
        ("A", "b"): "exclude each other",
    }.items():
        with pytest.raises(RecipeError, match=said):
            token_of(*words)
