"""Extract the answer that prose commits to, for responses without a box and without tags.

Conservative: the last number of a text is an answer only if the text says that it is.
"""

import re
from itertools import pairwise

from veriloop.verifiers.answer import last_box
from veriloop.verifiers.math.dressing import undressed
from veriloop.verifiers.math.glyphs import plain
from veriloop.verifiers.math.names import words
from veriloop.verifiers.math.wording import (
    LAST_MULTIPLIERS,
    bare_words,
    names_another,
    number_words,
)
from veriloop.verifiers.withdrawal import Same, denied, same_number, withdrawn

MAX_CHARS = 4_000  # of the end of the text that are searched

_NOISE = re.compile(r"<<[^<>\n]*>>|<\|[^|<>\n]*\|>|</?s>|[\u200e\u200f]")  # GSM8K's calculator, ...
_MARKUP = re.compile(
    r"(?<![\w)])\*\*|\*\*(?![\w(])|__|`|\*(?=[A-Za-z][^*\n]{0,80}[A-Za-z.:]\*(?:\W|$))|"
    r"(?<=[A-Za-z.:])\*(?=[\s:.,]|$)|(?m:^[^\S\n]*+(?:(?:#{1,3}|#{5,})\s+|[-*]\s+(?=[A-Z\\$])))"
)
_ASIDE = re.compile(
    r"\(not [^()]*\)|\([a-z]{5,}\)|\([^()]*\b[A-Za-z]{2,}\s+[^()]*\b[A-Za-z]{2,}\s+[^()]*\)"
)
_SENTENCE = re.compile(
    r"(?<=[.!?])(?<!\b[A-J]\.)\s+(?=[^\Wa-z\d_]|[\"'(\\$#\d])|(?<=[.!?]\*\*)\s+|"
    r"(?<=[\u3002\uff01\u061f])|\n+"
)
_ENGLISH = r"ans\b\.?|answers?|results?|solutions?|choice|option"
_LATIN = (
    r"réponse|résultat|solution|respuesta|resultado|solución|antwort|ergebnis|lösung|risposta|"
    r"risultato|soluzione|resposta|solução|odpowiedź|wynik|odpověď|svaret|antwoord|cevap|sonuç|"
    r"jawaban(?:nya)?|hasil(?:nya)?|đáp án|kết quả|răspuns(?:ul)?|válasz|vastaus|ответ|"
    r"результат|відповідь"
)
_OTHER = (
    r"答案|答え|解答|结果|結果|答(?=\s*:)|정답|답|결과|(?:ال)?جواب|(?:ال)?إجابة|(?:ال)?ناتج|(?:ال)?نتيجة|الحل|"
    r"उत\u094dतर"
)
_MARK = rf"{_ENGLISH}|{_LATIN}|{_OTHER}"
_IS = (
    r"(?:is|are|be|equals?|lautet|ist|beträgt|est|sont|es|son|è|sono|é|são|jest|är|adalah|là|"
    r"равен|равно|هو|هي)\b|(?:comes?|works?|turns?)\s+(?:out\s+)?(?:to(?:\s+be)?|as)\b|"
    r"amounts?\s+to\b|(?<=[Aa]nswer)\s+(?=[-$\d]\S*\W*$)|[:=是为為は은는]|(?<=\s)-(?=\s)|(?<=उत्तर)\s|"
    r"选|選"
)
_FILLER = (
    r"(?:\s*\b(?:donc|also|thus|therefore|then|entonces|quindi|portanto|simply|just|indeed|"
    r"hence|daher|exactly|precisely|equal to|given by|now|clearly|égale? à|igual a|gleich|"
    r"ugual[ei] a)\b,?\s*)*"
)
_QUESTION = re.compile(r"(?m:^)[^\w\n]*Q(?:uestion)?:")
_REPLY = re.compile(r"(?m:^)[^\w\n]*A:(?=\s)")
_HEADING = re.compile(
    rf"(?i)^\W*(?:the\s+|la\s+|die\s+)?(?:final\s+|最终)?(?:{_MARK})(?:\s+finale?)?\s*:?\s*$"
)
_EXPLICIT = re.compile(
    rf"(?i)(?:\b|(?<=[\u3040-\uffff]))(?:{_MARK})"
    r"(?:\s+(?!(?:is|are|be|equals?|or|and|not|est|ist|es|nicht|pas|no|ne|non|não|"
    r"не|cannot|can|could|might|may)\b)\w+){0,4}?"
    rf"\s*(?:(?:{_IS})\s*)+{_FILLER}"
)
_OPEN_END = re.compile(
    rf"(?i)\b(?:{_MARK})\s*(?:is|are|est|es|ist|lautet|是|为)\s*(?:therefore|thus|then)?\s*:?\s*$"
)
_TURNED = re.compile(
    r"(?i)^(?:so|thus|therefore|hence)?,?\s*(\S+(?:\s\S+){0,3}?)\s+(?:is|are|must be)\s+"
    r"(?:then |therefore )?(?:the|our|my)\s+(?:final |correct |right |desired |required |only )*"
    r"(?:answers?|result|solutions?|choice|option|value)\W*$"
)
_POINTING = re.compile(r"(?i)^(?:this|that|it|which) is (?:the|our|my) (?:final )?answer\W*$")
_RETRACTED = re.compile(
    r"(?i)\b(?:wrong|incorrect|mistaken?|not (?:right|correct|sure|certain|the answer|able)|"
    r"(?:cannot|can't) (?:be right|decide|determine|say|tell)|refuse|"
    r"(?:don't|do not) know|unable)\b"
)
_LINK = re.compile(
    r"(?i)(?:\b(?:is|are|equals?|be|was|becomes?|gives|yields?|gets?|obtains?|has|have|finds?|"
    r"reach(?:es)?|totals?|(?:comes?(?: out)?|amounts?|adds? up|sums? up|works? out|leads?|"
    r"simplif(?:y|ies)|reduces?) to|leaves?|remains?|costs?|needs?|needed|earned|spent|paid|saved|"
    r"made|used|took|had|got|measures?|takes?|pays?|earns?|"
    r"makes?|"
    r"spends?|saves?|sells?|sold|buys?|bought|uses?|weighs?|owes?|holds?|contains?|(?:it|that|"
    r"this|there)['\u2019]s|ist|sind|beträgt|ergibt|lautet|gibt es|est|sont|vaut|donne|restent?|"
    r"faut|всего|obtient|trouve|(?:il )?y (?:en )?a|(?<=\b[Ii]l )a|(?<=\belle )a|ont|avons|"
    r"hat|haben|tienen?|tenemos|tem|hanno|abbiamo|coûtent?|kosten?|kostet|cuestan?|"
    r"es|son|hay|da|è|sono|vale|ci sono|é|são|há|"
    r"wynosi|jest|равно|равен|равна|равны|составляет|är|er|هو|هي|يساوي|تساوي|هناك|يوجد|adalah|"
    r"là)\b|[是为為は]|等于|共有|需要|剩|还有|得到|得出|有)(?:\s+(?:equal to|"
    r"exactly|therefore|thus|given by|"
    r"simply|just|then|donc|also|precisely|indeed|(?<=\bneed )at least|"
    r"(?<=\bneeds )at least|(?:die|der|das|the|la|le|el)\s+\w+(?=\s+[-$\d])|the (?:value|"
    r"number|line|curve|set|point|interval)|a total of|"
    r"égale? à|igual a|us|you|me|him|her|them|it|on|at|in total|to be)(?![a-zA-Z]))*\s*:?\s*"
)
_CONCLUSION = re.compile(
    r"(?i)^(?:=>|->|→|⇒|∴|\\(?:Rightarrow|implies|therefore)\b|(?:thus|therefore|so|hence|"
    r"consequently|in conclusion|finally|donc|ainsi|finalement|par conséquent|alors|"
    r"en conclusion|entonces|luego|por (?:lo )?tanto|así(?: que)?|en conclusión|also|daher|"
    r"somit|folglich|deshalb|quindi|dunque|pertanto|perciò|logo|portanto|assim|zatem|"
    r"следовательно|значит|итак|таким образом|إذن|لذلك|وبالتالي|بالتالي|إذا|إذ\u064bا)\b|因此|所以|"
    r"故|综上(?:所述)?|于是|答|最终|したがって|よって|따라서|그러므로)[,:]?\s*"
)
_PHRASE = re.compile(
    r"(?i)\b(does not exist|(?:there (?:is|are) |has |"
    r"have )?no (?:real )?solutions?(?: exists?)?|infinitely many(?: solutions)?|undefined)\W*$"
)
_TAIL = re.compile(
    r"(?:,\s*(?:because|since|which|as|where|using|with|when|by|so|and\s+(?:we|this))\b"
    r"|\s+(?:because|since|which (?:is|was)|as (?:required|desired|claimed|the|our))\b"
    r"|,?\s+(?:and not|not|rather than|instead of)\s+[-\d$(\\]).*$",
    re.DOTALL,
)
_DOUBT = re.compile(
    r"(?i)\b(?:refuse|unable|whether|wrong|incorrect|unsure|not sure|not certain|idea|guess|"
    r"neither|impossible to|(?:cannot|can't|could not|couldn't|not able to) (?:say|tell|decide|"
    r"determine|find|solve|know|answer)|(?:do not|don't) (?:know|think|believe))\b|不是|并非|"
    r"\b(?:nicht|n'est|pas|не|niet|nie jest|inte|ikke|no es|"
    r"no son|non è|não é)\b|可能|也许|大概|ليس|"
    r"ではない|ではありません|아닙니다|아니다|\b(?:might|may|could)\s+(?:\w+\s+)?be\b|\b(?:maybe|perhaps|"
    r"possibly)\b|^\W*(?:let|suppose|assum\w+|supposing|imagine|consider|take|try|trying|sei|"
    r"soit|sea|пусть)\b|^(?:假设|设)"
)
_NEGATION = re.compile(r"(?i)\b(?:not|never|neither|nor|cannot)\b|n't\b")
_MUSING = re.compile(r"I\s+(?:have|had|am|was|tried|see|saw|looked)\b")
_RIGHT_CHOICE = re.compile(
    r"(?:(?i:the\s+)?(?i:option|choice|answer)\s+)?\(?([A-J])\)?\s+is\s+(?:therefore\s+|thus\s+)?"
    r"(?:the\s+)?(?:correct|right|best)\b(?!.*\b(?:not|but|or)\b)"
)
_INSTEAD = re.compile(  # not 13 but 12; not 13, it is 12
    r"^not\s[^,;.]{1,40}?(?:[,;]\s*(?:but\s+|rather\s+|and\s+)?(?:it(?:'s|\s+is)|is)|,?\s*but)\s+"
)
_SPLIT = re.compile(r"(?i)\b(?:otherwise|either|if)\b")
_CORRECTION = re.compile(
    r"(?i)\b(?:wait|no|actually|correction|correcting|sorry|rather|mean|instead|forgot|mistake|"
    r"wrong|recheck|re-check|recompute|recalculat\w+|check(?:ing)?|again|hmm|oops)\b"
)
_HEDGED = re.compile(r"(?i)^(?:or|alternatively|maybe|perhaps|otherwise|possibly)\b")
_VALUE = re.compile(r"\$[^$]+\$|\\\(.+?\\\)|-?\d[\d,]*(?:\.\d+)?(?:/\d+)?")
_PROSE = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}|[^\x00-\x7f]")
_FORMULA_WORDS = words("and or sin cos tan log ln pi sqrt exp cm mm km kg")
_LAST_FORMULA = re.compile(r"(?:\$([^$]*=[^$]*)\$|:([^:=]+=[^:]+)|=([^=]+))\W*$")
_YES_NO = re.compile(r"(?i)^(yes|no|true|false)\b(?=[.,!;:]|$)")
_LETTER = re.compile(r"^\(?[A-J]\)?\.?$")
_CHOICE = re.compile(r"\(?[A-J][).:](?=\s|$)")
_CHOSEN = re.compile(
    r"(?:(?:\b(?i:hence|thus|so|therefore|choose|pick|select|option|choice)|[选選])\s*,?\s*"
    r"(?:(?i:option|choice|answer|the)\s*)*)(\([A-J]\)|[A-J])\W*$"
)
_START = re.compile(  # a formula or number, up to the first word of prose
    r"(?:\$[^$]+\$|\\(?:text|mathrm|mbox)\s*\{[^{}]*\}|\\[A-Za-z]+|\\.|"
    r"[^A-Za-z\\$\x80-\uffff]|(?<![^\W\d_])[A-Za-z](?![^\W\d_]))+"
)
_DIFFERENCE = re.compile(r"^\s*(?:more|fewer|less|additional|extra|other)\s+(?!than\b)")
_COMPUTED = re.compile(  # 48 + 24 = 72 clips: a calculation without letters, or x = 72
    r"(?<![\w^}$.])\$?\d[\d.,()%/]*(?:\s*[A-Za-z]{2,}){0,3}(?:\s*(?:[-+*/x]|\\times|\\cdot)\s*"
    r"[\d.,()%$]+(?:/[A-Za-z]+)?(?:\s*[A-Za-z]{2,}){0,3})+\s*=\s*(?=[-$\d])"
    r"|(?<![\w\\^+*/-])[A-Za-z]\s*=\s*(?=-?\$?\d[\d,.]*\W*$)"
)
_RESULT = re.compile(r"-?\$?\d[\d,]*(?:\.\d+)?%?(?:/\d+)?(?![\d(^+*/-])")
_NOUNS = re.compile(
    r"\s*(?!(?:in|of|for|altogether|total|every|on|at|by|from|with|when|if|which|that|who|this|"
    r"to|as|after|before|so|and|we|is|are|was|were|would|will|has|have|did|do|does|left|"
    r"remaining|many|such|than|got|per|a|an|out|more|less|fewer)\b)(?:(?:square|cubic|sq|"
    rf"cu|{'|'.join(LAST_MULTIPLIERS)})\.?[\s-]+(?=[A-Za-z]))?[A-Za-z]+\b(?:\s+(?:per|an)\s+[a-z]+\b)?"
)
_UNCLEAR = re.compile(
    r"[\d$\\]|\b(?:or|oder|ou|(?:more|less|fewer) than|times|plus|minus|approximately|least|most|"
    r"between|half|halves|quarters?|thirds?|maybe|perhaps|possibly|if|unless|except|either)\b|或|"
    r"أو"
)
_EITHER = re.compile(r"^(.+?),\s+or\s+(?:equivalently |simply |in other words )?,?\s*(.+)$")
_OUT_OF = re.compile(r"^(\d+) (?:out of|in) (?:every )?(\d+)$")


def stated_answer(text: str, same: Same = same_number) -> str | None:
    """The answer that prose commits to, as written; None if there is none.

    `text` is what follows the thinking. Searched from the end are: "#### 42", "the answer is 42",
    a closing sentence such as "... is 42" or "Thus there are 42 ways", and a closing formula.
    Unequal answers that are announced alike, without a correction between them, yield None.
    """
    sentences = _sentences(plain(_NOISE.sub("", text[-MAX_CHARS:]).replace("\u2014", " - ")))
    for index in reversed(range(len(sentences))):
        marked = _explicit(sentences[index], same)
        if marked is None:
            continue
        later = sentences[index + 1 :]
        doubted = any(map(_HEDGED.match, later)) or withdrawn(". " + "\n".join(later), marked, same)
        rivals = _has_rival(sentences[: index + 1], marked, same)
        return None if doubted or rivals else marked or None
    return _unmarked(sentences, same)


def _unmarked(sentences: list[str], same: Same) -> str | None:
    """The answer of the closing sentence, or of an opening "Yes"."""
    for index in reversed(range(len(sentences))):
        if _RETRACTED.search(sentences[index]) or _HEDGED.match(sentences[index]):
            return None
        if (spelled := bare_words(sentences[index])) and number_words(spelled) is not None:
            return spelled
        if _has_content(sentences[index]):
            answer = _closing(sentences[index], same)
            if answer is not None:
                return answer or None
            break
    return _opening(sentences[0]) if sentences else None


def _sentences(text: str) -> list[str]:
    if _QUESTION.search(text):
        text = _REPLY.sub("Answer:", text)
    lines = [line.strip() for line in _ASIDE.sub(" ", _MARKUP.sub("", text)).split("\n")]
    lines = [line for line in lines if line]
    joined: list[str] = []
    for line in lines:
        if joined and _HEADING.match(joined[-1]):
            joined[-1] = f"answer: {line}"
        elif joined and _OPEN_END.search(joined[-1]):
            joined[-1] += f" {line}"
        else:
            joined.append(line)
    parts = (part.strip() for line in joined for part in _SENTENCE.split(line))
    return [part for part in parts if part and not _POINTING.match(part)]


def _marks(sentence: str) -> list[re.Match[str]]:
    """The words that announce an answer, without those that announce another announcement."""
    marks = list(_EXPLICIT.finditer(sentence))
    gaps = [sentence[a.end() : b.start()].strip().lower() for a, b in pairwise(marks)]
    chained = ("", "the", "the final", "the correct", "final", "la", "die", "el")
    return [mark for mark, gap in zip(marks, [*gaps, "-"], strict=False) if gap not in chained]


def _explicit(sentence: str, same: Same) -> str | None:
    """The answer a sentence names as such; "" if it is negated or one of several, None without."""
    if sentence.startswith("####"):
        return sentence.strip("# ")
    picked = _RIGHT_CHOICE.match(_CONCLUSION.sub("", sentence))
    if picked:
        return picked.group(1)
    turned = _TURNED.match(sentence)
    if turned:
        return turned.group(1).strip()
    marks = _marks(sentence)
    if not marks:
        return None
    before = sentence[: marks[-1].start()]
    answer = _cleaned(_INSTEAD.sub("", sentence[marks[-1].end() :]))
    clause = re.split(r"[,;:]|\bbut\b|\bso\b", before)[-1]
    negated = _NEGATION.search(answer) or _DOUBT.search(answer)
    doubtful = _DOUBT.search(clause) or (negated and not _PHRASE.search(answer))
    if not answer or doubtful or denied(before, answer, same):
        return ""
    several = len(marks) > 1 or _SPLIT.search(before)
    if several and (_SPLIT.search(sentence) or not _CORRECTION.search(before)):
        return ""
    return _value(answer, same)


def _has_rival(sentences: list[str], answer: str, same: Same) -> bool:
    """Whether a sentence before the last one announces another answer in the same words.

    A correction in between makes the last answer the only one.
    """
    announced = _announced(sentences[-1])
    for sentence in reversed(sentences[:-1]):
        if _CORRECTION.search(sentence):
            return False
        other = _explicit(sentence, same)
        if other and _announced(sentence) == announced and same(other, answer) is False:
            return True
    return False


def _announced(sentence: str) -> str:
    marks = _marks(sentence)
    return (
        re.sub(r"[\W\d_]+|\b[a-z]\b", " ", sentence[: marks[-1].end()].lower()).strip()
        if marks
        else "#"
    )


def _closing(sentence: str, same: Same) -> str | None:
    """The answer in a closing sentence; "" if it is in doubt, None if there is none."""
    phrase = _PHRASE.search(sentence)
    if phrase:
        return phrase.group(1)
    if _DOUBT.search(sentence) or _MUSING.match(sentence):
        return ""
    bare = undressed(_CONCLUSION.sub("", sentence))
    computed = "" if _is_formula(bare) else _computed(sentence)
    if computed or _SPLIT.search(sentence):
        return computed or ""
    if _CHOICE.match(sentence):
        return sentence
    if _is_formula(bare):
        return _cleaned(bare)
    chosen = _CHOSEN.search(sentence)
    if chosen:
        return chosen.group(1)
    return _after_verb(bare, concluded=bare != sentence, same=same)


def _after_verb(bare: str, *, concluded: bool, same: Same) -> str | None:
    """The answer after a verb such as "is"; `concluded`: a word such as "thus" came before."""
    before, answer = _linked(bare)
    affirmed = _YES_NO.match(bare)
    if affirmed and not _VALUE.match(answer):
        return affirmed.group(1)
    if _NEGATION.search(answer) or denied(before, answer, same):
        return ""
    if answer and (not concluded or _VALUE.search(answer) or not _main_clause(bare, same)):
        return _value(answer, same)
    if concluded and (clause := _main_clause(bare, same)):
        return clause
    formula = _LAST_FORMULA.search(bare)
    last = formula.group(formula.lastindex or 0) if formula else ""
    value = _value(_cleaned(last), same) if last else ""
    return value if value and re.search(r"\d|\$|\\\\", value) else None


def _linked(sentence: str) -> tuple[str, str]:
    """(the text before a verb such as "is", what follows it); after the last if values follow."""
    links = [(link.start(), _cleaned(sentence[link.end() :])) for link in _LINK.finditer(sentence)]
    links = [(start, tail) for start, tail in reversed(links) if tail]
    valued = [(start, tail) for start, tail in links if _VALUE.match(tail)]
    start, tail = (valued or links or [(len(sentence), "")])[0]
    return sentence[:start], tail


def _computed(sentence: str) -> str | None:
    """The result of the last calculation in a sentence; None if it is one of several."""
    if len(_SPLIT.findall(sentence)) > 1 or re.search(r"\bor\b", sentence):
        return None
    calculations = list(_COMPUTED.finditer(sentence))
    result = _RESULT.match(sentence, calculations[-1].end()) if calculations else None
    if result is None or "=" in sentence[result.end() :]:
        return None
    nouns = _nouns(_DIFFERENCE.sub("", sentence[result.end() :]))
    return f"{result.group().rstrip(',')} {nouns}".strip()


def _nouns(text: str) -> str:
    """The noun at the start of a text: square meters, half gallons."""
    nouns = _NOUNS.match(text)
    return nouns.group().strip().replace("-", " ") if nouns else ""


def _main_clause(sentence: str, same: Same) -> str | None:
    """The only value in the first clause of a conclusion: she can make $6$ bouquets, using ..."""
    clause = re.split(r",\s|;", sentence, maxsplit=1)[0]
    values = list(_VALUE.finditer(clause))
    return _value(_cleaned(clause[values[0].start() :]), same) if len(values) == 1 else None


def _value(answer: str, same: Same) -> str:
    """The value at the start of an announced answer, with its unit, without further prose."""
    if _is_formula(answer):
        return answer
    first = _EITHER.match(answer)
    if first and same(_OUT_OF.sub(r"\1/\2", first.group(1)), first.group(2)):
        return first.group(2)
    start = _START.match(answer)
    if start is None or not re.search(r"[\w$]", start.group()):
        links = list(_LINK.finditer(answer))
        tail = _cleaned(answer[links[-1].end() :]) if links else ""
        return _value(tail, same) if _VALUE.match(tail) else answer
    rest = _DIFFERENCE.sub("", answer[start.end() :])
    unclear = _UNCLEAR.search(rest) or names_another(rest)
    if unclear or not re.search(r"\d|\$|\\", start.group()):
        return answer
    return f"{start.group().rstrip(' ,;:')} {_nouns(rest)}".strip(" ,.;:")


def _opening(sentence: str) -> str | None:
    match = _YES_NO.match(sentence)
    return match.group(1) if match else None


def _has_content(sentence: str) -> bool:
    matches = (pattern.search(sentence) for pattern in (_VALUE, _LINK, _PHRASE, _LETTER, _CHOSEN))
    return any(match is not None for match in matches)


def _is_formula(sentence: str) -> bool:
    bare = re.sub(r"\\(?:text|mathrm|mbox)\s*\{[^{}]*\}", " ", sentence)
    words = {word.lower() for word in _PROSE.findall(bare)}
    return words <= _FORMULA_WORDS


def _cleaned(text: str) -> str:
    text = _TAIL.sub("", text).strip().strip("*\"'").strip()
    return undressed(text.rstrip(".!\u3002 ").strip("\"' "))


def committed(content: str, same: Same = same_number) -> str:
    """The content of answer tags, reduced to its answer if it is prose."""
    if len(content) > MAX_CHARS:
        return content
    outside = re.sub(r"\\boxed\s*\{.*\}", " ", content, flags=re.DOTALL)
    prose = len(_PROSE.findall(re.sub(r"\\[A-Za-z]+(?:\{[A-Za-z ]*\})?", " ", outside)))
    if "\\boxed" in content:
        return last_box(content, same) or ""
    if prose < 4 and not content.startswith("####"):
        return content.removeprefix("**").removesuffix("**")
    return stated_answer(content, same) or content
