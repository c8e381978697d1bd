"""A container that somebody has taken over: whatever its server says, the host is not fooled."""

import json
import os

import pytest

from veriloop.sandbox.docker import container
from veriloop.sandbox.docker.pool import DockerExecutor
from veriloop.sandbox.executor import Program, Stdin
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.probe import SandboxUnavailableError

pytestmark = pytest.mark.docker
TAG = f"veriloop-lies:of-test-{os.getpid()}"
LIMITS = Limits(cpu_s=1, wall_s=0.5)
SERVER = """
import os, sys, time
from veriloop.sandbox import wire
from veriloop.sandbox.docker.messages import hello, read_request
take = sys.stdin.buffer.read
read_request(take)
os.write(1, hello({"tier": 1, "table": "seccomp"}))
lie = wire.encode({"done": [{"ended": "passed"}]})
right = {"ended": "ok", "exit_code": 0, "signal": None, "cpu_s": 0.1, "wall_s": 0.1}
right |= {"waited_s": 0.0, "peak_mb": 1.0, "why": "", "sizes": [3, 0, 12]}
right = wire.encode({"done": [right]}) + b"42\\n" + wire.encode(None)
while True:
    read_request(take)
    exec(sys.argv[1])
"""


@pytest.fixture
def taken_over(engine, image):
    """Makes an image whose server is this program."""
    made = []

    def make(*words):
        base = engine.containers.create(image)
        command = json.dumps(["/usr/bin/python3", "-c", *words])
        engine.api.commit(base.id, *TAG.split(":"), changes=f"CMD {command}")
        base.remove()
        made.append(TAG)
        return TAG

    yield make
    for tag in made:
        engine.images.remove(tag, force=True)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("os.write(1, lie)", "invalid reply of the container: a result has other fields"),
        (
            "os.write(1, b'\\xff' * 100)",
            "invalid reply of the container: a reply of 18446744073709551615 bytes",
        ),
        ("os.write(1, right[:-1])", "silent past its deadline|timed out"),
        ("time.sleep(600)", "silent past its deadline|timed out"),
        ("sys.exit('broken')", "the container ended: broken"),
    ],
    ids=["other fields", "flood", "cut off", "silence", "death"],
)
def test_a_server_that_lies_is_no_verdict(taken_over, monkeypatch, answer, why):
    if "silent" in why:
        monkeypatch.setattr(container, "GRACE_S", 0.5)
        monkeypatch.setattr(container, "PATIENCE", 1)
    with DockerExecutor(slots=1, image=taken_over(SERVER, answer)) as box:
        done = box.run(Program(source=""), Stdin(), LIMITS)
    assert done.ended == "sandbox_error" and done.stdout == b""
    assert any(part in done.why for part in why.split("|")), done.why


def test_one_that_says_more_than_it_was_asked_is_replaced(taken_over):
    with DockerExecutor(slots=1, image=taken_over(SERVER, "os.write(1, right * 2)")) as box:
        places = [box._holders[0]]
        assert box.run(Program(source=""), Stdin(), LIMITS).stdout == b"42\n"
        first = places[0]._container
        assert box.run(Program(source=""), Stdin(), LIMITS).stdout == b"42\n"
        assert places[0]._container is not first


@pytest.mark.parametrize(
    "greeting",
    [
        "print('junk' * 100, flush=True)\nimport time; time.sleep(60)",
        "from veriloop.sandbox import wire; import os; "
        "os.write(1, wire.encode({'tier': 0, 'table': ''}))",
        "from veriloop.sandbox import wire; import os; os.write(1, wire.encode([1]))",
        "raise SystemExit('cannot begin')",
    ],
)
def test_one_that_greets_with_nonsense_is_not_opened(taken_over, greeting):
    refused = r"invalid greeting of the container|cannot begin"
    with pytest.raises(SandboxUnavailableError, match=refused):
        DockerExecutor(slots=1, image=taken_over(greeting))
