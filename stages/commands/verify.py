"""`veriloop verify`: verify the responses of a JSONL file, one JSON verdict per line."""

import dataclasses
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TextIO

import tyro

from veriloop.data.problem import Problem
from veriloop.pipeline.config.fields import Count, Positive
from veriloop.pipeline.errors import RecipeError, StageError
from veriloop.stages.commands.parse import JudgeOptions, parse_options
from veriloop.stages.summary import text_table
from veriloop.verifiers.pool import VerifierPool
from veriloop.verifiers.registry import Verifier, all_verifiers, get
from veriloop.verifiers.verdict import Verdict

BATCH = 512  # lines verified together, which bounds memory for files of any size
_NOTHING = object()  # where a line expects nothing: null is an expectation
_TOLERANCE = 1e-6  # of an expected score


class VerifierFailedError(StageError):
    """A verifier fails even on its own example; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Options(JudgeOptions):
    """Verify each line {"gold" or "reference": ..., "response": ...} of a JSONL file."""

    file: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(metavar="FILE", help="a JSONL file, or - for standard input"),
    ]
    verifier: str = ""  # registered name of the verifier of lines that name none
    workers: Count = 1  # verifier processes
    limit_s: Positive = 5.0  # seconds per verification
    memory_mb: Count = 2048  # memory of a worker
    prefilled_think: bool = False  # set if the prompts end with <think>


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the file: what to judge, and the expected result if it has one."""

    problem: Problem
    response: str
    expected: Any = _NOTHING


@dataclass(slots=True)
class Agreement:
    """The number of lines with an expected result, and of those that agree, by verifier."""

    lines: Counter[str] = field(default_factory=Counter)
    agreeing: Counter[str] = field(default_factory=Counter)

    def add(self, verifier: str, agrees: bool) -> None:
        self.lines[verifier] += 1
        self.agreeing[verifier] += agrees

    def __str__(self) -> str:
        rows = [
            (name, str(self.agreeing[name]), str(count), f"{self.agreeing[name] / count:.1%}")
            for name, count in self.lines.items()
        ]
        right, total = self.agreeing.total(), self.lines.total()
        rows.append(("all", str(right), str(total), f"{right / total:.1%}"))
        return text_table(("verifier", "as expected", "lines", "share"), rows)


def command(words: Sequence[str]) -> int:
    """Print one verdict per line, in the order of the input, and the agreement to standard error.

    A failed verification is a verdict of status "error". Raises RecipeError for an invalid line.
    """
    options = parse_options(Options, words)
    default = find(options.verifier).name if options.verifier else ""
    judging = options.judging()
    source = _standard_input() if options.file == "-" else _open_lines(options.file)
    agreement, verified = Agreement(), 0
    with (
        source if source is not sys.stdin else nullcontext(),
        VerifierPool(options.workers, options.limit_s, options.memory_mb, **judging) as pool,
    ):
        lines = read(source, default, prefilled_think=options.prefilled_think)
        while batch := list(islice(lines, BATCH)):
            verified += len(batch)
            for line, verdict in zip(batch, _verdicts(pool, batch), strict=True):
                print(
                    json.dumps(_row(line, verdict, agreement), ensure_ascii=False, allow_nan=False)
                )
            sys.stdout.flush()
    if not verified:
        raise RecipeError(f"{options.file} holds no lines to verify")
    if agreement.lines:
        print(agreement, file=sys.stderr)
    return 0


def find(name: str) -> Verifier:
    """The verifier called `name`. Raises RecipeError with the nearest name."""
    try:
        return get(name)
    except KeyError as unknown:
        raise RecipeError(str(unknown.args[0])) from unknown


def _standard_input() -> TextIO:
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="surrogateescape")
    return sys.stdin


def _open_lines(path: str) -> TextIO:
    if not Path(path).is_file():
        raise RecipeError(f"{path} is not a file; give a JSONL file, or - for standard input")
    return open(path, encoding="utf-8-sig", errors="surrogateescape")


def read(lines: TextIO, default: str = "", *, prefilled_think: bool = False) -> Iterator[Line]:
    """The lines that are not blank. Raises RecipeError naming the file and a bad line.

    A line names its `verifier`, or is judged by `default`. `gold` is the reference if it is a
    mapping, else the value of the reference's first key, as in {"value": gold} for `number`.
    `facts`, `prompt` and `expected` are optional.
    """
    for number, text in enumerate(lines, start=1):
        if text.strip():
            try:
                line = _line(json.loads(_utf8(text)), f"line/{number}", default)
            except (ValueError, RecursionError) as wrong:
                name = getattr(lines, "name", "input")
                raise RecipeError(f"{name}, line {number}: {wrong}") from wrong
            if prefilled_think or line.problem.prompt.rstrip().endswith("<think>"):
                facts = {"prefilled_think": True, **line.problem.facts}
                problem = dataclasses.replace(line.problem, facts=facts)
                line = dataclasses.replace(line, problem=problem)
            yield line


def _utf8(text: str) -> str:
    """The text. Raises ValueError if bytes of it were not UTF-8, which were read as surrogates."""
    if any("\udc80" <= character <= "\udcff" for character in text):
        raise ValueError("not UTF-8")
    return text


def _line(record: Any, id: str, default: str) -> Line:
    if not isinstance(record, dict):
        raise ValueError(f"must be an object, got {type(record).__name__}")
    if not isinstance(record.get("response"), str):
        raise ValueError('needs a text "response"')
    name = record.get("verifier", default)
    if not isinstance(name, str) or not name:
        raise ValueError('needs a "verifier", since --verifier names no default')
    facts, prompt = (
        empty if record.get(key) is None else record[key]
        for key, empty in (("facts", {}), ("prompt", ""))
    )
    if not isinstance(facts, dict) or not isinstance(prompt, str):
        raise ValueError(
            f'"facts" must be an object and "prompt" a text, got {facts!r}, {prompt!r}'
        )
    reference = _reference(record, all_verifiers().get(name))
    problem = Problem(id=id, prompt=prompt, verifier=name, reference=reference, facts=facts)
    return Line(problem, record["response"], _expected(record))


def _reference(record: Mapping[str, Any], verifier: Verifier | None) -> Mapping[str, Any]:
    """The reference of a line; {} for an unknown verifier, which reads none."""
    if isinstance(reference := record.get("reference"), dict):
        return reference
    if verifier is None:
        return {}
    example = dict(verifier.example.reference)
    if "gold" not in record:
        if not example:
            return {}
        raise ValueError(f'needs "gold", or "reference" as an object like {example}')
    gold = record["gold"]
    return gold if isinstance(gold, dict) else {next(iter(example), "gold"): gold}


def _expected(record: Mapping[str, Any]) -> Any:
    expected: Any = record.get("expected", _NOTHING)
    bounds: list[Any] = []
    if isinstance(expected, list):
        bounds = expected if len(expected) == 2 else [""]  # no score
    elif expected not in (None, _NOTHING) and not isinstance(expected, str):
        bounds = [expected]
    numbers = all(isinstance(bound, int | float) for bound in bounds)
    if not numbers or (bounds and not bounds[0] <= bounds[-1]):  # NaN agrees with nothing
        allowed = "a score, [lowest, highest], the text of the answer, or null for no answer"
        raise ValueError(f'"expected" must be {allowed}, got {expected!r}')
    return expected


def agrees(verdict: Verdict, expected: Any) -> bool:
    """Whether a verdict is the expected one; an error never is.

    `expected`: a score, the bounds [lowest, highest] of the score, the extracted answer, or None
    for a response without an answer.
    """
    if verdict.score is None:
        return False
    if expected is None:
        return verdict.status == "no_answer"
    if isinstance(expected, str):
        return verdict.answer == expected
    low, high = expected if isinstance(expected, list) else (expected, expected)
    return low - _TOLERANCE <= verdict.score <= high + _TOLERANCE


def _verdicts(pool: VerifierPool, batch: Sequence[Line]) -> list[Verdict]:
    """One verdict per line: an `error` where the line names an unknown verifier."""
    known = [line for line in batch if line.problem.verifier in all_verifiers()]
    verdicts = iter(judged(pool, [(line.problem, line.response) for line in known]))
    return [
        next(verdicts) if line.problem.verifier in all_verifiers() else _unknown(line.problem)
        for line in batch
    ]


def _unknown(problem: Problem) -> Verdict:
    try:
        get(problem.verifier)
    except KeyError as error:
        return Verdict(score=None, status="error", detail=str(error.args[0]))
    raise AssertionError(f"verifier {problem.verifier!r} is known")


def _row(line: Line, verdict: Verdict, agreement: Agreement) -> dict[str, Any]:
    """The JSON object of a line. A line with an expected result also says whether it agrees."""
    if line.expected is _NOTHING:
        return flat(verdict)
    right = agrees(verdict, line.expected)
    agreement.add(line.problem.verifier, right)
    return flat(verdict) | {"verifier": line.problem.verifier, "agrees": right}


def judged(pool: VerifierPool, batch: Sequence[tuple[Problem, str]]) -> list[Verdict]:
    """One verdict per task. Raises VerifierFailedError for a verifier that cannot work here."""
    try:
        return pool.judge_all(batch)
    except RuntimeError as failure:
        raise VerifierFailedError(str(failure)) from failure


def flat(verdict: Verdict) -> dict[str, Any]:
    """The verdict as a JSON object; lone surrogates are replaced."""
    row = dataclasses.asdict(verdict)
    for key in ("answer", "detail"):
        if row[key] is not None:
            row[key] = row[key].encode("utf-8", "replace").decode("utf-8")
    return row
