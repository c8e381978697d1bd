"""The command line. It stands on the roof and imports a room only when a command enters it."""

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import metadata
from pathlib import Path

from pipeline.failures import RecipeError, StageError, Stopped

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("data", "sandbox", "verifiers", "pipeline", "stages")
DONE, FAILED, MISTAKE, STOPPED, UNREAD = 0, 1, 2, 130, 141  # exit codes; 128 + the signal's number

COMMANDS = {  # name: (module with `command(words) -> exit code`, one line of help)
    "base": ("stages.launch", "pre-train the tiny base model of a recipe"),
    "zero": ("stages.launch", "R1-Zero: GRPO on a base model with rule-based rewards"),
    "reasoning-rl": (
        "stages.launch",
        "the same after a cold start, with a reward for one language",
    ),
    "preference-rl": ("stages.launch", "rules for reasoning, a reward model for general prompts"),
    "preference": (
        "stages.launch",
        "DPO and its kin, on pairs from a file or sampled and labelled",
    ),
    "reward-model": ("stages.launch", "a scalar head that learns which answer is better"),
    "sft": ("stages.launch", "supervised fine-tuning on a file of prompts and completions"),
    "cold-start": ("stages.launch", "SFT of the base on readable chains of an R1-Zero checkpoint"),
    "rejection-sft": (
        "stages.launch",
        "SFT of the base on verified samples of a reasoning model, with general rows",
    ),
    "distill": (
        "stages.launch",
        "a student learns from a teacher: its answers, or its likelihoods",
    ),
    "r1": ("stages.r1_command", "a whole recipe: every stage in order, each with its goals"),
    "lineage": ("stages.lineage_command", "what each stage of a run came from, and if it stands"),
    "report": ("stages.report_command", "what happened in a run, as one page to look at"),
    "profile": ("stages.profile_command", "where the time of a step goes, and what is the least"),
    "watch": ("stages.watch_command", "a run in the browser while it trains"),
    "samples": ("stages.samples_command", "answers of a run with their verdicts, to be read"),
    "data": ("stages.data_command", "show | check | decontaminate | export: published data sets"),
    "rescore": ("stages.rescore_command", "judge recorded rollouts of a run by a verifier anew"),
    "replay": ("stages.replay_command", "updates again on recorded rollouts, by another loss"),
    "evaluate": (
        "stages.evaluate",
        "a checkpoint's pass@1, pass@k, maj@k; --set: of published sets; --lm-eval: its tasks",
    ),
    "algorithms": ("stages.algorithms_command", "what can be trained by, and what it needs"),
    "recipes": ("stages.recipe_files", "ls | show NAME | cp NAME FILE | validate FILE..."),
    "config": ("stages.recipe_files", "schema: the JSON schema of every recipe, for editors"),
    "verify": ("stages.verify_command", "judge the responses of a JSONL file by one verifier"),
    "verifier": ("stages.verifier_command", "ls | new NAME | check NAME: write one, try one out"),
    "serve": ("stages.serve", "judge responses over HTTP, for any trainer"),
    "serve-reward": ("stages.serve_reward", "a trained reward model over HTTP, for the verifier"),
    "doctor": ("stages.doctor_command", "look over this machine; --model: a model's traps as well"),
    "sandbox": ("stages.sandbox_command", "check: run attacks on it; serve: lend it over HTTP"),
}


def usage() -> str:
    """What `veriloop --help` prints."""
    lines = [f"  {name:<14}{told}" for name, (_, told) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: veriloop COMMAND [--help]",
            "       veriloop --version",
            "",
            "Train language models to reason with verifiable rewards.",
            "",
            *lines,
            "",
            "Fields of a recipe are flags: veriloop zero tiny/zero --rollout.prompts 16 --dry-run",
        ]
    )


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. Errors that a user can mend are one message.

    0: done. 1: a stage failed. 2: what was asked cannot be done. 130: stopped, all saved.
    """
    try:
        code = _answer(list(sys.argv[1:] if words is None else words))
        sys.stdout.flush()
    except BrokenPipeError:  # `veriloop ... | head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    return code


def _answer(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return DONE if words else MISTAKE
    if words[0] in ("-V", "--version"):
        print(f"veriloop {metadata.version('veriloop')}")
        return DONE
    if words[0] not in COMMANDS:
        close = get_close_matches(words[0], COMMANDS, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        return _say(f"no command {words[0]!r}.{hint}\n\n{usage()}", MISTAKE)
    return _run(words)


def _run(words: list[str]) -> int:
    """One known command, its failures turned into messages and exit codes."""
    try:
        if words[0] != "doctor":  # which tells that along with all else
            check_verifiers()
        return importlib.import_module(COMMANDS[words[0]][0]).command(words)
    except (RecipeError, FileNotFoundError) as mistake:
        return _say(str(mistake), MISTAKE)
    except ModuleNotFoundError as missing:
        return _say(_lacking(missing), MISTAKE)
    except StageError as failure:
        return _say(f"{type(failure).__name__}: {failure}", FAILED)
    except Stopped as stopped:
        return _say(str(stopped), STOPPED)
    except KeyboardInterrupt:
        return _say("interrupted; checkpoints written before are complete", STOPPED)
    except SystemExit as told:  # tyro has printed its help, or what is wrong with a flag
        return told.code if isinstance(told.code, int) else MISTAKE


def check_verifiers(root: Path = ROOT) -> None:
    """Raise RecipeError unless `import verifiers` would find the folder beside pipeline/.

    Another package has that name too. Only looks for it: importing it would run its code.
    """
    found = importlib.util.find_spec("verifiers")
    origin = found.origin if found is not None else None
    if origin is None or Path(origin).resolve().parent != root / "verifiers":
        raise RecipeError(
            f"`import verifiers` finds {origin or 'no such package'}, not the folder beside "
            f"{root / 'pipeline'}: another package of that name hides it. Remove that one with "
            f"`pip uninstall verifiers`, then run `pip install -e .` in {root}"
        )


def _lacking(missing: ModuleNotFoundError) -> str:
    """What to tell the user; raises again where a module of our own is missing: a bug."""
    if missing.name is None:  # raised by us, with its own advice
        return str(missing)
    if missing.name.partition(".")[0] in ROOMS:
        raise missing
    return f"{missing}; install what veriloop needs with `pip install -e .` in {ROOT}"


def _say(message: str, code: int) -> int:
    print(f"veriloop: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
