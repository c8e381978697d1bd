"""`veriloop samples RUN`: prompts and answers of a run with their verdicts, in the terminal."""

import sys
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TextIO

import tyro

from veriloop.data.counts import counted
from veriloop.pipeline.errors import RecipeError
from veriloop.stages.commands.parse import parse_options

_Off = tyro.conf.FlagCreatePairsOff
LONG, SHORT = 2000, 200  # characters shown of a text and of a verifier's detail
STYLES = {"right": "green", "partial": "yellow", "wrong": "red", "error": "bold red"}
# Unicode categories that are invisible or may control a terminal.
UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


@dataclass(frozen=True, kw_only=True)
class Options:
    """Print recorded answers with rewards by component, advantage and extracted answers."""

    run: Annotated[
        tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN", help="a run folder with run.json")
    ]
    stage: str = ""  # empty: the last one with recorded answers
    step: int | None = None  # default: the latest
    group: int | None = None  # index among the prompts of the step, from 0
    sort: str = "place"  # place, reward, advantage, length or time; largest first
    reverse: Annotated[bool, _Off] = False  # smallest first
    right: Annotated[bool, _Off] = False  # only answers with full accuracy
    wrong: Annotated[bool, _Off] = False  # only answers without full accuracy
    errors: Annotated[bool, _Off] = False  # only answers on which a verifier failed
    most: Annotated[
        int, tyro.conf.arg(name="n", aliases=["-n"], help="number of answers; 0: all")
    ] = 8
    held_out: Annotated[bool, _Off] = False  # answers of evaluations
    full: Annotated[bool, _Off] = False  # print long texts in full


def command(words: Sequence[str]) -> int:
    """0: printed, even if no answer matches. Raises RecipeError for a folder without a run."""
    from veriloop.pipeline.report.samples import KINDS, Kind, SampleQuery, samples
    from veriloop.pipeline.watch.run import run_of

    options = parse_options(Options, words)
    folder = Path(options.run)
    if not (folder / "run.json").is_file():
        raise RecipeError(f"{folder} holds no run: it has no run.json")
    kinds: list[Kind] = [kind for kind in KINDS if getattr(options, kind)]
    if len(kinds) > 1:
        raise RecipeError(f"{' and '.join(f'--{kind}' for kind in kinds)}: one of them")
    if options.most < 0:
        raise RecipeError(f"-n {options.most}: must be at least 0, which is all of them")
    selected = samples(
        run_of(folder, (folder / "run.json").read_bytes()).stages,
        SampleQuery(
            stage=options.stage,
            step=options.step,
            group=options.group,
            kind=kinds[0] if kinds else "",
            sort=options.sort,
            reverse=options.reverse,
            limit=options.most,
            held_out=options.held_out,
        ),
    )
    chosen = [{"errors": "not judged by a verifier"}.get(kind, kind) for kind in kinds]
    chosen += [f"in group {options.group}"] if options.group is not None else []
    of_them = f", {selected.matching:,} of them {' and '.join(chosen)}" if chosen else ""
    answers = f"{counted(selected.all, 'answer')}{of_them}; {len(selected.answers):,} shown"
    head = f"{selected.stage}, step {selected.step}: {answers}"
    write([(head, "bold"), *printed(selected.answers, full=options.full)], sys.stdout)
    return 0


Line = tuple[str, str]  # text that is safe on a terminal, and its style


def printed(answers: Sequence[Any], *, full: bool = False) -> Iterator[Line]:
    """The lines of `report.samples.Sample`s; each prompt is printed once, above its answers."""
    group = None
    for answer in answers:
        if answer.group is not group:
            group = answer.group
            yield from _asked(answer, full)
        yield from _answered(answer, full)


def _asked(answer: Any, full: bool) -> Iterator[Line]:
    row, group = answer.row, answer.group
    title = f"group {group.index}: {escaped(group.problem)} ({escaped(group.source)})"
    yield "", ""
    yield f"{title}, verifier {escaped(row['verifier'])}", "bold cyan"
    yield f"  reference {_one_line(row['reference'], full)}", ""
    yield from _text(row["prompt"], full, "cyan")


def _answered(answer: Any, full: bool) -> Iterator[Line]:
    from veriloop.pipeline.report.rollout_stats import components

    row = answer.row
    reward = "not judged" if row["reward"] is None else f"reward {row['reward']:.3g}"
    advantage = "" if row["advantage"] is None else f", advantage {row['advantage']:.3g}"
    end = {"stop": "ended", "length": "cut off"}.get(row["finish"], escaped(str(row["finish"])))
    yield "", ""
    yield f"  answer {answer.i}: {reward}{advantage}, {row['length']} tokens, {end}", "bold"
    for name in components(row):
        yield _judged(row, name, full)
    if row.get("step_ends") is not None:
        steps = zip(row["step_ends"], row["step_scores"], strict=True)
        scores = ", ".join(f"{score:.3g} (to character {end})" for end, score in steps)
        yield f"  scores of steps: {scores or 'no steps'}", ""
    yield from _text(row["response"], full, "")


def _judged(row: Mapping[str, Any], name: str, full: bool) -> Line:
    from veriloop.pipeline.report.rollout_stats import outcome

    result, score = outcome(row, name), row[f"reward/{name}"]
    parts = [
        f"  {escaped(name)} {'–' if score is None else f'{score:.3g}'} {result.replace('_', ' ')}"
    ]
    if row[f"answer/{name}"] is not None:
        parts.append(f"read {_one_line(row[f'answer/{name}'], full)}")
    if row[f"detail/{name}"]:
        parts.append(_one_line(row[f"detail/{name}"], full))
    if row.get(f"components/{name}") not in (None, "{}"):
        parts.append(f"parts {_one_line(row[f'components/{name}'], full)}")
    return "; ".join(parts), STYLES.get(result, "yellow")


def _one_line(text: str | None, full: bool) -> str:
    return escaped(_cut(text or "", SHORT, full)).replace("\n", "\\n")


def _text(text: str, full: bool, style: str) -> Iterator[Line]:
    """Lines of a text behind a bar, so that none can imitate a line of this command."""
    for line in escaped(_cut(text, LONG, full)).split("\n"):
        yield f"  │ {line}", style


def _cut(text: str, limit: int, full: bool) -> str:
    """The first two thirds and the end of a long text, with a count of the omitted characters."""
    if full or len(text) <= limit:
        return text
    front, back = limit * 2 // 3, limit // 3
    return f"{text[:front]} … {len(text) - front - back:,} characters … {text[-back:]}"


def escaped(text: str) -> str:
    """Replace invisible and control characters by their codes; line breaks and tabs stay."""
    return "".join(
        c if c in "\n\t" or unicodedata.category(c) not in UNSEEN else _code(c) for c in text
    )


def _code(character: str) -> str:
    number = ord(character)
    if number < 256:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 65536 else f"\\U{number:08x}"


def write(lines: Sequence[Line], file: TextIO) -> None:
    """Print in colour on a terminal, plainly to a pipe.

    Lines are rendered before they are written, so that a closed pipe raises BrokenPipeError here.
    """
    from rich.console import Console
    from rich.text import Text

    console = Console(file=file, markup=False, emoji=False, highlight=False)
    encoding = file.encoding or "utf-8"
    for text, style in lines:
        with console.capture() as captured:
            console.print(Text(text, style), soft_wrap=True)
        file.write(captured.get().encode(encoding, "backslashreplace").decode(encoding))
