"""Whatever kills a save, and wherever, a complete checkpoint is found and loads."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from veriloop.pipeline.runs.checkpoint import load_latest, save

ROOT = Path(__file__).parents[3]


def model(mark):
    def write(folder):
        (folder / "model.safetensors").write_bytes(mark.encode() * 50)
        (folder / "tokenizer").mkdir()
        (folder / "tokenizer" / "vocab.txt").write_text(mark)

    return write


def put(directory, step, mark="m", keep=9):
    return save(directory, step, write_model=model(mark), state={"mark": mark}, keep=keep)


def steps(directory):
    return sorted(path.name for path in (directory / "checkpoints").iterdir())


class DiedError(OSError):
    pass


class Dies:
    """Stands in for one of os's functions and raises at its n-th call of all that are watched."""

    def __init__(self, at):
        self.at, self.calls = at, 0

    def watch(self, monkeypatch, name):
        real = getattr(os, name)

        def call(*arguments):
            self.calls += 1
            if self.calls == self.at:
                raise DiedError(name)
            return real(*arguments)

        monkeypatch.setattr(os, name, call)


@pytest.mark.parametrize("again", [False, True], ids=["next step", "same step"])
def test_an_error_at_any_stage_of_a_save_leaves_a_complete_checkpoint(tmp_path, again):
    new = 10 if again else 20
    for at in range(1, 50):
        directory = tmp_path / str(at)
        put(directory, 10, "a")
        dies = Dies(at)
        with pytest.MonkeyPatch.context() as patch:
            dies.watch(patch, "fsync")
            dies.watch(patch, "replace")
            try:
                put(directory, new, "b", keep=1)
            except DiedError:
                assert {"step_000010", f"step_{new:06d}"} & set(steps(directory))
            else:
                break
        assert load_latest(directory)[1]["mark"] in ("a", "b")
        put(directory, new, "c", keep=1)
        assert steps(directory) == [f"step_{new:06d}"]
        assert load_latest(directory)[1] == {"mark": "c"}
    assert at > 7 and dies.calls == at - 1, "every fsync and rename was made to fail once"


def test_everything_is_on_disk_before_the_rename_makes_it_count(tmp_path, monkeypatch):
    seen, real_fsync, real_replace = [], os.fsync, os.replace

    def fsync(descriptor):
        seen.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", lambda a, b: (seen.append("rename"), real_replace(a, b))[1])
    path = put(tmp_path / "zero", 10)
    assert seen[:2] == [tmp_path, tmp_path / "zero"]  # the new folders' entries
    del seen[:2]
    at = seen.index("rename")
    inside = {p.relative_to(path) for p in path.rglob("*")} | {Path()}
    order = [Path(*p.relative_to(path.parent).parts[1:]) for p in seen[:at]]
    assert set(order) == inside
    assert all(order.index(p) < order.index(p.parent) for p in inside - {Path()})
    assert len(inside) == 6 and seen[at + 1 :] == [path.parent]


def test_a_model_that_fails_to_write_leaves_what_was_there(tmp_path):
    put(tmp_path, 10, "a")

    def half(folder):
        (folder / "model.safetensors").write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, 20, write_model=half, state={}, keep=1)
    assert steps(tmp_path) == ["step_000010"] and load_latest(tmp_path)[1] == {"mark": "a"}


KILLED_AT_EVERY_STAGE = """
    import os, signal, sys
    from pathlib import Path
    from veriloop.pipeline.runs.checkpoint import save

    def model(mark):
        return lambda folder: (folder / "model.safetensors").write_bytes(mark * 50)

    def deadly(name, at, calls):
        real = getattr(os, name)
        def call(*arguments, **options):
            calls.append(name)
            if len(calls) == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)
        setattr(os, name, call)

    root, new = Path(sys.argv[1]), int(sys.argv[2])
    for at in range(1, 50):
        directory = root / f"{at:02d}"
        save(directory, 10, write_model=model(b"a"), state={"mark": "a"}, keep=9)
        child = os.fork()
        if not child:
            calls = []
            for name in ("mkdir", "fsync", "replace", "unlink", "rmdir"):
                deadly(name, at, calls)
            save(directory, new, write_model=model(b"b"), state={"mark": "b"}, keep=1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) == 0:
            break
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
"""


@pytest.mark.slow
@pytest.mark.parametrize("new", [20, 10], ids=["next step", "same step"])
def test_a_kill_at_any_stage_of_a_save_leaves_a_complete_checkpoint(tmp_path, new):
    code = textwrap.dedent(KILLED_AT_EVERY_STAGE)
    subprocess.run([sys.executable, "-c", code, tmp_path, str(new)], cwd=ROOT, check=True)
    runs = sorted(tmp_path.iterdir())
    assert len(runs) > 10
    left = [load_latest(run)[1]["mark"] for run in runs]
    switch = left.index("b")
    assert left == ["a"] * switch + ["b"] * (len(left) - switch) and switch > 5
    for run in runs:
        put(run, new, "c", keep=1)
        assert steps(run) == [f"step_{new:06d}"] and load_latest(run)[1] == {"mark": "c"}


@pytest.mark.slow
def test_a_process_killed_from_outside_in_mid_save_is_cleared_up_after(tmp_path):
    put(tmp_path, 10, "a")
    code = """
        import sys, time
        from pathlib import Path
        from veriloop.pipeline.runs.checkpoint import save

        def hang(folder):
            (folder / "model.safetensors").write_bytes(b"half")
            print("writing", flush=True)
            time.sleep(60)

        save(Path(sys.argv[1]), 20, write_model=hang, state={}, keep=1)
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), tmp_path], cwd=ROOT, stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout.readline() == b"writing\n"
        child.kill()
    assert child.returncode == -9
    put(tmp_path, 11, "b")
    assert steps(tmp_path) == ["step_000010", "step_000011"]
    assert load_latest(tmp_path) == (tmp_path / "checkpoints" / "step_000011", {"mark": "b"})
