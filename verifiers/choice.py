"""Multiple choice: the answer is a letter, the text of an option, or both if they agree."""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from veriloop.data.problem import Problem
from veriloop.verifiers.answer import after_think, final_answer, unboxed
from veriloop.verifiers.asked_wrong import asks_wrong
from veriloop.verifiers.hidden import visible
from veriloop.verifiers.invisible import without_invisible
from veriloop.verifiers.registry import verifier
from veriloop.verifiers.verdict import Verdict, no_answer
from veriloop.verifiers.withdrawal import withdrawn

MAX_CHARS = 2_000
LETTERS = "ABCDEFGHIJ"  # labels of options that have none, and of questions without options

_NUMBERS = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen twenty
"""
_NUMBER_WORDS = {word: str(value) for value, word in enumerate(_NUMBERS.split())}
_STYLE = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|tt|up|md|sc|normal)?|math(?:rm|bf|sf|it|tt|normal)|mbox|hbox|"
    r"boldsymbol|bm|emph|underline)\s*\{([^{}]*)\}"
)
_BLANK = re.compile(r"\\[,;:! ]|(?<=[\w)\]}])~|\\q?quad\b")
_FRACTION = re.compile(r"\\[dt]?frac\s*(?:(\d)\s*(\d)(?!\d)|(?=\s*\{))")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_MARKUP = re.compile(r"[$*`\"“”]|(?m:^\s*#+\s)|\\[()\[\]]|(?<!\w)_|_(?!\w)")
_IS = r"\b(?:is|are|was|would be|should be|must be|will be|has to be|might be|could be|may be)\b"
_NOUN = r"\b(?:answer|option|choice|letter|response|selection)"
_BEST = r"\b(?:correct|final|right|best|most \w+|only|chosen)"
_MARKED = re.compile(  # words that announce a choice
    rf"(?:(?:the|my|our)\s+)?(?:{_BEST}\s+)*{_NOUN}\s*(?:(?:here|to [\w ]{{1,60}}?)\s*)?"
    rf"(?:{_IS}|[:=–—-])\s*(?:therefore|thus|clearly|then|simply)?\s*[:=]?\s*"
    rf"(?:(?:the\s+)?{_NOUN}\s*:?\s*)?"
    rf"|(?:the\s+)?{_BEST}\s+{_NOUN}\s*:?\s*"
    r"|\b(?:i|we)(?:'d|'ll|\s+would|\s+will)?\s+(?:choose|chose|pick|picked|select|selected|"
    rf"go with|(?:think|believe|say)\s+(?:that\s+)?(?:it\s+is|it's|it\s+must\s+be))\s+"
    rf"(?:{_NOUN}\s*)?"
    r"|(?:答案|选项)\s*(?:应该?|就)?\s*(?:[是为选]\s*:?|:)\s*"  # the answer is
    r"|(?<![不没未别勿])(?<!不[应能会可要该])(?<!不应该)"
    r"选择?\s*:?\s*(?=[(\[]?[A-J\d](?![A-Z]))",  # choose
    re.IGNORECASE,
)
_LEAD = re.compile(
    r"(?:(?:(?:so|thus|hence|therefore|finally)\b|[故应]|所以|因此|综上|正确)[,:]?\s*|"
    r"(?:i|we)\s+(?:think|believe)\s+(?:that\s+)?"
    rf"|{_MARKED.pattern}|it(?:\s+is|'s)\s+|(?:the\s+)?{_NOUN}\s*[:=]?\s*)+",
    re.IGNORECASE,
)
_TURNED = re.compile(
    rf"(?:so|thus|hence|therefore)?,?\s*(.+?)\s+is\s+(?:therefore\s+|thus\s+|also\s+)?"
    rf"(?:the\s+)?(?:{_BEST}(?:\s+{_NOUN})?|{_NOUN})\b(.*)",
    re.IGNORECASE | re.DOTALL,
)
_REASON = re.compile(
    r"(?:^|[\s,;.:(–—-]+)(?:because|since|as|due to|given that|which|for the reason)\b",
    re.IGNORECASE,
)
_DOUBT = re.compile(
    r"\b(?:maybe|perhaps|possibly|unsure|(?:not|n't) (?:so |quite |really )?(?:sure|certain|know)|"
    r"no answer|cannot|can't|guess|alternatively|either|wrong|incorrect|but|however|although|"
    r"though|equally|depends)\b",
    re.IGNORECASE,
)
_HEDGE = re.compile(r"\b(?:or|nor|not|neither|both)\b|n't\b|[/&|]", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z(\[\d\u3400-\u9fff])|\n+")
_STOPS = str.maketrans({"\u3002": ". ", "\u3001": ", "})  # of Chinese
_HEADING = re.compile(r":\s*\n+\s*")
_NEGATION = re.compile(
    r"\b(?:not|never|if|whether|why|cannot|wrong|incorrect|unless|suppose|doubt|worst|least|"
    r"opposite|other|anything|except)\b|n't\b",
    re.IGNORECASE,
)
_LINK = r"\b(?:it's|is|are|also|as well as|and|plus|option|choice|answer|letter)"  # before a label
_WRONG = re.compile(r"\b(?:wrong|incorrect)\b", re.IGNORECASE)
_CLAUSE = re.compile(r"[,;:]|\bbut\b|\bso\b|\bthen\b", re.IGNORECASE)
_CORRECTION = re.compile(
    r"\b(?:wait|no|actually|correction|sorry|rather|instead|mistake[ns]?)\b", re.IGNORECASE
)
_TAKEN_BACK = re.compile(
    r"^\W*(?:wait|no|hmm|actually|but|however|or|alternatively|maybe|perhaps|otherwise)\b|"
    r"\b(?:that|this|it|which)(?:'s|\s+(?:is|was|may be|might be|could be))\s+"
    r"(?:wrong|incorrect|not)\b|\b(?:not|n't) (?:sure|certain|know)\b|"
    r"\b(?:unsure|guess(?:ed|ing)?)\b",
    re.IGNORECASE,
)


def _unstyled(text: str) -> str:
    """The text with the content of LaTeX styles, plain blanks, and one spelling of fractions."""
    while (inside := _STYLE.sub(r"\1", text)) != text:
        text = inside
    text = _BLANK.sub(" ", text)
    return _FRACTION.sub(lambda m: rf"\frac{{{m[1]}}}{{{m[2]}}}" if m[1] else r"\frac", text)


def plain(text: str) -> str:
    """The form in which option texts are compared.

    Case, articles, spacing and a closing period are dropped; number words become digits.
    """
    text = unicodedata.normalize("NFKC", _unstyled(text)).casefold().replace("$", "")
    words = text.translate(_STOPS).strip().strip(".").split()
    normalised = [_NUMBER_WORDS.get(word, word) for word in words if word not in ("a", "an", "the")]
    return " ".join(normalised or words)


def _bare(text: str) -> str:
    """The text without markup; styles of LaTeX are reduced to their content."""
    unstyled = _unstyled(without_invisible(unboxed(text)))
    bare = unicodedata.normalize("NFKC", _MARKUP.sub("", unstyled)).replace("’", "'")
    return bare.translate(_STOPS).strip()


def chosen(answer: str, options: Mapping[str, str]) -> str | None:
    """The label of the one option that the answer names by letter, by text or by both; else None.

    A reason may follow that names no other option. `options`: text by label. Where the text is ""
    (unknown), the letter may be followed by anything except another label or a doubt.
    """
    bare = _bare(answer)
    candidates = [bare, _without_lead(bare)]
    turned = _TURNED.fullmatch(bare)
    if turned and _is_reason(turned.group(2).strip(" .!"), "", options):
        candidates.append(_without_lead(turned.group(1)))
    labels = (_named(candidate, options) for candidate in candidates)
    return next((label for label in labels if label is not None), None)


def _without_lead(text: str) -> str:
    lead = _LEAD.match(text)
    return text[lead.end() :] if lead else text


def _named(text: str, options: Mapping[str, str]) -> str | None:
    """The label that the text begins with, or the option whose text it is."""
    whole = text.strip()
    label = _named_whole(whole, options)
    shorter = _patterns(tuple(options)).ruled_out.sub("", whole) if label is None else whole
    if shorter != whole:
        label = _named_whole(shorter, options)
    return label


def _named_whole(text: str, options: Mapping[str, str]) -> str | None:
    label = _labelled(text, options)
    if label is not None:
        return label
    reason = _REASON.search(text)
    pairs = [(text, "")] + ([(text[: reason.start()], text[reason.start() :])] if reason else [])
    for head, tail in pairs:
        same = _equal(head, options)
        if len(same) == 1 and _is_reason(tail, same[0], options):
            return same[0]
    return _label_last(text, options)


def _equal(text: str, options: Mapping[str, str]) -> list[str]:
    """The labels of the options with this text; if there are none, of those that differ by commas
    of thousands."""
    texts = {label: plain(own) for label, own in options.items() if own}
    bare = plain(text)
    exact = [label for label, own in texts.items() if own == bare]
    digits = _THOUSANDS.sub("", bare)
    return exact or [label for label, own in texts.items() if _THOUSANDS.sub("", own) == digits]


class _Labels(NamedTuple):
    """Where a text names one of the labels."""

    first: re.Pattern[str]  # at its start
    inside: re.Pattern[str]  # in a sentence
    last: re.Pattern[str]  # at its end, in brackets
    ruled_out: re.Pattern[str]  # at its end, as not chosen


@lru_cache(maxsize=256)
def _patterns(labels: tuple[str, ...]) -> _Labels:
    names = "|".join(map(re.escape, sorted(labels, key=len, reverse=True)))
    first = (
        rf"[(\[{{]?\s*({names})\s*([)\]}}]?)(\s*[.:,;!–—-]?)"
        r"(?:\s+|$|(?<=[):\]},;])|(?<=\.)(?-i:(?=[A-Z])))(.*)"
    )
    inside = (
        rf"(?<![\w'])(?:[(\[]({names})[)\]]|(?![AI] [a-z])({names})(?![\w']))"
        rf"|(?:^|[,;.:(]\s*|\d\s+|{_LINK}\s+)((?i:{names}))(?=[).:](?:\s|$)|\s*$)"
        rf"|\s((?i:{names}))(?=\)\s)"
    )
    last = rf"(.+?)[\s,]*[(\[]({names})[)\]]\s*\.?"
    ruled_out = (
        r"(?<=[\w)\]])[\s,(]*(?:(?:and|but)\s+)?(?:(?<=[\s,(])not|rather\s+than|instead\s+of)\s+"
        rf"(?:{_NOUN}\s+)?[(\[]?(?-i:{names})[)\]]*\s*[.!]?\Z"
    )
    return _Labels(
        first=re.compile(first, re.DOTALL | re.IGNORECASE),
        inside=re.compile(inside),
        last=re.compile(last, re.DOTALL),
        ruled_out=re.compile(ruled_out, re.IGNORECASE),
    )


def _labelled(text: str, options: Mapping[str, str]) -> str | None:
    """The label at the start of the text, if only the text of its option and a reason follow."""
    match = _patterns(tuple(options)).first.fullmatch(text)
    if match is None:
        return None
    label, closing, mark, rest = match.groups()
    bracketed = bool(closing)
    if rest and label.islower() and not bracketed and not options[label.upper()]:
        return None  # a word: a mystery
    label, rest, own = label.upper(), rest.strip(), options[label.upper()]
    if not rest:
        return label
    if own:
        right = _follows_label(rest, label, options)
    else:
        marked = bool(mark.strip() or bracketed)
        right = (marked and _is_free_text(rest, label, options)) or (
            _REASON.match(rest) is not None and _is_reason(rest, label, options)
        )
    return label if right else None


def _follows_label(rest: str, label: str, options: Mapping[str, str]) -> bool:
    """Whether `rest` is the option's text, a reason, or both."""
    own = plain(options[label])
    if plain(rest.strip("()")) == own:
        return True
    reason = _REASON.search(rest)
    head, tail = (rest, "") if reason is None else (rest[: reason.start()], rest[reason.start() :])
    if plain(head.strip("() ,;:.")) in ("", own):
        return _is_reason(tail, label, options)
    mentions = f" {own} " in f" {_loose(rest)} "
    return mentions and not _HEDGE.search(rest) and _is_reason(rest, label, options)


def _is_free_text(rest: str, label: str, options: Mapping[str, str]) -> bool:
    return not _HEDGE.search(rest) and _is_reason(rest, label, options)


def _is_reason(text: str, label: str, options: Mapping[str, str]) -> bool:
    """Whether the text expresses no doubt and names no option other than `label`."""
    if _DOUBT.search(text):
        return False
    labels = {
        next(filter(None, match.groups())).upper()
        for match in _patterns(tuple(options)).inside.finditer(text)
    }
    own, loose = plain(options.get(label, "")), f" {_loose(text)} "
    others = (plain(other) for name, other in options.items() if name != label and other)
    return not labels - {label} and not any(
        f" {other} " in loose and other not in own for other in others
    )


def _loose(text: str) -> str:
    """`plain` without the marks around words."""
    return plain(" ".join(word.strip(".,;:!?()'") for word in text.split()))


def _label_last(text: str, options: Mapping[str, str]) -> str | None:
    """The label in brackets after its option's text: Rome (C)."""
    match = _patterns(tuple(options)).last.fullmatch(text)
    if match is None:
        return None
    return match.group(2) if plain(match.group(1)) == plain(options[match.group(2)]) else None


def stated(text: str, options: Mapping[str, str], wrong: bool = False) -> str | None:
    """The label that prose states as its choice: "The answer is C", "I choose (C)", "C is correct".

    None without such a statement, if the last one is negated, names several or is taken back, and
    if two differ without a correction between them. `wrong`: the question asks for a wrong option.
    """
    sentences = _SENTENCE.split(_HEADING.sub(": ", _bare(text)))
    labels: list[tuple[int, str | None]] = []
    for at, sentence in enumerate(sentences):
        labels += [(at, label) for label in _statements(sentence.strip(), options, wrong)]
    last_at, last = labels[-1] if labels else (0, None)
    if last is None:
        return None
    earlier = [at for at, label in labels if label not in (None, last)]
    if earlier and not _CORRECTION.search(" ".join(sentences[earlier[-1] : last_at + 1])):
        return None
    later = sentences[last_at + 1 :]
    voided = any(map(_TAKEN_BACK.search, later)) or withdrawn(". " + "\n".join(later), last)
    return None if voided else last


def _statements(sentence: str, options: Mapping[str, str], wrong: bool) -> Iterator[str | None]:
    """The label of the sentence's statement, None if it names none; nothing without a statement."""
    if sentence.endswith("?"):
        return
    turned = _TURNED.fullmatch(sentence)
    label = _named(_without_lead(turned.group(1)), options) if turned else None
    if turned and label is not None:
        yield chosen(sentence, options)
    elif marks := list(_MARKED.finditer(sentence)):
        clause = _CLAUSE.split(sentence[: marks[-1].start()])[-1]
        clause = _WRONG.sub("", clause) if wrong else clause
        named = _named(sentence[marks[-1].end() :].rstrip(), options)
        yield None if _NEGATION.search(clause) else named


def read_options(reference: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """(correct label, text by label).

    Raises ValueError if the reference's answer does not identify exactly one option.
    """
    declared = reference.get("options")
    if declared is None:
        options = dict.fromkeys(LETTERS, "")
    elif isinstance(declared, Mapping):
        options = {str(label).strip().upper(): str(text) for label, text in declared.items()}
    else:
        if len(declared) > len(LETTERS):
            raise ValueError(f"at most {len(LETTERS)} options without labels, got {len(declared)}")
        options = dict(zip(LETTERS, map(str, declared), strict=False))
    answer = str(reference["answer"]).strip()
    right = answer.strip("().").upper()
    if right not in options:
        same = [label for label, text in options.items() if text and plain(text) == plain(answer)]
        if len(same) != 1:
            raise ValueError(f"answer {answer!r} matches {len(same)} of the options {options}")
        right = same[0]
    return right, options


def _read(
    problem: Problem, response: str, options: Mapping[str, str]
) -> tuple[str | None, str | None]:
    """(answer, label): from tags or a box, else from the end of the prose."""
    prefilled = problem.facts.get("prefilled_think", False)
    answer = final_answer(response, prefilled_think=prefilled, prompt=problem.prompt)
    if answer is not None:
        return answer, chosen(answer, options) if len(answer) <= MAX_CHARS else None
    text = after_think(response, prefilled_think=prefilled)
    text = None if text is None else visible(text)
    if text is None or "\\boxed" in text or "answer>" in text:
        return None, None
    label = stated(text[-MAX_CHARS:], options, asks_wrong(problem.prompt))
    return label, label


@verifier(
    "choice",
    version="4",
    reference={"answer": "C", "options": ["one Apple", "a pear", "the plum", "plums"]},
    accepts="<think>sweet</think><answer>(c) plum</answer>",
    rejects=(
        "<answer>D</answer>",
        "<answer>plums</answer>",
        "<answer>C) plums</answer>",
        "<answer>C or D</answer>",
        "<answer>not C</answer>",
        "<answer>A, B, C, D</answer>",
        "<answer>CD</answer>",
        "C",
    ),
    other=({"answer": "B", "options": {"A": "Paris", "B": "Rome"}}, r"\boxed{\text{B}}"),
)
def check(problem: Problem, response: str) -> Verdict:
    """1 if the final answer names the correct option and no other.

    The answer is in tags or a box; without both, it is what the prose states as its choice.

    `reference["answer"]`: a label or the text of an option. `reference["options"]` (optional): a
    list, labelled A, B, ..., or a mapping of labels to texts.
    """
    right, options = read_options(problem.reference)
    answer, label = _read(problem, response, options)
    if answer is None:
        return no_answer()
    if len(answer) > MAX_CHARS:
        detail = f"longer than {MAX_CHARS} characters"
        return Verdict(score=0.0, answer=answer[:MAX_CHARS], detail=detail)
    if label is None:
        return Verdict(score=0.0, answer=answer, detail="does not name exactly one option")
    detail = "" if label == right else f"named {label}, not {right}"
    return Verdict(score=float(label == right), answer=answer, detail=detail)
