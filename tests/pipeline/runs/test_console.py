"""The console shows a model's words and never obeys them."""

import io
import re
import unicodedata

import pytest
from rich.cells import cell_len

from tests.rollouts import graded
from veriloop.data.problem import Problem
from veriloop.pipeline.runs.console import StageConsole, activity, clip, plain
from veriloop.verifiers.verdict import Verdict

HOSTILE = {
    "colour": "\x1b[31mred\x1b[0m",
    "clear the screen": "\x1b[2J\x1b[Hgone",
    "eight-bit control sequence": "\x9b31mred",
    "window title": "\x1b]0;owned\x07after",
    "hyperlink": "\x1b]8;;http://evil.test\x1b\\click\x1b]8;;\x1b\\",
    "clipboard": "\x9d52;c;ZXZpbA==\x9cafter",
    "unfinished title": "\x1b]0;everything that follows",
    "device string": "\x1bP1$r0m\x1b\\after",
    "reset": "\x1bcafter",
    "lone escape at the end": "text\x1b",
    "carriage return overwrites": "wrong\rright",
    "backspaces": "secret\x08\x08\x08\x08\x08\x08",
    "bell and null": "\x07\x00\x7f",
    "right-to-left override": "abc\u202edef\u202c \u2066x\u2069",
    "zero width": "a\u200b\u200d\ufeffb",
    "line separators": "a\u2028b\u2029c\x85d",
    "surrogate": "\ud800",
    "markup": "[bold red]x[/] [link=http://evil.test]y[/link] [/nothing]",
    "emoji code": ":smiley:",
}


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


class Latin(io.StringIO):
    encoding = "latin-1"


def judged(response="<answer>2</answer>", prompt="1 + 1?", **verdicts):
    problem = Problem(id="toy/0", prompt=prompt, verifier="number", reference={})
    failed = any(verdict.score is None for verdict in verdicts.values())
    return graded(
        said=response,
        problem=problem,
        verdicts=verdicts or None,
        reward=None if failed else 1.25,
    )


@pytest.fixture
def terminal(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "240")
    monkeypatch.setenv("LINES", "50")
    return Terminal()


def without_our_own_codes(text):
    """What is left when the colours and cursor moves of the bar itself are taken away."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "")


def ink(text):
    """The characters without the spaces and line breaks a table puts between them."""
    return "".join(text.split())


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_plain_leaves_no_character_a_terminal_obeys(text):
    got = plain(text)
    bad = {c for c in got if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}}
    assert not bad, f"{bad} left in {got!r}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "�red�"),
        ("\x1b]0;owned\x07after", "�after"),
        ("\x9d52;c;ZXZpbA==\x9cafter", "�after"),
        ("\x1b]0;everything that follows", "�0;everything that follows"),
        ("a\r\nb\nc\rd\u2028e", "a ⏎ b ⏎ c ⏎ d ⏎ e"),
        ("a\tb", "a b"),
        ("abc\u202edef", "abc�def"),
        ("[bold]x[/bold] :smiley:", "[bold]x[/bold] :smiley:"),
        ("想一想 é ∑ 😀", "想一想 é ∑ 😀"),
    ],
)
def test_what_was_there_shows_and_honest_text_stays(text, shown):
    assert plain(text) == shown


def test_clip_keeps_the_start_and_the_end_where_the_answer_is():
    text = "start " + "x" * 1000 + " <answer>42</answer>"
    got = clip(text, 60)
    assert len(got) == 60 and got.startswith("start xxx") and got.endswith(" <answer>42</answer>")
    assert " … " in got
    assert clip("x" * 60, 60) == "x" * 60 and len(clip("x" * 61, 60)) == 60


def test_clip_says_so_when_a_flood_cleans_up_to_little():
    got = clip("a" + " \n" * 100_000 + "b", 60)
    assert got.startswith("a") and got.endswith("b") and " … " in got and len(got) == 60


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_completion_reaches_the_terminal_as_text(terminal, text):
    with StageConsole("zero", 4, file=terminal) as console:
        console.samples([judged(response=text, prompt=text, **{text: Verdict(score=0.5)})])
        console.note(text)
    shown = without_our_own_codes(terminal.getvalue())
    assert not {c for c in shown if unicodedata.category(c) in {"Cc", "Cf", "Cs"}} - {"\n"}
    assert ink(shown).count(ink(plain(text))) >= 1
    for payload in ("evil", "owned", "ZXZpbA"):
        assert (payload in terminal.getvalue()) == (payload in plain(text))


def test_markup_in_a_completion_stays_as_it_was_written(terminal):
    with StageConsole("zero", 4, file=terminal) as console:
        console.samples([judged(response=HOSTILE["markup"])])
    assert ink("[link=http://evil.test]y[/link]") in ink(terminal.getvalue())
    assert "\x1b]8" not in terminal.getvalue()


def test_nothing_is_wider_than_a_hundred_columns_on_a_wide_terminal(terminal):
    with StageConsole("阶段" * 3, 4, file=terminal) as console:
        console.samples([judged(response="想" * 5000, prompt="long " * 500)])
        console.step(1, {"reward": 0.5, "kl": 0.01})
    widths = [cell_len(line) for line in without_our_own_codes(terminal.getvalue()).splitlines()]
    assert 60 < max(widths) <= 100


def test_a_terminal_gets_a_bar_with_the_time_left_and_the_key_metrics(terminal):
    with StageConsole("zero", 8, file=terminal, done=2) as console:
        console.step(3, {"reward": 0.123456, "kl": 0.5, "sampling/odd": 9.0})
    shown = without_our_own_codes(terminal.getvalue())
    assert "2/8" in shown and "3/8" in shown and "eta" in shown
    assert "reward 0.1235  kl 0.5" in shown and "odd" not in shown


def test_samples_show_reward_scores_and_failures_and_no_more_than_asked(terminal):
    rows = [
        judged("first", accuracy=Verdict(score=1.0), format=Verdict(score=0.25)),
        judged("second", accuracy=Verdict(score=None, status="error")),
        judged("third"),
    ]
    with StageConsole("zero", 8, file=terminal) as console:
        console.samples(rows, limit=2)
    shown = without_our_own_codes(terminal.getvalue())
    assert "1.25" in shown and "accuracy 1" in shown and "format 0.25" in shown
    assert "accuracy error" in shown and "second" in shown and "third" not in shown


def test_a_log_gets_one_plain_line_a_step_and_no_table(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    log = io.StringIO()
    with StageConsole("zero", 2, file=log) as console:
        console.step(1, {"kl": 0.25, "reward": 1 / 3, "lr": 1e-6})
        console.samples([judged()])
        console.note("resting\x1b[2J\nnow")
        console.step(2, {})
    assert log.getvalue() == "zero 1/2  reward 0.3333  kl 0.25\nresting� ⏎ now\nzero 2/2\n"


def test_a_dumb_terminal_counts_as_a_log(terminal, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    with StageConsole("zero", 2, file=terminal) as console:
        console.step(1, {"reward": 0.5})
    assert terminal.getvalue() == "zero 1/2  reward 0.5\n"


def test_a_log_that_cannot_hold_a_character_does_not_stop_the_run():
    log = Latin()
    with StageConsole("zero 阶", 2, file=log) as console:
        console.note("é 想")
        console.step(1, {"reward": 0.5})
    assert log.getvalue() == "é ?\nzero ? 1/2  reward 0.5\n"


def test_key_metrics_can_be_chosen_and_keep_their_order():
    log = io.StringIO()
    console = StageConsole("sft", 1, file=log, key_metrics=("tokens", "loss"))
    console.step(1, {"loss": 2.0, "reward": 1.0, "tokens": 123456.0})
    assert log.getvalue() == "sft 1/1  tokens 1.235e+05  loss 2\n"


def test_the_log_of_a_terminal_has_steps_and_notes_without_codes(terminal, tmp_path):
    log = tmp_path / "console.log"
    for step in (1, 2):  # a resumed run appends
        with StageConsole("zero", 2, file=terminal, log=log) as console:
            console.step(step, {"rewards/accuracy/mean": 0.5})
            console.note("resting\x1b[2J")
    assert log.read_text() == "".join(f"zero {n}/2  accuracy 0.5\nresting�\n" for n in (1, 2))


def test_a_terminal_shows_the_activity_below_the_bar(terminal):
    with StageConsole("zero", 2, file=terminal) as console, activity("evaluating", 4) as part:
        part.advance()
        console._live.refresh()
    assert "evaluating: 1/4, 0:00, eta 0:00" in without_our_own_codes(terminal.getvalue())
