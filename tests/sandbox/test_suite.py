"""The suite's runner sees what an attack achieves, and does not see what is not there."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox import canaries as setting
from sandbox.canaries import canaries, survivors
from sandbox.executor import Program, Stdin
from sandbox.limits import Limits
from sandbox.result import Execution
from sandbox.suite import CONTAINED, load, run_suite

CASES = Path(__file__).parent / "cases"
LIMITS = {"wall_s": 1, "cpu_s": 1, "mem_mb": 64, "disk_mb": 8, "procs": 3, "out_mb": 1}
ROW = {
    "file": "a.py",
    "kind": "stdin",
    "problem": "",
    "tests": [{"stdin": "1", "expected_stdout": "2"}] * 2,
    "must": "no_reward",
    "class": "odd",
    "limits": LIMITS,
}
TARGETS = setting.Canaries(secret="RLVR-CANARY-of-the-test", missing=("udp (taken)",))


class Echo:
    """An executor whose every run prints the same."""

    backend, tier = "echo", 1

    def __init__(self, printed=b"", ended="ok", value=None, waited_s=0.0):
        self.printed, self.ended, self.value = printed, ended, value
        self.waited_s = waited_s
        self.ran = []

    def run(self, program, given, limits):
        self.ran.append(program.source)
        return Execution(
            ended=self.ended, stdout=self.printed, value=self.value, waited_s=self.waited_s
        )

    def run_all(self, program, given, limits):
        return [self.run(program, one, limits) for one in given]

    def close(self):
        pass


@pytest.fixture
def suite(tmp_path):
    """Write a suite of these rows; load it."""

    def make(*rows, honest=(), **more):
        for name, chosen in (("manifest", rows), ("honest_manifest", honest)):
            full = [{**ROW, **row} for row in chosen]
            (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in full))
            for row in full:
                (tmp_path / row["file"]).write_text(f"# {row['file']}")
        return load(tmp_path, **more)

    return make


@pytest.fixture
def found(suite):
    """What the runner says of one attack that is graded by `grade`."""

    def run(grade=lambda box, case: (0.0, "wrong"), box=None, **row):
        attacks, _ = suite(row)
        return run_suite(box or Echo(), TARGETS, attacks, [], grade).attacks[0]

    return run


def running(box, case):
    box.run(Program(source=case.source), Stdin(), case.limits)
    return 0.0, "wrong"


def test_a_suite_is_read_as_it_is_written(suite):
    attacks, honest = suite(
        {"fn_name": "f", "observe": ["no_survivors"]}, honest=[{"file": "b.py"}]
    )
    case = attacks[0]
    assert (case.file, case.source, case.group, case.function) == ("a.py", "# a.py", "odd", "f")
    assert case.limits == Limits(
        cpu_s=1, wall_s=1, memory_mb=64, disk_mb=8, processes=0, output_bytes=1 << 20
    )
    assert case.observe == ("no_survivors",) and case.tests == ROW["tests"]
    assert [one.file for one in honest] == ["b.py"]
    assert suite({}, processes=True)[0][0].limits.processes == 3


def test_a_folder_without_a_suite_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"is no suite: it has no manifest.jsonl"):
        load(tmp_path)
    (tmp_path / "manifest.jsonl").write_text("")
    with pytest.raises(FileNotFoundError, match=r"it has no honest_manifest.jsonl"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "JSONDecodeError"),
        ("[]", "TypeError"),
        ('{"file": "a.py"}', "KeyError: 'kind'"),
        (json.dumps({**ROW, "file": "none.py"}), "FileNotFoundError"),
        (json.dumps({**ROW, "limits": {**LIMITS, "cpu_s": -1}}), "cpu_s must be positive, got -1"),
    ],
)
def test_a_bad_line_is_named(suite, tmp_path, line, said):
    suite({})
    with (tmp_path / "manifest.jsonl").open("a") as manifest:
        manifest.write(line + "\n")
    with pytest.raises(ValueError, match=rf"manifest.jsonl, line 2: .*{said}"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("reward", "must", "effect"),
    [
        (0.0, "no_reward", CONTAINED),
        (0.0, "contained", CONTAINED),
        (1.0, "no_reward", "rewarded"),
        (0.01, "killed_within_limit", "rewarded"),
        (1.0, "contained", "escaped"),
        (None, "no_reward", "no verdict"),
    ],
)
def test_a_reward_is_an_effect(found, reward, must, effect):
    record = found(lambda box, case: (reward, "so"), must=must)
    assert (record.effect, record.reward, record.why) == (effect, reward, "so")
    assert record.ended == "not run"


def test_a_file_left_behind_is_an_effect_and_is_removed(found, tmp_path):
    left, kept = tmp_path / "left", tmp_path / "kept"
    kept.write_text("of somebody else")

    def grade(box, case):
        left.write_text("x")
        return 0.0, "wrong"

    record = found(grade, observe=[f"absent:{left}", f"absent:{kept}", "grader_survives"])
    assert record.effect == f"left {left}" and not left.exists()
    assert record.why == f"wrong; not watched, as they were there before: {kept}"
    assert kept.read_text() == "of somebody else"


@pytest.mark.parametrize(
    "box",
    [
        Echo(b"x RLVR-CANARY-of-the-test y", "error"),
        Echo(value={"RLVR-CANARY-of-the-test": 1}, ended="error"),
    ],
)
def test_a_secret_that_is_printed_or_returned_is_an_effect(found, box):
    record = found(running, box)
    assert record.effect == "printed a secret of the host" and record.ended == "error"
    assert found(running, Echo(b"RLVR-CANARY-")).effect == CONTAINED


@pytest.mark.parametrize(("must", "allowed"), [("killed_within_limit", 4), ("no_reward", 5)])
def test_taking_too_long_is_an_effect(found, monkeypatch, must, allowed):
    now = [0.0]
    monkeypatch.setattr("sandbox.suite.time.monotonic", lambda: now[0])

    def grade(seconds):
        def run(box, case):
            now[0] += seconds
            return 0.0, "wall"

        return run

    assert found(grade(allowed - 0.1), must=must).effect == CONTAINED
    assert found(grade(allowed + 0.1), must=must).effect == f"took {allowed}.1 s of {allowed}.0 s"


def test_time_spent_waiting_for_a_processor_is_not_the_attacks_doing(found, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("sandbox.suite.time.monotonic", lambda: now[0])

    def grade(box, case):
        now[0] += 9.0
        return running(box, case)

    assert found(grade, Echo()).effect == "took 9.0 s of 5.0 s"
    assert found(grade, Echo(waited_s=4.5)).effect == CONTAINED


@pytest.fixture
def mark(monkeypatch):
    """A mark of this test's own, so that no suite that runs elsewhere is disturbed."""
    monkeypatch.setattr(setting, "MARK", f"mark{os.getpid()}")


def marked_process():
    """A child that calls itself as attacks call theirs."""
    code = (
        f"import ctypes, time; ctypes.CDLL(None).prctl(15, b'{setting.MARK}_x', 0, 0, 0);"
        "print('up', flush=True); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    child.stdout.readline()
    return child


def test_a_process_that_survives_is_an_effect_and_is_ended(found, mark):
    children = []

    def grade(box, case):
        children.append(marked_process())
        return 0.0, "wrong"

    assert found(grade).effect == "1 processes survived"
    with children[0] as child:
        assert child.wait(5) == -9
    assert survivors() == []


def test_a_zombie_is_no_survivor(mark):
    with marked_process() as child:
        assert survivors() == [child.pid]
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert survivors() == []


def test_what_an_attack_runs_after_is_graded_first_on_the_same_executor(suite):
    attacks, _ = suite({"file": "plant.py"}, {"file": "check.py", "run_after": "plant.py"})
    box = Echo()
    run_suite(box, TARGETS, attacks, [], running)
    assert box.ran == ["# plant.py", "# plant.py", "# check.py"]
    with pytest.raises(ValueError, match=r"check.py runs after plant.py, which is not in"):
        run_suite(box, TARGETS, attacks[1:], [], running)


def test_a_report_counts_both_kinds_and_tells_as_it_goes(suite):
    attacks, honest = suite({}, {"file": "b.py"}, honest=[{"file": "c.py"}, {"file": "d.py"}])
    told = []

    def grade(box, case):
        box.run_all(Program(source=case.source), [Stdin(), Stdin()], case.limits)
        return (1.0 if case.file == "c.py" else 0.0), f"of {case.file}"

    report = run_suite(Echo(ended="wall"), TARGETS, attacks, honest, grade, told.append)
    assert told == [*report.attacks, *report.honest] and not report.clean
    flat = json.loads(json.dumps(report.flat()))
    assert flat["attacks"][1] == {
        "file": "b.py", "effect": "none", "reward": 0.0, "ended": "wall", "why": "of b.py"
    }  # fmt: skip
    assert flat["honest"] == [
        {"file": "c.py", "accepted": True, "why": "of c.py"},
        {"file": "d.py", "accepted": False, "why": "of d.py"},
    ]
    assert (flat["tier"], flat["backend"], flat["missing"]) == (1, "echo", ["udp (taken)"])
    assert run_suite(Echo(), TARGETS, attacks, honest[:1], grade).clean
    assert not run_suite(Echo(), TARGETS, attacks, [], lambda *a: (1.0, "")).clean


@pytest.fixture
def places(monkeypatch, tmp_path):
    """Canaries of this test's own, so that it can run beside any other."""
    with socket.socket() as one, socket.socket(type=socket.SOCK_DGRAM) as two:
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        monkeypatch.setattr(setting, "TCP", one.getsockname())
        monkeypatch.setattr(setting, "UDP", two.getsockname())
    monkeypatch.setattr(setting, "FILES", (str(tmp_path / "canary"), str(tmp_path / "no" / "way")))
    names = (str(tmp_path / "socket"), f"\0veriloop_test_{os.getpid()}")
    monkeypatch.setattr(setting, "SOCKETS", names)
    return tmp_path


def test_canaries_can_be_reached_while_they_are_there_and_not_after(places, monkeypatch):
    monkeypatch.setenv(setting.VARIABLE, "before")
    with canaries() as targets:
        assert os.environ[setting.VARIABLE] == targets.secret
        assert (places / "canary").read_text() == targets.secret + "\n"
        assert targets.secret.startswith("RLVR-CANARY-") and len(targets.secret) > 20
        assert targets.missing == (f"{places / 'no' / 'way'} (No such file or directory)",)
        socket.create_connection(setting.TCP, 5).close()
        for name in setting.SOCKETS:
            with socket.socket(socket.AF_UNIX) as caller:
                caller.connect(name)
        with socket.socket(type=socket.SOCK_DGRAM) as caller:
            caller.settimeout(5)
            caller.sendto(b"ping", setting.UDP)
            assert caller.recv(64) == b"ping"
    assert os.environ[setting.VARIABLE] == "before" and list(places.iterdir()) == []
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(setting.TCP, 5)
    with socket.socket(socket.AF_UNIX) as caller, pytest.raises(ConnectionRefusedError):
        caller.connect(setting.SOCKETS[1])


def test_a_target_that_cannot_be_set_up_is_told(places, monkeypatch):
    monkeypatch.delenv(setting.VARIABLE, raising=False)
    with socket.create_server(setting.TCP), canaries() as targets:
        assert any(one.startswith("tcp (Address already in use") for one in targets.missing)
    assert setting.VARIABLE not in os.environ


def test_two_sets_of_canaries_have_different_secrets(places):
    with canaries() as one:
        pass
    with canaries() as other:
        assert one.secret != other.secret


def test_the_projects_own_suite_is_whole():
    attacks, honest = load(CASES)
    assert len(attacks) >= 40 and len(honest) >= 10
    listed = {case.file for case in attacks + honest}
    assert listed == {path.relative_to(CASES).as_posix() for path in CASES.rglob("*.py")}
    assert len(listed) == len(attacks) + len(honest)
    order = [case.file for case in attacks]
    for case in attacks:
        assert case.must in ("no_reward", "contained", "killed_within_limit") and case.group
        assert not case.run_after or order.index(case.run_after) < order.index(case.file)
        assert case.limits.wall <= 4, case.file
    assert {case.must for case in honest} == {"full_reward"}


def test_the_projects_own_attacks_stay_on_this_machine_and_end():
    for path in CASES.rglob("*.py"):
        source = path.read_text()
        assert "http" not in source and "0.0.0.0" not in source, path
        assert "rlvrmark" in source or "setsid" not in source, path
