"""Every command of README and docs/ is tried: run where that is cheap, else read to its last flag.

What trains, serves or attacks is stopped where the work would begin: by then its flags, recipes and
files have been read and checked. A command that is neither tried nor listed fails.
"""

import argparse
import io
import json
import re
import runpy
import shlex
import subprocess
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from veriloop.stages import cli as command

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
STAGES = {
    name for name, (module, _) in command.COMMANDS.items() if module == "veriloop.stages.launch"
}
OF_OURS = re.compile(r"(?:[A-Z_]+=\S* )*(?:veriloop|make|python benchmarks/\S+|git clone)(?: |$)")
OUTSIDE = {"/", "~"}  # how the name of such a place begins
WRITTEN = {"mine/backwards_trl.py"}  # scripts that `veriloop verifier new` writes
NOT_TRIED = {  # first word: why not
    "git": "the address to clone from is the reader's",
    "docker": "builds the image, which tests/sandbox/docker/test_dockerfile.py does",
    "cd": "goes where git has put it",
    "export": "sets what a verifier asks, which its own tests do",
    "cat": "a file, for the command behind the pipe",
    "echo": "writes a line to a file",
    "less": "a pager",
    "hf": "fetches a model",
    "ssh": "wants another machine",
    "sh": "tests/requirements runs these scripts",
    "pip": "installs a package of others",
    "torchrun": "starts several ranks, which tests/stages/test_cluster.py does",
    "srun": "wants a cluster",
    "ray": "starts a Ray cluster",
    "vllm": "serves until it is stopped, which tests/pipeline/sampling/test_vllm_servers.py does",
    "lm_eval": "needs lm-evaluation-harness, which is no dependency",
}


@pytest.fixture(scope="module", autouse=True)
def imported():
    """Every command: one that is first imported after a patch would keep what was patched."""
    for module, _ in command.COMMANDS.values():
        import_module(module)


def lines(page):
    """(line, whether its block is one of shell) of every block of a page, continued ones joined."""
    text = page.read_text()
    for _, kind, block in BLOCK.findall(text):
        shell = kind == "sh" and "curl" not in block  # whose quotes go over lines
        yield from ((line, shell) for line in block.replace("\\\n", " ").split("\n"))
    indented = re.findall(r"^(?: {4}|\t)(.*)$", BLOCK.sub("", text), re.MULTILINE)
    yield from ((line, False) for line in indented)


def commands(line):
    """The words of each command of a line, without its comment, variables and redirection."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;>")
    lexer.whitespace_split = True
    found = [[]]
    for word in lexer:
        if word.strip("|&;") == "":
            found.append([])
        else:
            found[-1].append(word)
    for words in found:
        kept = words[: words.index(">")] if ">" in words else words
        while kept and re.fullmatch(r"[A-Z_]+=\S*", kept[0]):
            kept = kept[1:]
        if kept:
            yield tuple(kept)


def shown():
    """Every command, and the first page that has it."""
    found = {}
    for page in PAGES:
        for line, shell in lines(page):
            if OF_OURS.match(line.strip()) or (shell and line.strip()):
                for words in commands(line.strip()):
                    found.setdefault(words, page.name)
    return found


SHOWN = shown()
OURS = [words for words in SHOWN if words[0] == "veriloop"]
SCRIPTS = [words for words in SHOWN if words[0] == "python" and words[1] not in WRITTEN]
TARGETS = [words for words in SHOWN if words[0] == "make"]


def told(words):
    return f"{SHOWN[words]}: {' '.join(words)}"


def run(*words):
    """The exit code of `veriloop WORDS`."""
    return command.main(list(words))


class Begun(Exception):  # noqa: N818  it is no error
    """All that is read and checked before the work has been."""


def begin(*_, **__):
    raise Begun


def test_there_are_commands_and_each_is_tried_or_listed():
    assert len(OURS) > 100 and len(SCRIPTS) > 5 and len(TARGETS) > 3
    others = {words for words in SHOWN if words[0] not in ("veriloop", "python", "make")}
    assert {words[0] for words in others} <= set(NOT_TRIED)
    unknown = [told(words) for words in OURS if words[1] not in TRIED]
    assert not unknown, "say in TRIED how to try them"


def test_no_command_names_a_place_outside_of_the_folder_in_which_it_is_tried():
    parts = {words: [part for word in words for part in word.split("=")] for words in SHOWN}
    outside = [told(words) for words, all_of in parts.items() if OUTSIDE & {w[:1] for w in all_of}]
    assert not outside


def test_commands_are_found_anywhere(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "text\n\n    veriloop a --b 1  # told\n    X=1 veriloop c | less\n\n"
        "```sh\nveriloop d > file\nfoo \\\n  bar && veriloop 'e f'\n```\n"
        "```\nno command\nveriloop g\n```\nveriloop prose\n"
    )
    found = [words for line, _ in lines(page) for words in commands(line) if line.strip()]
    assert ("veriloop", "a", "--b", "1") in found and ("veriloop", "c") in found
    assert ("veriloop", "d") in found and ("foo", "bar") in found
    assert ("veriloop", "e f") in found and ("veriloop", "g") in found
    assert not any("prose" in words for words in found)


def test_commands_in_the_prose_name_what_there_is():
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for page in PAGES:
        prose = BLOCK.sub("", page.read_text())
        for name in re.findall(r"`veriloop ([a-z][a-z0-9-]*)", prose):
            assert name in command.COMMANDS, f"{page.name}: veriloop {name}"
        for script in re.findall(r"`python (benchmarks/[^` ]*)", prose):
            assert (ROOT / script).is_file(), f"{page.name}: {script}"
        for target in re.findall(r"`make ([a-z]+)`", prose):
            assert target in targets, f"{page.name}: make {target}"


@pytest.mark.parametrize("words", TARGETS, ids=told)
def test_a_target_of_make_can_be_made(words):
    done = subprocess.run(
        ["make", "-n", *words[1:]], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", SCRIPTS, ids=told)
def test_a_script_reads_its_flags(words, monkeypatch, capsys):
    """Their parsing is real; what would follow it is not begun."""
    parse = argparse.ArgumentParser.parse_args

    def parsed(self, *given, **named):
        parse(self, *given, **named)
        raise Begun

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parsed)
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setattr("sys.argv", [str(ROOT / words[1]), *words[2:]])
    with pytest.raises(Begun):
        runpy.run_path(str(ROOT / words[1]), run_name="__main__")


@pytest.mark.slow
@pytest.mark.parametrize("words", OURS, ids=told)
def test_a_command_is_understood_and_does_what_can_be_done_here(
    words, workplace, monkeypatch, capsys
):
    here = workplace(runs=words[1] in READERS)
    place = SimpleNamespace(here=here, patch=monkeypatch.setattr, said=capsys.readouterr)
    TRIED[words[1]](words[1:], place)


def simply(words, _):
    assert run(*words) == 0


def planned(words, place):
    for module in ("launch", "commands.r1"):
        place.patch(f"veriloop.stages.{module}.require_token", lambda _: None)
        place.patch(f"veriloop.stages.{module}.refusals", lambda *_: [])
    assert run(*words, *([] if {"--help", "--dry-run"} & set(words) else ["--dry-run"])) == 0


def whole(words, place):
    """The plan, and then whether `--only` and `--from` name stages."""
    planned(words, place)
    if "--dry-run" not in words:
        place.patch("veriloop.stages.r1.run", begin)
        place.patch("veriloop.stages.commands.r1.prelaunch.begin_for", lambda *_: None)
        checks = ("require_start", "require_installed", "require_data", "require_access")
        for check in checks:
            place.patch(f"veriloop.stages.commands.r1.{check}", lambda *_: None)
        with pytest.raises(Begun):
            run(*words)


def pushed(words, place):
    """Flags and run are read; the run that lies there has no checkpoint."""
    place.patch("veriloop.stages.commands.push.finished", lambda run, stage: stage or run.name)
    place.patch("veriloop.stages.commands.push.require_token", lambda _: None)
    place.patch("veriloop.stages.commands.push.push_all", begin)
    with pytest.raises(Begun):
        run(*words)


def shrunk(words, place):
    """The checkpoint is found and its layers are left alone; tests/pipeline/model keeps some."""
    place.patch("veriloop.pipeline.model.shrink.shrink", begin)
    written = place.here / words[words.index("--output") + 1]
    written.unlink()  # a student that other commands read
    with pytest.raises(Begun):
        run(*words)


def shown_data(words, place):
    """Of GSM8K there is a file; other sets are known by name, and are not fetched."""
    from veriloop.data.hub.sets import SETS
    from veriloop.stages.commands.data_rows import open_rows

    def held(options, **named):
        if "gsm8k" in (options.name, options.of) and (options.path or options.of):
            return open_rows(options, **named)
        assert options.name in SETS or Path(options.name).is_file()
        raise Begun

    for module in ("data", "data_export"):
        place.patch(f"veriloop.stages.commands.{module}.open_rows", held)
    with suppress(Begun):
        assert run(*words) == 0


def profiled(words, place):
    place.patch("veriloop.stages.commands.profile.profiled", begin)
    place.patch("veriloop.stages.commands.profile.prelaunch.begin_for", lambda *_: None)
    with pytest.raises(Begun):
        run(*words)


def evaluated(words, place):
    """A set by name has one question."""
    from veriloop.data.hub.benchmark_set import load_benchmark_set
    from veriloop.data.hub.load import layout_for

    def held(name, path, split):
        if path:
            return load_benchmark_set(name, path, split)
        layout_for(name, path)
        return replace(load_benchmark_set("gsm8k", "train.parquet"), name=name)

    place.patch("veriloop.stages.commands.benchmark_options.load_benchmark_set", held)
    place.patch("veriloop.stages.commands.benchmark._Bench", begin)
    place.patch("veriloop.stages.commands.evaluate.evaluate_checkpoint", begin)
    with pytest.raises(Begun):
        run(*words)


def watched(words, place):
    from veriloop.pipeline.watch.server import Watch

    place.patch(Watch, "serve", begin)
    port = [] if "--port" in words else ["--port", "0"]
    with pytest.raises(Begun):
        run(*words, *port)


def judged(words, place):
    if words[-1] == "-":
        place.patch("sys.stdin", io.StringIO((place.here / "responses.jsonl").read_text()))
    assert run(*words) == 0
    (verdict,) = place.said().out.splitlines()
    assert json.loads(verdict)["status"] == "graded"


def verifier(words, place):
    if words[1] == "new":  # as the page has it, where nothing is yet
        for path in (place.here / "mine").iterdir():
            path.unlink()
    assert run(*words) == 0


def copied(words, place):
    if words[1] == "cp":
        (place.here / words[-1]).unlink()
    assert run(*words) == 0


def served(words, place):
    """Everything but sockets and workers: verifiers, token and backend are looked up."""
    from veriloop.sandbox.backends import BACKENDS
    from veriloop.verifiers.registry import get

    def opened(settings):
        for name in settings.verifiers:
            get(name)
        assert settings.sandbox in ("", *BACKENDS)
        assert settings.token or settings.host == "127.0.0.1"
        raise Begun

    place.patch("veriloop.stages.commands.serve.RewardService", opened)
    with pytest.raises(Begun):
        run(*words)


def rewarded(words, place):
    place.patch("veriloop.stages.commands.serve_reward.RewardServer", begin)
    with pytest.raises(Begun):
        run(*words)


def doctored(words, place):
    """The model is looked up, and neither it nor the machine is looked over."""
    place.patch("veriloop.pipeline.doctor.machine_checks.MACHINE", ())
    place.patch("veriloop.pipeline.doctor.model_checks.MODEL", ())
    if "Qwen/Qwen3-0.6B-Base" in words:
        place.patch(
            "veriloop.pipeline.config.checkpoints.find_checkpoint",
            lambda _: place.here / "FOLDER",
        )
    assert run(*words) == 0


def replayed(words, place):
    """Everything but the updates: run, steps and flags are read, and the start is looked for."""
    place.patch("veriloop.stages.commands.replay._start", lambda _: place.here / "FOLDER")
    place.patch("veriloop.stages.commands.replay_run.replayed", begin)
    with pytest.raises(Begun):
        run(*words)


def sandboxed(words, place):
    """The suite is read and the backend looked up; nothing is attacked, made or served."""
    from veriloop.sandbox import backends

    def opened(setting, slots=None):
        backends.check(setting)
        raise Begun

    place.patch("veriloop.sandbox.backends.open_backend", opened)
    place.patch("veriloop.stages.commands.sandbox.build", begin)
    with pytest.raises(Begun):
        run(*words)


READERS = {"samples", "report", "rescore", "replay", "lineage", "watch", "evaluate"}
TRIED = dict.fromkeys(STAGES, planned) | {
    "--help": simply,
    "--version": simply,
    "r1": whole,
    "lineage": simply,
    "report": simply,
    "samples": simply,
    "push": pushed,
    "shrink": shrunk,
    "rescore": simply,
    "replay": replayed,
    "algorithms": simply,
    "config": simply,
    "data": shown_data,
    "recipes": copied,
    "verify": judged,
    "verifier": verifier,
    "profile": profiled,
    "evaluate": evaluated,
    "watch": watched,
    "serve": served,
    "serve-reward": rewarded,
    "doctor": doctored,
    "sandbox": sandboxed,
}
