"""requirements/docker.sh on machines made of small programs: what it starts, and what it says."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "requirements" / "docker.sh"
ANSWERS_ONCE_STARTED = "[ -e $HERE/started ]"
QUIET = {"sleep": "exit 0", "seq": "echo 1 2 3", "setsid": 'exec "$@"', "tail": "echo no driver"}


@pytest.fixture
def said(tmp_path, programs):
    """Runs the script where only these programs exist: name to body. What it said."""

    def run(**bodies):
        programs(**QUIET | bodies)
        script = SCRIPT.read_text().replace("/var/log/", f"{tmp_path}/")
        words = ["/bin/sh", "-c", script]
        ran = subprocess.run(
            words, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
        )
        assert (ran.returncode, ran.stdout) == (0, ""), ran
        return ran.stderr

    return run


def test_a_daemon_that_answers_is_left_alone(said, tmp_path):
    assert said(docker="exit 0", dockerd="touch $HERE/started") == "docker: a daemon answers\n"
    assert not (tmp_path / "started").exists()


def test_who_is_not_root_is_told_and_goes_on(said):
    told = said(docker="exit 1", id="echo 1000", dockerd="touch $HERE/started")
    assert "only root can install and start one" in told and "are skipped" in told


def test_without_a_package_to_install_it_goes_on(said):
    assert "there is no apt-get" in said(id="echo 0")
    assert "docker.io does not install" in said(id="echo 0", apt_get="exit 100")


@pytest.mark.slow
def test_the_engine_is_installed_and_started_without_touching_the_network(said, tmp_path):
    install = "cp $HERE/docker.new $HERE/docker; cp $HERE/dockerd.new $HERE/dockerd"
    daemon = 'echo "$@" > $HERE/words; : > $HERE/started'
    os.symlink("/bin/cp", tmp_path / "cp")
    told = said(
        id="echo 0",
        apt_get=install,
        sleep="exec /bin/sleep 0.5",  # a busy machine starts a daemon late
        **{"docker.new": ANSWERS_ONCE_STARTED, "dockerd.new": daemon},
    )
    assert "started a daemon (overlay2" in told and "to end it: kill " in told
    words = (tmp_path / "words").read_text().split()
    assert {"--bridge=none", "--iptables=false", "--ip-forward=false"} <= set(words)


def test_a_package_that_starts_its_own_daemon_needs_no_second_one(said, tmp_path):
    told = said(
        id="echo 0", dockerd="exit 1", docker="[ -e $HERE/asked ] || { : > $HERE/asked; exit 1; }"
    )
    assert told == "docker: the daemon that came with the package answers\n"


def test_a_daemon_that_does_not_start_is_told_with_its_last_words(said):
    told = said(id="echo 0", dockerd="exit 1", docker="exit 1")
    assert "dockerd does not start: no driver; the tests of the Docker backend are skipped" in told
