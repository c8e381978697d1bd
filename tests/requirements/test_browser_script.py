"""requirements/browser.sh on machines made of small programs: what it installs and says."""

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "requirements" / "browser.sh"


@pytest.fixture
def ran(tmp_path, programs):
    """Runs the script where only these programs exist: name to body."""

    def run(**bodies):
        programs(**bodies)
        words = ["/bin/sh", str(SCRIPT)]
        ran = subprocess.run(
            words, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran
        return ran.stderr

    return run


@pytest.mark.parametrize("name", ["chromium", "chromium_browser", "google_chrome"])
def test_a_browser_that_is_there_is_enough(ran, tmp_path, name):
    assert ran(**{name: "exit 0"}, id="echo 0", apt_get="echo > $HERE/asked") == ""
    assert not (tmp_path / "asked").exists()


def test_it_is_installed_where_we_are_root(ran, tmp_path):
    assert ran(id="echo 0", apt_get='echo "$@" >> $HERE/asked') == ""
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked == ["update -q", "install -yq --no-install-recommends chromium fonts-wqy-microhei"]


OTHERS, ROOT = {"id": "echo 1000"}, {"id": "echo 0"}


@pytest.mark.parametrize(
    "bodies", [OTHERS | {"apt_get": "exit 0"}, ROOT, ROOT | {"apt_get": "exit 1"}]
)
def test_without_one_it_says_what_is_left_out(ran, bodies):
    assert ran(**bodies) == "no Chromium on this machine, so reports are not opened in one\n"
