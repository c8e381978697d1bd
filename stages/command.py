"""The command line. It stands on the roof and imports a room only when a command enters it."""

import importlib
import sys
from collections.abc import Sequence
from difflib import get_close_matches

from pipeline.failures import RecipeError, StageError, Stopped

COMMANDS = {  # name: (module with `command(words) -> exit code`, one line of help)
    "base": ("stages.launch", "pre-train the tiny base model of a recipe"),
    "zero": ("stages.launch", "R1-Zero: GRPO on a base model with rule-based rewards"),
    "evaluate": ("stages.evaluate", "pass@1, pass@k, maj@k and greedy accuracy of a checkpoint"),
    "recipes": ("stages.recipe_files", "ls | show NAME | cp NAME FILE | validate FILE..."),
    "config": ("stages.recipe_files", "schema: the JSON schema of every recipe, for editors"),
}


def usage() -> str:
    lines = [f"  {name:<10}{told}" for name, (_, told) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: veriloop COMMAND [--help]",
            "",
            "Train language models to reason with verifiable rewards.",
            "",
            *lines,
            "",
            "A recipe's fields are flags too: veriloop zero tiny/zero --rollout.prompts 16 --dry-run",
        ]
    )


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. Errors that a user can mend are one message."""
    words = list(sys.argv[1:] if words is None else words)
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if words else 2
    name, rest = words[0], words[1:]
    if name not in COMMANDS:
        close = get_close_matches(name, COMMANDS, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        print(f"veriloop: no command {name!r}.{hint}\n\n{usage()}", file=sys.stderr)
        return 2
    module = importlib.import_module(COMMANDS[name][0])
    try:
        return module.command([name, *rest])
    except (RecipeError, FileNotFoundError, ModuleNotFoundError) as mistake:
        print(f"veriloop: {mistake}", file=sys.stderr)
        return 2
    except StageError as failure:
        print(f"veriloop: {type(failure).__name__}: {failure}", file=sys.stderr)
        return 1
    except Stopped as stopped:
        print(f"veriloop: {stopped}; the same command with --resume goes on from there")
        return 130


if __name__ == "__main__":
    sys.exit(main())
