"""Mathematical equality of the final answer and the gold answer; rules in docs/verifiers.md."""

import re
from functools import lru_cache
from typing import get_args

from veriloop.data.problem import Problem
from veriloop.verifiers.answer import after_think, boxed_integer, final_answer, unboxed
from veriloop.verifiers.hidden import visible
from veriloop.verifiers.math.algebra import Use
from veriloop.verifiers.math.compare import same as same_form
from veriloop.verifiers.math.constants import with_given_letters
from veriloop.verifiers.math.decide import MAX_CHARS, decide
from veriloop.verifiers.math.dressing import undressed
from veriloop.verifiers.math.echo import echoes
from veriloop.verifiers.math.glyphs import plain
from veriloop.verifiers.math.prose_answer import committed, stated_answer
from veriloop.verifiers.math.restated import restates
from veriloop.verifiers.math.statements import read
from veriloop.verifiers.math.sympy_process import BUSY, CPU_S, START_S
from veriloop.verifiers.math.tree import UnreadableError
from veriloop.verifiers.math.wording import in_asked_unit
from veriloop.verifiers.registry import verifier
from veriloop.verifiers.verdict import Verdict, no_answer
from veriloop.verifiers.withdrawal import same_number

SETTING = "computer_algebra"  # the fact
MAX_REQUESTS = 4  # to sympy, for one response
_NOT_WORKED_OUT = re.compile(
    r"\\(?:i*int|lim|sum|prod|partial|Gamma|zeta|beta|det|operatorname|begin\{v?matrix)"
    r"|\{\\?\w*\{?d\b|erf"
)
_INTEGER = re.compile(r"-?\d{1,400}", re.ASCII)
_SEPARATED = re.compile(r"\d(?:,|\{,\}|\.)\s?\d")
_LANGUAGES = {  # common words of English and of languages that write 2,5
    "en": "the of and is to that we so for with are this which from by be it as there answer "
    "therefore then has have by on if get value thus per die son den also do as an or in at not "
    "hence sum find total area number us let all each both can will was more than",
    "de": "der die das ist und nicht ein eine wir also von den mit daher beträgt ergibt somit "
    "sind wert für antwort lautet gesuchte es auf",
    "fr": "le la les est et une un des donc nous vaut que pour dans du réponse égal égale sont "
    "ainsi par valeur cherchée",
    "es": "el la los las es y una un por lo tanto que del para en respuesta son igual entonces "
    "área valor resultado media",
    "it": "il lo la gli le è e una un di che quindi del per risposta sono uguale valore della",
    "pt": "o a os as é e uma um de que portanto do para resposta são igual valor em da resultado",
    "nl": "de het een is en van dus niet wij dat voor antwoord zijn waarde gelijk aan",
    "pl": "jest i w na z się że zatem odpowiedź wynosi wartość równa więc to",
    "cs": "je a v na se že tedy odpověď hodnota rovna",
    "sv": "är och en ett det som av svaret alltså för värdet blir",
    "da": "er og en et det som af svaret altså for værdien bliver",
    "no": "er og en et det som av svaret altså for verdien blir",
    "fi": "on ja se että siis vastaus arvo",
    "tr": "ve bir bu için cevap sonuç eşittir değer olur dir",
    "ro": "este și un o că deci răspunsul valoarea pentru",
    "hu": "a az és egy tehát válasz értéke",
    "ru": "и в на что равно ответ это равен равна следовательно значит получаем",
    "uk": "і в на що дорівнює відповідь це отже",
    "id": "adalah dan jadi jawaban nilai yang dari",
    "vi": "là và vậy đáp án bằng của",
}
_COMMON_WORDS = {language: frozenset(words.split()) for language, words in _LANGUAGES.items()}
_MATHS = re.compile(
    r"\$\$.*?\$\$|\$[^$]*\$|\\\(.*?\\\)|\\\[.*?\\\]"
    r"|\\begin\s*\{(\w+\*?)\}.*?\\end\s*\{\1\}|\\boxed\s*\{[^{}]*\}|\\[A-Za-z]+|<[^>]*>",
    re.DOTALL,
)
_WORD = re.compile(r"[^\W\d_]{2,}|[^\W\d_A-Za-z]")  # a single Latin letter is a variable
MAX_WORDS = 400  # the last words of a response, from which its language is guessed


@lru_cache(maxsize=1024)
def same(left: str, right: str) -> bool | None:
    """Whether two answers are equal; None if one of them cannot be parsed.

    A decimal or a percentage on the left may be the right answer rounded, and a quantity on the
    left the right answer in another unit.
    """
    number = same_number(left, right)
    if number or max(len(left), len(right)) > MAX_CHARS:
        return number
    try:
        forms = [read(plain(undressed(text))) for text in (left, right)]
        equal = same_form(*forms) or same_form(*reversed(forms))
        return equal or restates(*forms)
    except (UnreadableError, RecursionError):
        return number


def extract_answer(response: str, *, prefilled_think: bool = False, prompt: str = "") -> str | None:
    """The answer in the tags, in the last box, or in the last sentence that commits to one."""
    answer = final_answer(response, prefilled_think=prefilled_think, same=same, prompt=prompt)
    text = after_think(response, prefilled_think=prefilled_think)
    if answer is None:
        shown = None if text is None else visible(text)
        marked = shown is None or "\\boxed" in shown or "answer>" in shown
        return None if shown is None or marked else stated_answer(shown, same)
    return committed(answer, same) if text is not None and "<answer>" in text else answer


def sympy_seconds(problem: Problem) -> float:
    """The longest time that computer algebra may take, by the commands of the reference."""
    answer = str(problem.reference["answer"])
    needed = _NOT_WORKED_OUT.search(answer) or _use(problem) == "always"
    return START_S + MAX_REQUESTS * BUSY * CPU_S if needed else 0.0


def _use(problem: Problem) -> Use:
    """Raises ValueError for a setting that is none of `Use`."""
    use = problem.facts.get(SETTING, "fallback")
    if use not in get_args(Use):
        raise ValueError(f"{SETTING} must be one of {get_args(Use)}, got {use!r}")
    return use


@verifier(
    "math_answer",
    version="9",
    reference={"answer": r"2\sqrt{3}"},
    accepts=r"<think>a diagonal</think> It is $\boxed{\sqrt{12}}$.",
    rejects=(
        r"\boxed{3\sqrt{2}}",
        r"\boxed{3.46}",
        r"\boxed{2\sqrt{3}} or \boxed{3\sqrt{2}}",
        r"<think>\boxed{2\sqrt{3}}</think> I do not know.",
        r"The answer isn't \boxed{2\sqrt{3}}.",
        r"\boxed{9^{9^{9}}}",
    ),
    other=({"answer": r"3\sqrt{2}"}, r"<think>t</think> \boxed{\sqrt{18}}"),
    seconds=sympy_seconds,
    settings={SETTING: "fallback"},
)
def check(problem: Problem, response: str) -> Verdict:
    """1 if the final answer equals `reference["answer"]`, given as bare LaTeX or text.

    `facts["computer_algebra"]` is "fallback", "always" or "never"; see `math.algebra.match`. Raises
    ValueError for a reference that is not readable, UndecidedError for one without a value.
    """
    prefilled = problem.facts.get("prefilled_think", False)
    fast = None if prefilled else _two_integers(problem.reference["answer"], response)
    if fast is not None:
        return fast
    answer = extract_answer(response, prefilled_think=prefilled, prompt=problem.prompt)
    if answer is None:
        return no_answer()
    shown = answer[:MAX_CHARS]
    if len(answer) > MAX_CHARS:
        return Verdict(score=0.0, answer=shown, detail=f"longer than {MAX_CHARS} characters")
    gold = unboxed(str(problem.reference["answer"]).strip())
    comma = _SEPARATED.search(answer) is not None and decimal_comma(_prose(response))
    bare = undressed(unboxed(answer))
    right, detail = decide(gold, bare, comma, _use(problem))
    if not right and (counted := in_asked_unit(bare, problem.prompt)) != bare:
        right, detail = decide(gold, counted, comma, _use(problem))
    given = with_given_letters(gold, problem.prompt)
    if right and given != gold:
        right, detail = decide(
            given, with_given_letters(bare, problem.prompt), comma, _use(problem)
        )
    if right and echoes(bare, gold, problem.prompt):
        right, detail = False, "repeats an expression of the problem"
    return Verdict(score=float(right), answer=shown, detail=detail)


def _two_integers(gold: object, response: str) -> Verdict | None:
    """Fast path: the verdict if both answers are plain integers, as most are; else None."""
    if type(gold) is not str or not _INTEGER.fullmatch(gold):
        return None
    visible = response.rpartition("</think>")[2]
    answer = boxed_integer(visible)
    if answer is None or len(answer) > MAX_CHARS:
        return None
    if "," in answer and not ("The " in visible or " the " in visible):
        return None  # may be a decimal comma
    right = answer == gold or int(answer.replace(",", "")) == int(gold)
    return Verdict(score=float(right), answer=answer, detail="integers")


def _prose(response: str) -> str:
    """The text that shows the language: after the thinking, or all of it if that is too short."""
    visible = response.rpartition("</think>")[2]
    return visible if sum(map(str.isalpha, visible)) > 40 else response


def decimal_comma(text: str) -> bool:
    """Whether the text has more common words of a language with decimal commas than of English."""
    words = [w.lower() for w in _WORD.findall(_MATHS.sub(" ", text[-8_000:]))[-MAX_WORDS:]]
    counts = {
        language: sum(word in common for word in words)
        for language, common in _COMMON_WORDS.items()
    }
    english = counts.pop("en")
    return max(counts.values()) > english
