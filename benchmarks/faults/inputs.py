"""Mutate user input and files on disk: every input must be accepted or refused clearly.

    python benchmarks/faults/inputs.py [--cases N] [--seed N] [--only KIND:NUMBER]
                                       [--quick] [--json FILE]

Recipes, data files, commands, plugins, checkpoints and recorded runs are changed at random and
given to the command that reads them, each in a process forked from this one. Outcomes:

    right         exit code 0                      traceback     a traceback, or no message
    refused       a message and exit code 1 or 2   hang          no end within the limit
    silent wrong  exit code 0 for an input that is certainly wrong, or a result without it:
                  text that is no UTF-8, rows of data that are no rows or fewer than the lines,
                  weights of another size or other weights than in the file, files of a model and
                  records of runs that are no JSON, settings that the resolved recipe has not
"""

import json
import os
import random
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

sys.path.append(str(Path(__file__).resolve().parents[1]))  # of publish.py
sys.path.append(str(Path(__file__).resolve().parent))
from mutations import changed_bytes, changed_value, changed_words
from oracles import (
    count_of_rows,
    has_rows,
    is_object,
    is_text,
    lost_settings,
    resolved,
    weights_differ,
)
from publish import ROOT, arguments, publish, table
from tiny_stages import BARE, Command, models, preload, recipe, stage_command

OPTIONS: dict[str, dict[str, Any]] = {
    "cases": {"type": int, "default": 10_000, "help": "inputs to try"},
    "seed": {"type": int, "default": 0, "help": "of the changes"},
    "only": {"default": "", "help": "one case again, with what it prints"},
    "folder": {"type": Path, "help": "where inputs are kept; default: a new folder"},
}
LIMIT_S = 60.0
GOOD = ("right", "refused")
SHARES = {  # of the cases
    "recipe": 0.36,
    "words": 0.22,
    "data": 0.26,
    "plugin": 0.04,
    "checkpoint": 0.06,
    "record": 0.06,
}
LIGHT = ("recipe", "words", "data", "plugin")  # read without torch
RECIPES = sorted((ROOT / "recipes").rglob("*.yaml"))
WORDS = [
    ["zero", "tiny/zero", "--dry-run", "--rollout.temperature", "0.7", "--steps", "3"],
    ["sft", "tiny/sft", "--dry-run", "--data.rows", "20"],
    ["r1", "tiny/r1", "--dry-run", "--set", "zero.steps=10", "--from", "cold_start"],
    ["recipes", "validate", "tiny/zero", "tiny/sft"],
    ["recipes", "show", "tiny/zero"],
    ["algorithms", "ls"],
    ["data", "show", "rows.jsonl", "--rows", "2"],
    ["verifier", "ls"],
    ["report", "run"],
    ["lineage", "run", "--json"],
    ["samples", "run", "--stage", "zero", "-n", "3"],
    ["config", "schema"],
]
ROWS = {  # data files by the recipe that reads them
    "tiny/sft": [
        {"prompt": f"What is {n}+1?", "completion": f"<answer>{n + 1}</answer>"} for n in range(30)
    ],
    "tiny/dpo": [
        {"prompt": f"What is {n}+1?", "chosen": str(n + 1), "rejected": "0"} for n in range(30)
    ],
}
PLUGIN = """\
from veriloop.verifiers.answer import answer_to
from veriloop.verifiers.registry import verifier
from veriloop.verifiers.verdict import Verdict


@verifier("mine", reference={"text": "abc"}, accepts="<answer>abc</answer>",
          rejects=("<answer>ab</answer>",), other=({"text": "x"}, "<answer>x</answer>"))
def check(problem, response):
    answer = answer_to(problem, response)
    if answer is None:
        return Verdict(score=0.0, status="no_answer")
    return Verdict(score=float(answer == problem.reference["text"]), answer=answer)
"""


@dataclass(kw_only=True)
class Case:
    """One input and its outcome."""

    kind: str
    number: int
    change: str
    certainly_wrong: bool = False
    given: Any = None  # values of a recipe that its dry run must show
    usual: tuple[str, ...] = ()  # those of them that the unchanged recipe does not show either
    prints: str = ""  # by a reader that read all
    outcome: str = ""
    said: str = ""


def parsed(content: bytes) -> Any:
    """The values of a recipe as the product reads YAML; None for what is none."""
    from veriloop.pipeline.config.load import parse_value
    from veriloop.pipeline.errors import RecipeError

    try:
        return parse_value(content.decode())
    except RecipeError:
        return None


Built = tuple[Case, list[str], Callable[[], None] | None]  # with words, or a function to call


class Inputs:
    """Builds the cases in `folder`."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed
        self.models: dict[str, Path] = {}

    def build(self, kind: str, number: int, case_folder: Path) -> Built:
        """The case with its files in `case_folder`, and the words of its command or a function."""
        case_folder.mkdir(parents=True)
        draw = random.Random(f"{self.seed}/{kind}/{number}")
        case = Case(kind=kind, number=number, change="")
        return getattr(self, f"_{kind}")(case, draw, case_folder)

    def _recipe(self, case: Case, draw: random.Random, case_folder: Path) -> Built:
        path = draw.choice(RECIPES)
        content = path.read_bytes()
        if draw.random() < 0.7:
            values, case.change = changed_value(yaml.safe_load(content), draw)
            content = yaml.safe_dump(values, allow_unicode=True).encode()
        else:
            content, case.change = changed_bytes(content, draw)
        case.change = f"{path.stem}: {case.change}"
        case.certainly_wrong = not is_text(content)
        (case_folder / "r.yaml").write_bytes(content)
        if draw.random() < 0.5:
            return case, ["recipes", "validate", "r.yaml"], None
        stage = yaml.safe_load(path.read_bytes())["stage"]
        if stage not in BARE and not case.certainly_wrong:
            case.given, case.usual = parsed(content), self._usual(path)
        return case, [stage.replace("_", "-"), "r.yaml", "--dry-run"], None

    @cache  # noqa: B019  one object for the whole run
    def _usual(self, path: Path) -> tuple[str, ...]:
        """The settings that the resolved form of an unchanged recipe does not have as written."""
        from veriloop.pipeline.config.load import read

        whole = read(str(path)).model_dump(mode="json")
        return tuple(lost_settings(parsed(path.read_bytes()), whole))

    def _words(self, case: Case, draw: random.Random, case_folder: Path) -> Built:
        (case_folder / "rows.jsonl").write_text(
            json.dumps({"prompt": "a", "completion": "b"}) + "\n"
        )
        words, case.change = changed_words(draw.choice(WORDS), draw)
        starts = {"serve", "serve-reward", "watch", "doctor", "profile", "evaluate"}
        if "--dry-run" not in words and words and words[0] in {*starts, *STAGE_COMMANDS}:
            words = [*words, "--help"]
        return case, words, None

    def _data(self, case: Case, draw: random.Random, case_folder: Path) -> Built:
        name = draw.choice(list(ROWS))
        rows = ROWS[name]
        content = "".join(json.dumps(row) + "\n" for row in rows).encode()
        if draw.random() < 0.6:
            values, case.change = changed_value(rows, draw)
            content = "".join(json.dumps(row) + "\n" for row in values).encode()
        else:
            content, case.change = changed_bytes(content, draw)
        case.change = f"{name}: {case.change}"
        case.certainly_wrong = not is_text(content) or not has_rows(content, list(rows[0]))
        case.prints = f"{count_of_rows(content)} rows"
        (case_folder / "rows.jsonl").write_bytes(content)

        def read() -> None:
            from veriloop.data import preferences, sft_rows
            from veriloop.pipeline.errors import RecipeError

            try:
                reader = sft_rows.read if name == "tiny/sft" else preferences.read
                print(len(reader(Path("rows.jsonl"))), "rows")
            except ValueError as mistake:  # as stages do
                raise RecipeError(f"data.source: {mistake}") from mistake

        if name == "tiny/sft" and draw.random() < 0.3:
            case.certainly_wrong, case.prints = False, ""  # it prints the first rows only
            return case, ["data", "show", "rows.jsonl"], None
        return case, [], read

    def _plugin(self, case: Case, draw: random.Random, case_folder: Path) -> Built:
        content, case.change = changed_bytes(PLUGIN.encode(), draw)
        case.certainly_wrong = not is_text(content)
        (case_folder / "mine.py").write_bytes(content)
        return case, ["verifier", "check", "mine", "--plugin", "mine.py"], None

    def _checkpoint(self, case: Case, draw: random.Random, case_folder: Path) -> Built:
        shutil.copytree(self.models["start"], case_folder / "start")
        path = draw.choice(sorted((case_folder / "start").iterdir()))
        whole = path.read_bytes()
        content, change = changed_bytes(whole, draw)
        case.change = f"{path.name}: {change}"
        case.prints = "as in the file"
        case.certainly_wrong = (path.suffix == ".json" and not is_object(content)) or (
            path.suffix == ".safetensors" and len(content) != len(whole)
        )
        path.write_bytes(content)

        def read() -> None:
            from veriloop.pipeline.model.policy import load_policy, load_tokenizer

            model = load_policy(Path("start"))
            load_tokenizer(Path("start"))
            print(*weights_differ(Path("start"), model) or ["as in the file"])

        return case, [], read

    def _record(self, case: Case, draw: random.Random, case_folder: Path) -> Built:
        shutil.copytree(self.folder / "whole" / "run", case_folder / "run")
        shutil.copy(self.folder / "whole" / "recipe.yaml", case_folder)
        files = [p for p in sorted((case_folder / "run").rglob("*")) if p.is_file()]
        path = draw.choice(files)
        content = path.read_bytes()
        if path.suffix == ".json" and draw.random() < 0.5:
            values, change = changed_value(json.loads(content), draw)
            content = json.dumps(values).encode()
        else:
            content, change = changed_bytes(content, draw)
        case.change = f"{path.relative_to(case_folder / 'run')}: {change}"
        path.write_bytes(content)
        case.certainly_wrong = path.name == "run.json" and not is_object(content)
        readers = (
            ["report", "run", "--into", "."],
            ["samples", "run"],
            ["lineage", "run"],
            ["zero", "recipe.yaml", "--output", "run", "--resume", "--steps", "7"],
            ["zero", "recipe.yaml", "--output", "run", "--resume"],
        )
        return case, draw.choice(readers), None


def _stage_commands() -> set[str]:
    from veriloop.stages.cli import GROUPS

    return set(GROUPS["train"])


STAGE_COMMANDS = _stage_commands()


def run_case(
    case: Case, words: list[str], function: Callable[[], None] | None, case_folder: Path
) -> None:
    """Give the input to its reader in a separate process; records the outcome."""
    command = Command(words=words, folder=case_folder)
    if function is not None:
        command.answer = lambda: _called(function)
    code = command.start().ended(LIMIT_S)
    output = command.said
    case.outcome = outcome(case, code, output)
    if case.outcome not in GOOD:
        case.said = output[-1500:]


def _called(function: Callable[[], None]) -> int:
    """The exit code of a function, by the rules of the command line."""
    from veriloop.stages import cli

    class Module:
        @staticmethod
        def command(words: list[str]) -> int:
            del words
            function()
            return 0

    sys.modules["called"] = Module  # type: ignore[assignment]
    cli.COMMANDS["report"] = ("called", "")
    return cli.main(["report"])


def outcome(case: Case, code: int | None, output: str) -> str:
    """How the command handled its input."""
    if code is None:
        return "hang"
    if "Traceback (most recent call last)" in output:
        return "traceback"
    if code == 0:
        return "silent wrong" if is_wrong(case, output) else "right"
    return "refused" if code in (1, 2) and output.strip() else "traceback"


def is_wrong(case: Case, output: str) -> bool:
    """Whether a command that succeeded should not have, or has lost a part of its input."""
    if case.given is not None and (found := resolved(output)) is not None:
        lost = [place for place in lost_settings(case.given, found) if place not in case.usual]
        if lost:
            case.change += f"; lost: {', '.join(lost)}"
            return True
    return case.certainly_wrong or case.prints not in output


def place_of(case: Case) -> str:
    """The innermost line of a traceback, by which cases are grouped."""
    lines = re.findall(r'File "[^"]*?/([^/"]+)", line (\d+)', case.said)
    last = (case.said.strip().splitlines() or [""])[-1][:160]
    return f"{lines[-1][0]}:{lines[-1][1]}: {last}" if lines else last


def main() -> int:
    options = arguments(__doc__ or "", **OPTIONS)
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="inputs-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["HF_HUB_OFFLINE"] = "1"
    inputs = Inputs(folder, options.seed)
    if options.only:
        kind, _, number = options.only.partition(":")
        plan = [(kind, int(number))]
    else:
        count = 120 if options.quick else options.cases
        shares = {k: s for k, s in SHARES.items() if not options.quick or k in LIGHT}
        plan = [(kind, n) for kind, s in shares.items() for n in range(round(s * count))]
    import_light()
    require_plugin(folder / "unchanged")
    cases: list[Case] = []
    for kind, number in plan:
        if kind not in LIGHT and not inputs.models:
            preload()
            inputs.models = models(folder / "models", ["zero"])
            whole = stage_command("zero", folder / "whole", recipe("zero", inputs.models))
            if whole.start().ended() != 0:
                raise SystemExit(f"the run whose records are changed failed: {whole.said[-2000:]}")
        case_folder = folder / f"{kind}-{number}"
        shutil.rmtree(case_folder, ignore_errors=True)
        case, words, function = inputs.build(kind, number, case_folder)
        run_case(case, words, function, case_folder)
        if options.only:
            print(case.change, words, (case_folder / "said.log").read_text(), sep="\n")
        elif case.outcome in GOOD:
            shutil.rmtree(case_folder)
        cases.append(case)
        if len(cases) % 500 == 0:
            print(f"{len(cases)}: {Counter(c.outcome for c in cases)}", file=sys.stderr, flush=True)
    return report(options, cases)


def require_plugin(folder: Path) -> None:
    """End unless PLUGIN is accepted: of a plugin that is not, every change would be refused."""
    folder.mkdir()
    (folder / "mine.py").write_text(PLUGIN)
    command = Command(words=["verifier", "check", "mine", "--plugin", "mine.py"], folder=folder)
    if command.start().ended() != 0:
        raise SystemExit(f"the plugin that is changed is refused: {command.said[-2000:]}")
    shutil.rmtree(folder)


def import_light() -> None:
    """Import what reads recipes, data and plugins, so that forked commands begin at once."""
    import importlib

    for module in ("launch", "commands.recipes", "commands.data", "commands.verifier"):
        importlib.import_module(f"veriloop.stages.{module}")
    for module in ("data.preferences", "data.sft_rows", "pipeline.dry_run.plan"):
        importlib.import_module(f"veriloop.{module}")


def report(options: Any, cases: list[Case]) -> int:
    bad = [case for case in cases if case.outcome not in GOOD]
    groups: dict[str, list[Case]] = {}
    for case in bad:
        groups.setdefault(f"{case.outcome}: {place_of(case)}", []).append(case)
    failed = [
        f"{name} ({len(own)}; --only {own[0].kind}:{own[0].number}, {own[0].change[:120]})"
        for name, own in sorted(groups.items(), key=lambda item: -len(item[1]))
    ]
    outcomes = Counter((case.kind, case.outcome) for case in cases)
    names = [*GOOD, "traceback", "hang", "silent wrong"]
    kinds = dict.fromkeys(case.kind for case in cases)
    rows = [[kind, *(str(outcomes[kind, name]) for name in names)] for kind in kinds]
    results = {
        "cases": len(cases),
        "outcomes": {f"{kind}: {name}": count for (kind, name), count in sorted(outcomes.items())},
        "bad": [asdict(case) for case in bad],
    }
    return publish(options, table(["input", *names], rows), results, failed=failed)


if __name__ == "__main__":
    sys.exit(main())
