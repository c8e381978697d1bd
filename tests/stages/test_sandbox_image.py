"""`veriloop sandbox build-image`: what it passes on, what it prints, what it refuses."""

import pytest

from pipeline.failures import RecipeError, StageError
from sandbox.docker.image import Built
from sandbox.probe import SandboxUnavailableError
from stages import sandbox_command, sandbox_image


@pytest.fixture
def asked(monkeypatch):
    """What was asked of the builder, which answers, or raises what the test puts in."""
    calls = []

    def build(tag, base):
        calls.append((tag, base))
        if isinstance(calls[0], Exception):
            raise calls[0]
        return Built(tag="veriloop-sandbox:abc", size_mb=50.4)

    monkeypatch.setattr(sandbox_image, "build", build)
    return calls


def test_the_image_of_this_machine_is_told_by_its_name(asked, capsys):
    assert sandbox_command.command(["sandbox", "build-image"]) == 0
    assert capsys.readouterr().out == "veriloop-sandbox:abc: 50 MB\n"
    assert asked == [("", None)]


def test_a_name_and_a_base_are_passed_on(asked, tmp_path):
    base = tmp_path / "base.tar"
    base.touch()
    words = ["--tag", "mine:1", "--from-rootfs", str(base)]
    assert sandbox_command.command(["sandbox", "build-image", *words]) == 0
    assert asked == [("mine:1", base)]


def test_a_base_that_is_not_there_is_refused(asked):
    with pytest.raises(RecipeError, match=r"--from-rootfs /nowhere\.tar: no such file"):
        sandbox_command.command(["sandbox", "build-image", "--from-rootfs", "/nowhere.tar"])
    assert not asked


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (SandboxUnavailableError("no daemon"), StageError),
        (ValueError("no python"), RecipeError),
        (OSError("no libraries"), StageError),
    ],
)
def test_a_failure_is_told_in_one_line(asked, raised, told):
    asked.append(raised)
    with pytest.raises(told, match=str(raised)):
        sandbox_command.command(["sandbox", "build-image"])
