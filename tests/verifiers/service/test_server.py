"""The process: it warms up, drains, and refuses to start where it cannot work."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from veriloop.verifiers.service.middleware import Bounds
from veriloop.verifiers.service.server import RewardService, Settings

ROOT = Path(__file__).parents[3]
PLUGIN = str(Path(__file__).parents[1] / "misbehaving.py")


@pytest.fixture
def started():
    """Function: `veriloop serve` with flags, in a process of its own; its address and process."""
    processes = []

    def start(*flags, **environment):
        words = [sys.executable, "-m", "veriloop.stages.cli", "serve", "--port", "0", *flags]
        process = subprocess.Popen(
            words,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )
        processes.append(process)
        return process.stdout.readline().partition(": ")[0], process

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


def until_ready(ask, url):
    deadline = time.monotonic() + 60
    while ask(url, "/readyz").status != 200:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_sigterm_finishes_what_is_in_progress_and_takes_nothing_more(ask, started, acts, number):
    url, process = started("--plugin", PLUGIN, "--verifiers", "misbehaves", "number")
    until_ready(ask, url)
    answers = []
    batch = {"items": [acts("sleep", id=f"{n}") for n in range(10)]}  # two seconds
    asking = threading.Thread(target=lambda: answers.append(ask(url, "/v1/verify", batch)))
    asking.start()
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    refused = ask(url, "/v1/verify", {"items": [number(1)]})
    assert refused.status == 503 and "retry-after" in refused.headers
    assert ask(url, "/readyz").status == 503 and ask(url, "/healthz").status == 200
    asking.join()
    assert [v["score"] for v in answers[0].json["verdicts"]] == [1.0] * 10
    assert process.wait(20) == 0
    assert "Traceback" not in process.communicate()[1]


@pytest.mark.slow
def test_a_second_signal_does_not_wait(ask, started, acts):
    url, process = started("--plugin", PLUGIN, "--verifiers", "misbehaves", "--limit-s", "60")
    until_ready(ask, url)
    batch = {"items": [acts("hang")]}
    answers = []
    asking = threading.Thread(target=lambda: answers.append(ask(url, "/v1/verify", batch)))
    asking.start()
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    asking.join()
    assert answers[0].status == 503


@pytest.mark.slow
def test_a_verifier_that_cannot_judge_its_example_ends_the_service(started, tmp_path):
    plugin = tmp_path / "unready.py"
    plugin.write_text(
        "from veriloop.verifiers.registry import verifier\n"
        "@verifier('unready', reference={}, accepts='')\n"
        "def check(problem, response):\n    raise OSError('no engine')\n"
    )
    _, process = started("--plugin", str(plugin), "--verifiers", "unready")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "OSError: no engine" in said and "--verifiers" in said and "Traceback" not in said


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--verifiers", "numbr"], "Did you mean 'number'"),
        (["--default", "numbr"], "Did you mean 'number'"),
        (
            ["--verifiers", "number", "choice", "--default", "math_answer"],
            "'math_answer' is not offered; offered: number, choice",
        ),
        (["--host", "0.0.0.0"], "a token is needed"),
        (["--token-variable", "NO_SUCH_VARIABLE"], "holds no token"),
        (["--token-file", "/no/such/file"], "/no/such/file"),
        (["--sandbox", "namespac"], "Did you mean 'namespace'"),
        (["--plugin", "/no/such.py"], "no/such.py"),
    ],
)
def test_what_cannot_be_served_is_one_line(flags, said, capsys):
    from veriloop.stages.cli import MISTAKE, main

    code = main(["serve", "--port", "0", *flags])
    told = capsys.readouterr()
    assert code == MISTAKE and said in told.err and told.err.count("\n") <= 2, told


@pytest.mark.slow
def test_a_token_may_come_from_a_file(ask, started, tmp_path):
    path = tmp_path / "token"
    path.write_text("from a file\n")
    url, _ = started("--verifiers", "number", "--token-file", str(path))
    until_ready(ask, url)
    assert ask(url, "/v1/verifiers").status == 401
    told = {"Authorization": "Bearer from a file"}
    assert ask(url, "/v1/verifiers", headers=told).status == 200


def test_before_the_workers_are_warm_nothing_is_judged(ask, open_service, number):
    service = open_service()
    service.judging.ready = False
    service.warm = lambda: None
    with service:
        answer = ask(service.url, "/v1/verify", {"items": [number(1)]})
        assert answer.status == 503 and answer.headers["retry-after"] == "1"
        assert ask(service.url, "/readyz").status == 503


def test_an_address_in_use_is_reported(service):
    port = service.socket.getsockname()[1]
    with pytest.raises(OSError, match="in use"):
        RewardService(Settings(port=port, verifiers=("number",)))


@pytest.mark.slow
def test_what_takes_longer_than_the_drain_is_cut(ask, open_service, acts):
    service = open_service(limit_s=60.0, bounds=Bounds(drain_s=0.5))
    service.server.config.timeout_graceful_shutdown = 1  # after the drain, for connections
    with service:
        batch = {"items": [acts("hang")]}
        answers = []
        asking = threading.Thread(
            target=lambda: answers.append(ask(service.url, "/v1/verify", batch))
        )
        asking.start()
        while not service.desk.depth:
            time.sleep(0.01)
        began = time.monotonic()
    assert time.monotonic() - began < 15.0
    asking.join(10)
    assert answers[0].status == 503 and "went down" in answers[0].json["detail"]


@pytest.mark.slow
def test_help_does_not_load_the_web_framework():
    code = (
        "import sys; from veriloop.stages.cli import main; main(['--help']); "
        "import veriloop.verifiers.registry as r; r.all_verifiers(); "
        "import veriloop.verifiers.service.client; "
        "assert not {'fastapi', 'uvicorn', 'starlette'} & set(sys.modules), 'loaded'"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
