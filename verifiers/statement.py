"""The last statement of a response that commits to an answer, where no box and no tags do.

Conservative: the last number of a text is no answer unless the text says that it is.
"""

import re

from verifiers.answer import last_box
from verifiers.math.glyphs import plain
from verifiers.math.names import words

MAX_CHARS = 4_000  # from the end of the text are looked at

_MARKUP = re.compile(
    r"(?<![\w)])\*\*|\*\*(?![\w(])|__|`|(?m:^\s*(?:#{1,3}|#{5,})\s+|^\s*[-*]\s+(?=[A-Z\\$]))"
)
_ASIDE = re.compile(r"\(not [^()]*\)|\([^()]*\b[A-Za-z]{2,}\s+[^()]*\b[A-Za-z]{2,}\s+[^()]*\)")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(\\$#\d])|(?<=[\u3002\uff01])|\n+")
_MARK = (
    r"answers?|results?|solutions?|choice|option|r\u00e9ponse|r\u00e9sultat|respuesta|resultado|antwort|ergebnis|"
    r"risposta|risultato|resposta|odpowied\u017a|\u043e\u0442\u0432\u0435\u0442|svaret|antwoord|"
    r"\u7b54\u6848|\u7b54\u3048|\u7ed3\u679c"
)
_IS = r"(?:is|are|equals?|lautet|ist|est|es|\u00e8|\u00e9)\b|[:=\u662f\u4e3a\u2014-]"
_HEADING = re.compile(rf"(?i)^\W*(?:the\s+)?(?:final\s+)?(?:{_MARK})\s*:?\s*$")
_EXPLICIT = re.compile(
    rf"(?i)(?:\b|(?<=[\u3040-\u9fff]))(?:{_MARK})"
    rf"(?:\s+(?!is\b|are\b|equals?\b|or\b|and\b|not\b)\w+){{0,4}}?\s*(?:(?:{_IS})\s*)+(?:(?:donc|also|thus|therefore|then|entonces|quindi|portanto|simply)\s+)?"
)
_TURNED = re.compile(
    r"(?i)^(?:so|thus|therefore|hence)?,?\s*(\S+(?:\s\S+){0,3}?)\s+(?:is|are|must be)\s+"
    r"(?:then |therefore )?(?:the|our|my)\s+(?:final |correct |right |desired |required |only )*"
    r"(?:answers?|result|solutions?|choice|option|value)\W*$"
)
_TAKEN_BACK = re.compile(
    r"(?i)\b(?:wrong|incorrect|mistaken?|not (?:right|correct|sure|certain|the answer|able)|"
    r"(?:cannot|can't) (?:be right|decide|determine|say|tell)|refuse|"
    r"(?:don't|do not) know|unable)\b"
)
_LINK = re.compile(
    r"(?i)(?:\b(?:is|are|equals?|be|was|becomes?|gives|yields?|gets?|obtains?|has|have|finds?|"
    r"reach(?:es)?|totals?|(?:comes?(?: out)?|amounts?|adds? up|sums? up|works? out|leads?|"
    r"simplif(?:y|ies)|reduces?) to|leaves?|remains?|costs?|needs?|"
    r"(?:it|that|this|there)['\u2019]s|ist|sind|betr\u00e4gt|ergibt|est|sont|vaut|es|son|\u00e8|sono|vale|\u00e9|s\u00e3o|wynosi|jest|"
    r"\u0440\u0430\u0432\u043d\u043e|\u0440\u0430\u0432\u0435\u043d|\u0440\u0430\u0432\u043d\u0430|\u00e4r|er)\b)"
    r"(?:\s+(?:equal to|exactly|therefore|thus|given by|simply|just|then|donc|also|precisely|"
    r"the (?:value|number|line|curve|set|point|interval)|a total of|"
    r"on|at|in total|to be))*\s*:?\s*"
)
_CONCLUSION = re.compile(
    r"(?i)^(?:thus|therefore|so|hence|consequently|in conclusion|finally)\b[,:]?\s*"
)
_PHRASE = re.compile(
    r"(?i)\b(does not exist|(?:there (?:is|are) |has |have )?no (?:real )?solutions?(?: exists?)?|"
    r"infinitely many(?: solutions)?|undefined)\W*$"
)
_TAIL = re.compile(
    r"(?:,\s*(?:because|since|which|as|where|using|with|when|by|so|and\s+(?:we|this))\b"
    r"|\s+(?:because|since|as (?:required|desired|claimed|the|our))\b).*$",
    re.DOTALL,
)
_DOUBT = re.compile(
    r"(?i)\b(?:not|never|refuse|cannot|unable|whether|wrong|incorrect|unknown|impossible|unsure|"
    r"neither|idea|guess)\b|n't\b"
)
_SPLIT = re.compile(r"(?i)\b(?:otherwise|either|if)\b")
_CORRECTION = re.compile(
    r"(?i)\b(?:wait|no|actually|correction|sorry|rather|mean|instead|forgot)\b"
)
_HEDGED = re.compile(r"(?i)^(?:or|alternatively|maybe|perhaps|otherwise|possibly)\b")
_VALUE = re.compile(r"\$[^$]+\$|\\\(.+?\\\)|-?\d[\d,]*(?:\.\d+)?(?:/\d+)?")
_PROSE = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
_FORMULA_WORDS = words("and or sin cos tan log ln pi sqrt exp cm mm km kg")
_LAST_FORMULA = re.compile(r"(?:\$([^$]*=[^$]*)\$|:([^:=]+=[^:]+)|=([^=]+))\W*$")
_YES_NO = re.compile(r"(?i)^(yes|no|true|false)\b(?=[.,!;:]|$)")
_LETTER = re.compile(r"^\(?[A-J]\)?\.?$")
_CHOICE = re.compile(r"\(?[A-J][).:](?=\s|$)")


def stated_answer(text: str) -> str | None:
    """The answer that prose commits to, as written; None when it commits to none.

    `text` is what follows the thinking. Looked for, from the end: "#### 42", "the answer is 42",
    a closing sentence "... is 42" or "Thus there are 42 ways", a closing formula.
    """
    sentences = _sentences(plain(text[-MAX_CHARS:]))
    for sentence in reversed(sentences):
        marked = _explicit(sentence)
        if marked is not None:
            return marked or None
        if _TAKEN_BACK.search(sentence) or _HEDGED.match(sentence):
            return None
    closing = next((one for one in reversed(sentences) if _says_something(one)), None)
    found = None if closing is None else _closing(closing)
    if found is not None:
        return found or None
    return _opening(sentences[0]) if sentences else None


def _sentences(text: str) -> list[str]:
    lines = [line.strip() for line in _ASIDE.sub(" ", _MARKUP.sub("", text)).split("\n")]
    lines = [line for line in lines if line]
    joined: list[str] = []
    for line in lines:
        if joined and _HEADING.match(joined[-1]):
            joined[-1] = f"answer: {line}"
        else:
            joined.append(line)
    found = (part.strip() for line in joined for part in _SENTENCE.split(line))
    return [part for part in found if part]


def _explicit(sentence: str) -> str | None:
    """The answer that is called so; "" where it is denied or one of several."""
    if sentence.startswith("####"):
        return sentence.strip("# ")
    turned = _TURNED.match(sentence)
    if turned:
        return turned.group(1).strip()
    marks = list(_EXPLICIT.finditer(sentence))
    if not marks:
        return None
    before, said = sentence[: marks[-1].start()], _cleaned(sentence[marks[-1].end() :])
    clause = re.split(r"[,;:]|\bbut\b|\bso\b", before)[-1]
    if not said or _DOUBT.search(clause) or (_DOUBT.search(said) and not _PHRASE.search(said)):
        return ""
    several = len(marks) > 1 or _SPLIT.search(before)
    if several and (_SPLIT.search(sentence) or not _CORRECTION.search(before)):
        return ""
    return said


def _closing(sentence: str) -> str | None:
    """What a closing sentence says; "" where it is in doubt, None where it states nothing."""
    phrase = _PHRASE.search(sentence)
    if phrase:
        return phrase.group(1)
    if _DOUBT.search(sentence) or _SPLIT.search(sentence):
        return ""
    if _CHOICE.match(sentence):
        return sentence
    bare = _CONCLUSION.sub("", sentence)
    if _is_formula(bare):
        return _cleaned(bare)
    links = list(_LINK.finditer(bare))
    if links:
        said = _cleaned(bare[links[-1].end() :])
        if said:
            return said
    if bare != sentence and (clause := _main_clause(bare)):
        return clause
    formula = _LAST_FORMULA.search(bare)
    said = formula.group(formula.lastindex or 0) if formula else ""
    return _cleaned(said) if said and _is_formula(said) else None


def _main_clause(sentence: str) -> str | None:
    """The one value of the clause a conclusion opens with: she can make $6$ bouquets, using ..."""
    clause = re.split(r",\s|;", sentence, maxsplit=1)[0]
    values = list(_VALUE.finditer(clause))
    return _cleaned(clause[values[0].start() :]) if len(values) == 1 else None


def _opening(sentence: str) -> str | None:
    match = _YES_NO.match(sentence)
    return match.group(1) if match else None


def _says_something(sentence: str) -> bool:
    found = (pattern.search(sentence) for pattern in (_VALUE, _LINK, _PHRASE, _LETTER))
    return any(match is not None for match in found)


def _is_formula(sentence: str) -> bool:
    bare = re.sub(r"\\(?:text|mathrm|mbox)\s*\{[^{}]*\}", " ", sentence)
    words = {word.lower() for word in _PROSE.findall(bare)}
    return words <= _FORMULA_WORDS


def _cleaned(said: str) -> str:
    said = _TAIL.sub("", said).strip().strip("*").strip()
    return said.rstrip(".!\u3002 ").strip()


def committed(content: str) -> str:
    """The content of answer tags without the prose around its one commitment."""
    if len(content) > MAX_CHARS:
        return content
    outside = re.sub(r"\\boxed\s*\{.*\}", " ", content, flags=re.DOTALL)
    prose = len(_PROSE.findall(re.sub(r"\\[A-Za-z]+(?:\{[A-Za-z ]*\})?", " ", outside)))
    if "\\boxed" in content:
        listed = re.search(r"\b(?:or|and)\b", outside) and prose < 3
        return (last_box(content) or "") if prose and not listed else content
    if prose < 4:
        return content
    return stated_answer(content) or content
