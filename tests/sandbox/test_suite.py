"""The suite's runner sees what an attack achieves, and does not see what is not there."""

import json
import os
import socket
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.clock import Clock
from veriloop.sandbox import canaries as setting
from veriloop.sandbox.canaries import canaries
from veriloop.sandbox.executor import Program, Stdin
from veriloop.sandbox.languages.polyglot import compile_seconds
from veriloop.sandbox.languages.table import LANGUAGES
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.probe import SandboxUnavailableError
from veriloop.sandbox.result import Execution
from veriloop.sandbox.suite import CONTAINED, GRACE_S, load, run_suite

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

    def __init__(self, printed=b"", ended="ok", value=None, why="", waited_s=0.0):
        self.answer = Execution(
            ended=ended, stdout=printed, value=value, why=why, waited_s=waited_s
        )
        self.ran = []

    def run(self, program, invocation, limits):
        self.ran.append(program.source)
        return self.answer

    def run_all(self, program, invocations, limits):
        return [self.run(program, one, limits) for one in invocations]

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


def test_a_case_may_be_in_another_language_and_has_time_to_be_compiled(suite):
    (case,), _ = suite({"file": "a.cc", "language": "c++"})
    assert case.language == "cpp"
    assert case.slowest_s == suite({})[0][0].slowest_s + compile_seconds("cpp")


def test_cases_in_a_language_that_is_refused_are_left_out_and_named(suite):
    class WithoutCompiler(Echo):
        def run(self, program, invocation, limits):
            if program.language == "c":
                raise SandboxUnavailableError("C cannot run here; no gcc\nthe table")
            return super().run(program, invocation, limits)

    attacks, honest = suite(
        {"file": "a.c", "language": "c"}, {"file": "b.js", "language": "js"}, {},
        honest=[{"file": "h.c", "language": "c"}],
    )  # fmt: skip
    report = run_suite(WithoutCompiler(), TARGETS, attacks, honest, running)
    assert [one.file for one in report.attacks] == ["b.js", "a.py"] and report.honest == []
    assert report.missing == (*TARGETS.missing, "C cannot run here; no gcc")


def test_a_folder_without_a_suite_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"is not a suite: it has no manifest.jsonl"):
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
        (json.dumps({**ROW, "language": "cobol"}), "no language 'cobol'"),
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
    assert record.why == f"wrong; not observed, as they existed before: {kept}"
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
    clock = Clock()
    monkeypatch.setattr("veriloop.sandbox.suite.time", clock)

    def grade(seconds):
        def run(box, case):
            clock.now += seconds
            return 0.0, "wall"

        return run

    assert found(grade(allowed - 0.1), must=must).effect == CONTAINED
    assert found(grade(allowed + 0.1), must=must).effect == f"took {allowed}.1 s of {allowed}.0 s"


def test_time_spent_waiting_for_a_processor_is_not_the_attacks_doing(found, monkeypatch):
    clock = Clock()
    monkeypatch.setattr("veriloop.sandbox.suite.time", clock)

    def grade(box, case):
        clock.now += 9.0
        return running(box, case)

    assert found(grade, Echo()).effect == "took 9.0 s of 5.0 s"
    assert found(grade, Echo(waited_s=4.5)).effect == CONTAINED


def test_a_limit_of_seconds_that_a_case_names_holds_where_it_is_the_shorter(suite):
    observed = [["returns_within:2.5"], ["returns_within:60"], ["no_survivors"]]
    attacks, _ = suite(*({"file": f"{n}.py", "observe": o} for n, o in enumerate(observed)))
    assert [case.slowest_s for case in attacks] == [2.5, 5.0, 5.0]


@pytest.mark.parametrize("value", [{(1, ("x",)): [b"RLVR-CANARY-of-the-test"]}, {1 << 50_000}])
def test_values_of_any_shape_are_searched_and_numbers_too_long_to_print_do_no_harm(found, value):
    effect = found(running, Echo(value=value)).effect
    assert effect == ("printed a secret of the host" if type(value) is dict else CONTAINED)


@pytest.mark.parametrize("how", [lambda b: b[::-1], lambda b: b.hex().encode()])
def test_a_secret_in_another_spelling_is_reported_too(found, how):
    printed = how(b"RLVR-CANARY-of-the-test")
    assert found(running, Echo(printed)).effect == "printed a secret of the host"


def test_a_reason_that_would_reach_a_terminal_is_an_effect(found):
    box = Echo(why="Error: \x1b[2J")
    assert found(running, box).effect == "put control characters into a reason"


class Breaking(Echo):
    """Runs nothing any more once an attack has run."""

    def run(self, program, invocation, limits):
        ran = super().run(program, invocation, limits)
        return replace(ran, ended="error") if "# a.py" in self.ran else ran


def fair(box, case):
    return (
        1.0 if box.run(Program(source=case.source), Stdin(), case.limits).ended == "ok" else 0.0
    ), ""


def test_a_grader_that_an_attack_breaks_is_an_effect(suite):
    attacks, honest = suite({}, honest=[{"file": "h.py"}])
    report = run_suite(Breaking(), TARGETS, attacks, honest, fair)
    assert (
        report.attacks[0].effect == "h.py is refused afterwards" and not report.honest[0].accepted
    )

    def wrong_for_attacks(box, case):
        return 1.0 if case.file == "h.py" else 0.0, ""

    assert run_suite(Echo(), TARGETS, attacks, honest, wrong_for_attacks).clean
    refused = run_suite(Echo(), TARGETS, attacks, honest, lambda box, case: (0.0, ""))
    assert refused.attacks[0].effect == CONTAINED  # it was refused before the attack as well


def test_tests_that_are_code_have_three_times_as_long_on_the_clock(suite):
    attacks, _ = suite(
        {"file": "data.py"},
        {"file": "code.py", "kind": "function", "fn_name": "f", "tests": [{"assert": "f()"}] * 2},
    )
    data, code = (case.slowest_s - GRACE_S for case in attacks)
    assert (data, code) == (2 * LIMITS["wall_s"], 6 * LIMITS["wall_s"])


def test_what_an_attack_runs_after_is_graded_first_on_the_same_executor(suite):
    attacks, _ = suite({"file": "plant.py"}, {"file": "check.py", "run_after": "plant.py"})
    box = Echo()
    run_suite(box, TARGETS, attacks, [], running)
    assert box.ran == ["# plant.py", "# plant.py", "# check.py"]
    box.ran.clear()  # a file without a line of its own has the tests of the case that names it
    run_suite(box, TARGETS, attacks[1:], [], running)
    assert box.ran == ["# plant.py", "# check.py"]


@pytest.mark.parametrize("key", ["run_after", "run_beside"])
def test_a_case_that_runs_with_a_missing_file_is_refused_with_its_line(suite, key):
    with pytest.raises(ValueError, match=r"line 1: FileNotFoundError: .*missing\.py"):
        suite({"file": "check.py", key: "missing.py"})


class Beside(Echo):
    """A neighbour waits until it has company; the programs note whether one was there."""

    def __init__(self, ended="ok"):
        super().__init__()
        self.beside_ended = ended
        self.neighbour, self.given, self.company = threading.Event(), [], []

    def run(self, program, invocation, limits):
        if program.source == "# neighbour.py":
            self.given.append(invocation)
            self.neighbour.set()
            time.sleep(0.01)
            return Execution(ended=self.beside_ended)
        self.company.append(self.neighbour.wait(0.2))
        return Execution(ended="ok")


@pytest.fixture
def neighbours(suite):
    return suite(
        {"file": "neighbour.py", "tests": [{"stdin": "7", "expected_stdout": ""}]},
        {"file": "check.py", "run_beside": "neighbour.py"},
        honest=[{"file": "alone.py"}, {"file": "h.py", "run_beside": "neighbour.py"}],
    )


def beside(box, case):
    return running(box, case) if case.file != "neighbour.py" else (0.0, "")


@pytest.mark.parametrize("ended", ["ok", "sandbox_error"])
def test_a_neighbour_runs_next_to_an_attack_on_input_of_its_own(neighbours, ended):
    attacks, _ = neighbours
    box = Beside(ended)
    report = run_suite(box, TARGETS, attacks, [], beside)
    effect = CONTAINED if ended == "ok" else "no verdict for its neighbour"
    assert [one.effect for one in report.attacks] == [CONTAINED, effect]
    assert box.company == [True] and set(box.given) == {Stdin(data=b"7")}
    count = len(box.given)
    time.sleep(0.05)
    assert len(box.given) == count  # it has stopped
    box.given.clear()
    run_suite(box, TARGETS, attacks[1:], [], beside)
    assert set(box.given) == {Stdin(data=b"1")}  # without a line of its own: the input of the other


def test_a_neighbour_runs_next_to_an_honest_program_that_names_one(neighbours):
    attacks, honest = neighbours
    box = Beside()
    run_suite(box, TARGETS, attacks[:1], honest, beside)
    assert box.company == [False, False, True]  # at the start, in its turn, and with company


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


def test_a_target_that_cannot_be_set_up_is_reported(places, monkeypatch):
    monkeypatch.delenv(setting.VARIABLE, raising=False)
    with socket.create_server(setting.TCP), canaries() as targets:
        assert any(one.startswith("tcp (Address already in use") for one in targets.missing)
    assert setting.VARIABLE not in os.environ


def test_what_another_account_put_in_place_of_ours_is_left_alone(places, monkeypatch):
    def refuse(path, missing_ok):
        raise PermissionError(path)

    with canaries() as targets:
        assert len(targets.missing) == 1
        monkeypatch.setattr(Path, "unlink", refuse)
    assert sorted(path.name for path in places.iterdir()) == ["canary", "socket"]


def test_two_sets_of_canaries_have_different_secrets(places):
    with canaries() as one:
        pass
    with canaries() as other:
        assert one.secret != other.secret


def test_the_projects_own_suite_is_whole():
    attacks, honest = load(CASES)
    assert len(attacks) >= 40 and len(honest) >= 10
    listed = {case.file for case in attacks + honest}
    assert listed == {path.relative_to(CASES).as_posix() for path in programs()}
    assert len(listed) == len(attacks) + len(honest)
    order = [case.file for case in attacks]
    for case in attacks:
        assert case.must in ("no_reward", "contained", "killed_within_limit") and case.group
        assert not case.run_after or order.index(case.run_after) < order.index(case.file)
        assert case.limits.wall <= 8, case.file
    assert {case.must for case in honest} == {"full_reward"}
    suffixes = {"py": "python", "js": "javascript", "sh": "bash"}
    for case in attacks + honest:
        suffix = case.file.rpartition(".")[2]
        assert suffixes.get(suffix, suffix) == case.language, case.file
    counts = Counter(case.language for case in attacks)
    assert counts.keys() == LANGUAGES.keys() and counts.total() - counts["python"] >= 60


def programs():
    """Every program of our own suite, in any language."""
    suffixes = ("py", "c", "cpp", "js", "sh", "sql")
    return [path for suffix in suffixes for path in CASES.rglob(f"*.{suffix}")]


def test_the_projects_own_attacks_stay_on_this_machine_and_end():
    for path in programs():
        source = path.read_text()
        assert "http" not in source and "0.0.0.0" not in source, path
        assert "rlvrmark" in source or "setsid" not in source, path
