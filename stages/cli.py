"""Entry point of the command line. Modules of commands are imported lazily, so help is fast."""

import errno
import importlib
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches

from veriloop.pipeline.errors import RecipeError, StageError, Stopped
from veriloop.pipeline.training.stop import CommandSignals, ProcessEnd, uninterrupted_exit
from veriloop.sandbox.remote.redaction import redact_logs, redacted
from veriloop.stages.onednn import limit_caches
from veriloop.stages.openmp import choose_waiting
from veriloop.verifiers.verdict import JudgingError

DONE, FAILED, MISTAKE, STOPPED, UNREAD = 0, 1, 2, 130, 141  # exit codes; 128 + the signal's number

LAUNCH, PACKAGE = "veriloop.stages.launch", "veriloop.stages.commands"
GROUPS = {  # group: {name: (module with `command(words) -> exit code`, one line of help)}
    "train": {
        "base": (LAUNCH, "pre-train the tiny base model of a recipe"),
        "zero": (LAUNCH, "R1-Zero: GRPO on a base model, rule-based rewards"),
        "reasoning-rl": (LAUNCH, "R1-Zero after a cold start, with a language reward"),
        "preference-rl": (LAUNCH, "RL with rules and, on general prompts, a reward model"),
        "preference": (LAUNCH, "DPO and related losses, offline or on-policy"),
        "collect-preferences": (LAUNCH, "pairs of sampled answers, ranked, as a data file"),
        "reward-model": (LAUNCH, "a scalar reward model on pairs, rankings or labels"),
        "sft": (LAUNCH, "supervised fine-tuning on prompts with completions"),
        "cold-start": (LAUNCH, "SFT on readable chains of an R1-Zero checkpoint"),
        "rejection-sft": (LAUNCH, "SFT on verified samples of a teacher"),
        "distill": (LAUNCH, "SFT or on-policy distillation from a teacher"),
        "shrink": (f"{PACKAGE}.shrink", "a student of some layers of a checkpoint"),
        "r1": (f"{PACKAGE}.r1", "the whole recipe: all stages in order, with goals"),
    },
    "inspect a run": {
        "report": (f"{PACKAGE}.report", "write an HTML page about a run, or compare runs"),
        "watch": (f"{PACKAGE}.watch", "the same curves and rollouts live in the browser"),
        "samples": (f"{PACKAGE}.samples", "print rollouts with their verdicts"),
        "lineage": (f"{PACKAGE}.lineage", "print the inputs and outputs of every stage"),
        "push": (f"{PACKAGE}.push", "upload a final checkpoint to the Hugging Face hub"),
        "rescore": (f"{PACKAGE}.rescore", "verify recorded rollouts with another verifier"),
        "replay": (f"{PACKAGE}.replay", "repeat updates on recorded rollouts"),
    },
    "measure": {
        "evaluate": (f"{PACKAGE}.evaluate", "pass@1, pass@k and maj@k of a checkpoint"),
        "profile": (f"{PACKAGE}.profile", "time the parts of a training step"),
        "doctor": (f"{PACKAGE}.doctor", "check this machine, and a model with --model"),
    },
    "data, recipes, algorithms": {
        "data": (f"{PACKAGE}.data", "show, check, decontaminate or export a data set"),
        "recipes": (f"{PACKAGE}.recipes", "list, show, copy or validate recipes"),
        "config": (f"{PACKAGE}.recipes", "print the JSON schema of recipes"),
        "algorithms": (f"{PACKAGE}.algorithms", "list the presets and the memory they need"),
    },
    "verify": {
        "verify": (f"{PACKAGE}.verify", "verify the responses of a JSONL file"),
        "verifier": (f"{PACKAGE}.verifier", "list, create or check verifiers"),
        "serve": (f"{PACKAGE}.serve", "serve verdicts over HTTP"),
        "serve-reward": (f"{PACKAGE}.serve_reward", "serve a trained reward model over HTTP"),
        "sandbox": (f"{PACKAGE}.sandbox", "check or serve the sandbox, build its image"),
    },
}
REMEDIES = {  # what to do about an OSError, by the name of its errno
    **dict.fromkeys(("ENOSPC", "EDQUOT"), "make room"),
    **dict.fromkeys(("EACCES", "EPERM", "EROFS"), "allow access or name another place"),
    "EFBIG": "raise the limit on the size of files (ulimit -f)",
    "EMFILE": "raise the limit on open files (ulimit -n)",
    "EIO": "check the disk",
}
COMPUTING = {*GROUPS["train"], "replay", "evaluate", "profile", "serve-reward"}
COMMANDS = {name: entry for group in GROUPS.values() for name, entry in group.items()}


def usage() -> str:
    """The text of `veriloop --help`, laid out like the help that tyro prints for each command."""
    from rich import box
    from rich.console import Console, Group
    from rich.panel import Panel
    from rich.table import Table

    panels = []
    for title, commands in GROUPS.items():
        grid = Table.grid(padding=(0, 2))
        grid.add_column(min_width=max(map(len, COMMANDS)))
        grid.add_column(ratio=1)
        for name, (_, summary) in commands.items():
            grid.add_row(name, summary)
        panels.append(Panel(grid, title=title, title_align="left", box=box.ROUNDED))
    console = Console(width=80, highlight=False)
    with console.capture() as captured:
        console.print(
            "usage: veriloop [-h] [--version] COMMAND ...\n\n"
            "Train language models to reason with verifiable rewards.\n",
            Group(*panels),
            "\nEvery command has --help. Fields of a recipe are flags:\n"
            "  veriloop zero tiny/zero --rollout.prompts 16 --dry-run",
            markup=False,
        )
    return captured.get().rstrip()


def entry(*words: str) -> int:
    """Run the command of this process, `words` and then its arguments; returns the exit code.

    The first signal after it is ignored, see `uninterrupted_exit`.
    """
    end = ProcessEnd()
    CommandSignals().__enter__()  # to the end: a run has its own, and leaves them before it reports
    try:
        code = main([*words, *sys.argv[1:]])
    except KeyboardInterrupt:  # before or after `_run`
        code = _fail("interrupted", STOPPED)
    end.code = code
    return uninterrupted_exit(code)


def main(words: Sequence[str]) -> int:
    """Run one command and return its exit code; expected errors are printed as one message.

    0: done. 1: a stage failed. 2: a mistake of the user. 130: stopped. 141: broken pipe.
    """
    if sys.stderr is not None and not sys.stderr.isatty():
        # Read by tqdm when it is imported: a log gets a line of a download every 10 s.
        os.environ.setdefault("TQDM_MININTERVAL", "10")
    try:
        code = _answer(list(words))
        sys.stdout.flush()
    except BrokenPipeError:
        # Redirect stdout, or the interpreter fails again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    return code


def _answer(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return DONE if words else MISTAKE
    if foreign := [word for word in words if not _is_text(word)]:
        return _fail(f"{os.fsencode(foreign[0])!r} on the command line is not UTF-8", MISTAKE)
    if words[0] in ("-V", "--version"):
        # Imported here: it takes longer than all other imports of --help.
        from importlib import metadata

        print(f"veriloop {metadata.version('veriloop')}")
        return DONE
    if words[0] not in COMMANDS:
        close = get_close_matches(words[0], COMMANDS, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        return _fail(f"no command {words[0]!r}.{hint}\n`veriloop --help` lists them", MISTAKE)
    return _run(words)


def _is_text(word: str) -> bool:
    """Whether a word holds no bytes that are not UTF-8; records could not name it."""
    return not any("\ud800" <= character <= "\udfff" for character in word)


def _run(words: list[str]) -> int:
    """Run a known command; turn the errors that it documents into messages and exit codes."""
    if words[0] in COMPUTING:
        choose_waiting()
        limit_caches()
    redact_logs()  # huggingface_hub logs addresses, HF_ENDPOINT's credentials included
    try:
        return importlib.import_module(COMMANDS[words[0]][0]).command(words)
    except (RecipeError, FileNotFoundError) as mistake:
        return _fail(str(mistake), MISTAKE)
    except OSError as failure:
        if isinstance(failure, BrokenPipeError):
            raise
        return _fail(_unusable(failure, words[0]), FAILED)
    except ModuleNotFoundError as missing:
        return _fail(_missing_package(missing), MISTAKE)
    except (StageError, JudgingError) as failure:
        return _fail(f"{type(failure).__name__}: {failure}", FAILED)
    except Stopped as stopped:
        return _fail(str(stopped), STOPPED)
    except KeyboardInterrupt:
        return _fail("interrupted; checkpoints written before are complete", STOPPED)
    except SystemExit as end:
        # tyro has printed help or what is wrong with a flag.
        return end.code if isinstance(end.code, int) else MISTAKE


def _unusable(failure: OSError, command: str) -> str:
    """The message for a file that cannot be read or written, or a full disk."""
    place = f"{failure.filename}: " if failure.filename else ""
    remedy = REMEDIES.get(errno.errorcode.get(failure.errno or 0, ""), "remove the cause")
    problem = f"{place}{failure.strerror or failure}"
    if COMMANDS[command] not in GROUPS["train"].values():
        return f"{problem}. To go on, {remedy} and repeat the command"
    return f"{problem}. Checkpoints written before are complete: {remedy}, then go on with --resume"


def _missing_package(missing: ModuleNotFoundError) -> str:
    """The message for a missing package; a missing module of veriloop is a bug and is raised."""
    if missing.name is None:
        # Raised by veriloop itself, with its own advice.
        return str(missing)
    if missing.name.partition(".")[0] == "veriloop":
        raise missing
    return f"{missing}; {_install_command(missing.name)}"


def _install_command(module: str) -> str:
    """The command that installs a module: the extra of veriloop that names its distribution."""
    from importlib import metadata

    distribution = module.replace("_", "-").lower()
    try:
        requirements = metadata.requires("veriloop") or []
    except metadata.PackageNotFoundError:  # a checkout on the path
        requirements = []
    for requirement in requirements:
        name, _, extra = requirement.partition("extra ==")
        if name.replace("_", "-").lower().startswith(distribution) and extra:
            return f"install it with pip install 'veriloop[{extra.strip()[1:-1]}]'"
    return "install what veriloop needs with pip install veriloop"


def _fail(message: str, code: int) -> int:
    print(f"veriloop: {redacted(message)}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(entry())
