"""Short answers in words: exact match and F1 with a normalisation like SQuAD's."""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable

from veriloop.data.problem import Problem
from veriloop.verifiers.answer import after_think, final_answer, unboxed
from veriloop.verifiers.invisible import without_invisible
from veriloop.verifiers.registry import verifier
from veriloop.verifiers.verdict import Verdict, no_answer

MAX_CHARS = 20_000
READS = ("answer", "response")

_SYMBOLS = "$+<=>^`|~"  # what SQuAD drops besides punctuation marks
_STYLE = re.compile(r"\\(?:text(?:bf|it|rm)?|math(?:rm|bf|it)|mbox|emph)\s*\{([^{}]*)\}")
_DASHES = dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2212"), "-")
_FRACTION = re.compile(r"(?<=\d)(?=[\u00bc-\u00be\u2150-\u215e])")
_RAISED = re.compile(
    r"(?<=\d)(?=[\u2070-\u207e\u00b2\u00b3\u00b9])(?<![\u2070-\u207e\u00b2\u00b3\u00b9])"
)
_LOWERED = re.compile(r"(?<=\d)(?=[\u2080-\u208e])(?<![\u2080-\u208e])")
_THOUSANDS = re.compile(r"(?<![\d,.])\d{1,3}(?:,\d{3})+(?![\d,])")
_SIGN = r"(?<![^\s(\[{$=^_/:*])[-<>]"
_SPACED = re.compile(
    rf"(?<=\d)( ?)([-/:*])\1(?=\d)|(?<=\w)( ?)([<>=+^])\3(?=[\w-])|({_SIGN}) (?=[\d.$])"
)
_KEPT = re.compile(
    r"(?<=\d)(?:[^\w\s,'\u2019\"]|_)(?=-?\d)"  # 3.5, 1/2, 10:30, 1990-1995, 2^10, 3*5
    r"|(?<=\w)[<>=+^](?=[\w-])"  # a<b, a+b
    rf"|{_SIGN}(?=[$.]?\d|\u221e|inf|[a-z](?!\w))"  # -7, <5, -x
    r"|(?<![^\s(\[{$<>-])\.(?=\d)"  # .5
    r"|(?<=[^\W_])[+-]+(?=[\s)\],.;:!?'\u2019\u201d\"]|$)"  # C++, O-, Na+
    r"|(?<=[^\W\d_])#",  # F#
    re.IGNORECASE,
)
_ARTICLE = re.compile(r"(?<!\S)(?:(?i:the|an)|a|(?<!\S )A)(?= \S)")


def folded(text: str) -> str:
    """The text in lower case, without the marks and spaces that do not change its meaning.

    SQuAD's normalisation (arXiv 1606.05250) drops all punctuation marks. Here those stay that
    distinguish answers: signs, decimal points, fractions and ranges of numbers (`-7`, `3.5`, `1/2`)
    and signs after a letter (`C++`, `F#`, `O-`). A text of marks alone stays as it is.
    """
    return " ".join(_unmarked(text).casefold().split())


def _unmarked(text: str) -> str:
    text = without_invisible(text).translate(_DASHES)
    text = _LOWERED.sub("_", _RAISED.sub("^", _FRACTION.sub(" ", text)))
    text = (
        unicodedata.normalize("NFKC", _STYLE.sub(r"\1", text))
        .translate(_DASHES)
        .replace("\u2044", "/")
    )
    text = _THOUSANDS.sub(lambda number: number.group().replace(",", ""), text)
    text = _SPACED.sub(lambda mark: next(filter(None, mark.group(2, 4, 5))), " ".join(text.split()))
    kept = {at for match in _KEPT.finditer(text) for at in range(*match.span())}
    bare = "".join(
        character if at in kept or not _is_mark(character) else _spaced(text, at)
        for at, character in enumerate(text)
    )
    return bare if bare.strip() else text


def _is_mark(character: str) -> bool:
    return character in _SYMBOLS or unicodedata.category(character)[0] == "P"


def _spaced(text: str, at: int) -> str:
    """A space for a comma between digits that is not a thousands separator: 1,2 is two numbers."""
    digits = text[at] == "," and text[at - 1 : at].isdigit() and text[at + 1 : at + 2].isdigit()
    return " " if digits else ""


def normal(text: str) -> str:
    """`folded` without articles.

    The last word is no article, nor is a capital A after another word: plan A, vitamin A tablets.
    """
    bare = " ".join(_unmarked(text).split())
    return " ".join(_ARTICLE.sub("", bare).casefold().split())


def same(answer: str, gold: str) -> bool:
    """Whether the answer is the gold answer, apart from case, marks, articles and spaces."""
    return folded(answer) == folded(gold) or normal(answer) == normal(gold)


def f1(answer: str, gold: str) -> float:
    """Harmonic mean of the precision and recall of the words, counted with multiplicity."""
    answer_words, gold_words = normal(answer).split(), normal(gold).split()
    if not answer_words or not gold_words:
        return float(answer_words == gold_words)
    shared = sum((Counter(answer_words) & Counter(gold_words)).values())
    return 2 * shared / (len(answer_words) + len(gold_words))


def _judge(problem: Problem, response: str, score: Callable[[str, str], float]) -> Verdict:
    """The best score of the response's answer against the gold answers."""
    answers = problem.reference["answers"]
    golds = [answers] if isinstance(answers, str) else [str(gold) for gold in answers]
    if not golds or not all(normal(gold) for gold in golds):
        raise ValueError(f"answers must be a text or a list of texts, not empty, got {answers!r}")
    reads = problem.reference.get("read", "answer")
    if reads not in READS:
        raise ValueError(f"read must be one of {READS}, got {reads!r}")
    reader = final_answer if reads == "answer" else after_think
    text = reader(response, prefilled_think=problem.facts.get("prefilled_think", False))
    if text is None or not text.strip():
        return no_answer()
    answer = unboxed(text.strip())[:MAX_CHARS]
    return Verdict(score=max(score(answer, gold) for gold in golds), answer=answer)


@verifier(
    "exact_match",
    version="2",
    reference={"answers": ["the Eiffel Tower", "La tour Eiffel"]},
    accepts="<think>in Paris</think><answer>Eiffel Tower.</answer>",
    rejects=(
        "<answer>Tower</answer>",
        "<answer>the Eiffel Tower or Big Ben</answer>",
        "Eiffel Tower",
    ),
    other=({"answers": "Big Ben"}, r"\boxed{big ben}"),
)
def check(problem: Problem, response: str) -> Verdict:
    """1 if the answer is the `same` as one of `reference["answers"]`.

    `reference["read"]`: "answer" (tags or box, the default) or "response" (all the text after the
    thinking).
    """
    return _judge(problem, response, lambda answer, gold: float(same(answer, gold)))


@verifier(
    "f1",
    version="2",
    reference={"answers": ["forty red balloons"]},
    accepts="<think>count</think><answer>Forty red balloons!</answer>",
    rejects=("<answer>two dogs</answer>", "forty red balloons"),
    other=({"answers": ["one dog"]}, "<answer>one dog</answer>"),
    kind="partial",
)
def check_f1(problem: Problem, response: str) -> Verdict:
    """The best word F1 against `reference["answers"]`; `reference["read"]` as in `exact_match`."""
    return _judge(problem, response, f1)
