"""Words around an answer that void it: a denial that governs it, and what takes it back later.

A denial in the same clause is not enough: "the number of integers that are not prime is
\\boxed{12}" denies nothing. It governs the answer if it is directly before it ("is not"), or in
the clause that announces it ("I do not think that").
"""

import re
from collections.abc import Callable
from fractions import Fraction

from veriloop.verifiers.asked_wrong import WRONG, asks_wrong, counts_wrong
from veriloop.verifiers.math.units import UNITS
from veriloop.verifiers.math.wording import SMALL_NUMBERS

Same = Callable[[str, str], bool | None]  # whether two answers are equal; None if it is unknown

AFTER_CHARS = 20_000  # after an answer, searched from both ends
BEFORE_CHARS = 300  # before an answer, searched for a denial
LEAD_CHARS = 300  # before words that take something back, searched for what they refer to
APPLIED_CHARS = 40  # before an answer, searched for an operation in words
_CONTINUES = (  # what shows that a number is not the whole value
    r"(?![,.]?\d)(?![a-zA-Z^_])(?!\s*(?:\\[a-zA-Z]|[-+*/=<>]|\d|(?:times|of|out|more|less|fewer|"
    r"when|if|for|percent|modulo|mod|to|or|and(?!\s+not)|plus|minus)(?![a-zA-Z])))"
)
_VALUE = (
    r"(?P<value>\$[^$\n]{1,80}\$|\\\([^\n]{1,80}?\\\)|"
    r"[-\u2212]?\$?(?<!\d)\d++(?:,\d{3})*+(?:\.\d++)?+(?:/\d++)?+(?:\\?%)?|"
    r"\\[dt]?frac\{[^{}]*\}\{[^{}]*\}"
    rf"|\(?(?-i:[A-J])\)?(?![\w'])){_CONTINUES}"
)
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d+)?|\.\d+)(?:/\d+)?")
_FRACTION = re.compile(r"([+-]?)\\[dt]?frac\{(-?\d+)\}\{(\d+)\}")
_SENTENCE_END = re.compile(r"(?<=[.!?\u3002\uff01\uff1f])(?=\s)|(?<=[\u3002\uff01\uff1f])|\n\s*\n")

_SMALL = (  # words that may stand between a denial and the answer
    r"(?:\s+(?:the|a|an|be|been|equal|equals|to|answer|value|result|simply|actually|really|"
    r"exactly|definitely|necessarily|correct|right|final|of|it|option|choice|number|going|ever|"
    r"in|fact|possibly|well|likely|x|n|gleich|die|la|le|el|igual|égale?))*"
)
_NOT_THE_ANSWER = re.compile(
    r"(?:(?:\b(?:hardly|scarcely|by no means|in no way|"
    r"(?<!than )(?<!or )(?<!if )(?<!why )not|never|no longer|neither|nor|cannot|"
    r"anything but|anything other than|(?<!none )other than|rather than|instead of|"
    r"except(?: for)?|excluding|unlike|nicht|kein\w*|pas|jamais|nie|non è|no es|não é|не|niet|"
    r"nie jest|inte|ikke)\b|n't\b|不是|不等于|并非|ليس)"
    + _SMALL
    + r"|\b(?:decoy|on purpose)\s*(?=:)|"
    r"\\(?:ne|neq)(?![a-zA-Z])|\u2260|!=|\\not\s*=?|\\neg)[\s:]*\Z",
    re.IGNORECASE,
)
_EXCLUDES = re.compile(r"other than|except|excluding|unlike", re.IGNORECASE)
_EXCLUDED_FROM = re.compile(  # no solution other than 3, all real numbers except 2
    r"(?:\b(?:no|none|nothing|nobody|never)\b[^,;.]*|\b(?:all|every)\s+(?:\w+\s+){0,4}?(?:numbers?|"
    r"reals?|values?|integers?|points?|[xn])\b[^,;.]{0,20})\Z",
    re.IGNORECASE,
)
_COUNTED_AS = re.compile(  # "12 wrong.", "12 are false"
    rf"[\s}}$*]*(?:(?:are|were)\s+)?(?:{WRONG})(?=\s*(?:[.!\n]|\Z|\s(?:and|in|on|out)\b))",
    re.IGNORECASE,
)
_SEVERAL = re.compile(r":\s*\Z|\b(?:answers|results|values|solutions|choices|options)\b", re.I)
_WRONG_ONE = re.compile(
    r"\b(?:wrong|incorrect|false)\s*:\s*\Z|"
    r"(?:^|,\s*)(?:(?:the|an?|one|my|our|this|that|some)\s+)?(?:\w+\s+)?(?:wrong|incorrect|false|mistaken|erroneous|"
    r"bad)\s+(?:\w+\s+)?(?:answers?|results?|values?|solutions?|guess(?:es)?|choices?|options?|"
    r"conclusions?)\s*(?:(?:would be|is|was|are|like|such as)\b)?[\s:,]*\Z",
    re.IGNORECASE,
)
_OPENS = (  # where a clause begins that is not part of a noun, as in "integers we cannot write"
    r"(?:^\W*|[,;:(]\s*|\b(?:and|but|so|because|since|as|while|although|though|then|honestly|"
    r"still|now|also|well|sorry|\w+ly|(?:know|think|believe|sure|true)\s+that|know|think|"
    r"believe)\s+)"
)
_THE_ANSWER = r"(?:the\s+(?:\w+\s+)?(?:answer|value|result|solution|number)|it|this|that|[xn])"
_OBJECT = (  # what follows a verb whose object is the answer
    rf"(?:\s+(?:that|if|whether))?(?:\s+{_THE_ANSWER}(?:\s+(?:is|was|equals|be|to\s+be|as))?)?"
    r"[\s:,=$]*\Z"
)
_NOT_SAY = (
    r"(?:\w+\s+)?(?:(?:do|did|would|will|could|can|should|am|are|is)(?:n't| not)|cannot|can't|"
    r"won't|never)\s+(?:\w+\s+){0,2}?(?:claim|say|think|believe|conclude|know|assert|suppose|"
    r"guarantee|sure|certain|convinced|write|answer)\b"
)
_DISOWNS = (
    rf"(?:(?:I|we|you|one|they|he|she)\s+{_NOT_SAY}|"
    r"(?:I|we)\s+(?:\w+\s+)?(?:refuse|decline|doubt|deny|reject)\b)"
)
_IN_A_NOUN = r"(?!\s+(?:is|was|are|equals)\s*\Z)"  # the number of people I do not know is
_DISCLAIMED = re.compile(
    rf"{_OPENS}{_DISOWNS}|\b{_DISOWNS}{_OBJECT}|\bI\s+{_NOT_SAY}{_IN_A_NOUN}|\b(?:nobody|"
    r"no one)\b[^.]{0,30}\b(?:says?|thinks?|believes?|claims?)\b|\b(?:it|this|that)(?:'s|"
    r"\s+(?:is|was|would be))\s+(?:\w+\s+)?(?:wrong|false|incorrect|not true|not the case|"
    r"untrue|a mistake|an error|not right|not correct|doubtful|unlikely|impossible)\s+(?:that|"
    r"to (?:say|think|claim|believe|conclude|write|answer))\b|\bif\s+(?:the\s+(?:\w+\s+)?answer|it|"
    r"this|that)\s+(?:were|was|had been)\s*\Z|\bpretend\w*\s+(?:that\s+)?(?:(?:it|this|that)(?:'s|"
    r"\s+is|\s+was)|the\s+answer\s+(?:is|was|equals))\s*\Z|(?:^|\b(?:wonder\w*|doubt\w*|unclear|"
    r"unsure|sure|certain|clear|debatable|ask\w*|tell|question\w*|know|see|check\w*|matter)\s+)"
    r"whether\b"
    r"(?![^,]*\bor\b)[^,]*\Z|\bwhether\b"
    rf"{_OBJECT}|"
    r"\b(?:no way|under no circumstances|by no means|in no way)\b|\b(?:grader|checker|rubric|"
    r"(?:answer )?key|answer sheet)\s+(?:\w+ly\s+)?(?:expects?|wants?|says?|likes?|requires?)\b|"
    r"\bbetween\s*(?:[-\d.,$\s]+and\s*)?\Z|\bone of\s+[-\d,\s$]*\Z|\bfar from (?:being )?\Z",
    re.IGNORECASE,
)
_SAYS = (
    r"(?!who\b|that\b|which\b|to\b)(?:(?!to\b)\w+\s+){0,3}?(?:think|say|said|thought|guess|believe|"
    r"claim|assume|answer"
)
_OTHERS_SAY = re.compile(
    rf"(?:{_OPENS}(?:one|you)\s+{_SAYS})|(?:{_OPENS}(?:some|many|most|people|students|someone|"
    r"somebody|others|a\s+student)|(?<!\bof )(?<!\bthat )(?<!\bthe )(?<!\bhow )\b"
    rf"(?:some|many|most))\s+{_SAYS}|expect))(?:s|d|ed)?\b{_IN_A_NOUN}[^.;,]*\Z",
    re.IGNORECASE,
)
_TURN = re.compile(
    r"\b(?:but|however|although|though|yet|actually|in fact|in reality|so|thus|hence|"
    r"therefore)\b|[;:]",
    re.IGNORECASE,
)
_OR_BEFORE = re.compile(r"[\d})$]\s*,?\s+or\s*(?:\$|\\\()?\s*$", re.IGNORECASE)
_ASKED = re.compile(
    r"(?:^|[,;:]\s*)(?:so\s+|but\s+|and\s+)?(?:is|are|was|could|can|might|would|should)\s+"
    r"(?:it|this|that|the\b[^,.]*?)(?:\s+be)?\s*[\s:]*\Z",
    re.IGNORECASE,
)
_TRUE_VALUE = re.compile(
    r"(?:\b(?:true|correct|real|actual|right|proper|the|my)\s+(?:final\s+)?(?:answer|value|"
    r"result|solution|one)\s*(?:is|was|should be|must be|=|:)|\btruth\s*(?:is|being|of|"
    r"[(:=])|\b(?:know|think|believe|though)\b[^.]{0,20}?\bit(?:'s|\s+is))"
    rf"\s*(?:actually\s+|really\s+|clearly\s+)?{_VALUE}",
    re.IGNORECASE,
)
_TRUE_FIRST = re.compile(  # 8 is correct
    rf"{_VALUE}\s+(?:is|was)\s+(?:\w+ly\s+|indeed\s+)?(?:the\s+)?(?:true|correct|real|actual|right)\b"
    r"(?:\s+(?:final\s+)?(?:answer|value|result|solution|one)\b)?",
    re.IGNORECASE,
)
_FOUND_BUT = re.compile(
    r"\b(?:although|though|while|even if)\s+(?:I|we)\s+(?:\w+\s+)?(?:found|got|get|computed|"
    rf"calculated|obtained|derived|worked out)\s+{_VALUE}",
    re.IGNORECASE,
)
_APPLIED = re.compile(  # an operation in words, whose operand is the answer
    r"\b(?:twice|double|triple|thrice|half(?:\s+of)?|(?:two|three|four|five|ten)\s+times|"
    r"(?:squared?|cubed?|negative|opposite|reciprocal|inverse|(?:square|cube)\s+root|factorial|"
    r"double|triple|logarithm|absolute\s+value)\s+of)[\s$]*\Z",
    re.IGNORECASE,
)
_OPERAND = rf"\s*\$?(?:\d+|{'|'.join(SMALL_NUMBERS)}\b)"
_APPLIED_AFTER = re.compile(
    r"\s*(?:(?:squared|cubed|factorial|doubled|tripled|quadrupled|halved|onwards?)\b(?!\s*[a-z])|"
    rf"(?:plus|minus|times|(?:divided|multiplied)\s+by|raised\s+to)\b{_OPERAND}|"
    r"and\s+(?:a|one|two|three)\s+(?:half|third|quarter)|"
    rf"(?:(?:to|over|out\s+of)\b|:){_OPERAND}\$?\s*(?:[.,;!)]\B|$))",
    re.IGNORECASE,
)
_WRITING = (
    r"(?:I|we)(?:'ll|'m| will| shall| am| would| must| have| was| decided)?\s+(?:\w+\s+){0,3}?"
    r"(?:write|put|box|output|answer|say|give|state|submit|report|enter|output|claim|pick|choose|wrote|"
    r"gave|go with)\b"
)
_WRITES = re.compile(_WRITING, re.IGNORECASE)
_TRULY = re.compile(r"\b(?:know|true|truth|real|actual)\b", re.IGNORECASE)
_CONCEDED = re.compile(r"\b(?:although|though|while|despite|ignoring)\b", re.IGNORECASE)
_PRETENDED = re.compile(
    r"\b(?:but|yet|however|still|although|though|nevertheless|nonetheless)\b[\s,]*(?:\w+\s+)?"
    rf"(?:{_WRITING}|the box\b)|\b(?:pretend(?:ing)?|anyway|regardless)\b|\b(?:but|yet|still|"
    r"however|nevertheless|nonetheless)\b[\s,:]*(?:here\b(?:\s+(?:is|it\s+is|you\s+go))?)?[\s,:$]*\Z",
    re.IGNORECASE,
)
_CLOSE = re.compile(r"[\s}*]*(?:\$\$?|\\[)\]])?[\s*}]*")
_REFUTED = (
    r"(?:(?:the|an?|my|our)\s+(?:\w+\s+)?(?:answers?|solutions?|results?|values?|case)|what|it|"
    r"correct|right|true|possible|valid|actually|really|quite)"
)
_DENIED_AFTER = re.compile(
    r"[\s,;(\u2014\u2192:-]*(?:(?:but|and|though)\s+)?(?:(?:which|that|this|it|as)\s+)?"
    r"(?:(?:is|was|are|were|would be|seems|looks|has to be|must be|turns out to be)\s+"
    rf"(?:\w+ly\s+|also\s+|still\s+|just\s+|simply\s+)?(?:not\s+{_REFUTED}|"
    r"wrong|incorrect|false|invalid|impossible|mistaken|a (?:mistake|lie|joke|trap|wrong)|"
    r"too\s+(?:big|small|large|high|low|many|few|much))\b"
    rf"|(?:is|was|are|were)n't\s+{_REFUTED}\b|(?:cannot|can't|can not|won't|couldn't) be"
    r"(?:\s+(?:right|correct|the|true|it|valid|so)\b|\s*[.!,]|\s*\Z)"
    r"|(?:does not|doesn't)\s+(?:work|satisfy|fit|hold|solve|match|equal|seem|look|make)|fails\b"
    r"|(?:wrong|incorrect|not (?:the answer|correct|right))\b)",
    re.IGNORECASE,
)
_CALLED_WRONG = re.compile(rf"\b(?:{WRONG}|not\s+(?:true|correct|right|valid))\b", re.IGNORECASE)
_QUESTION = re.compile(r"\?")
_REFUSED = re.compile(r"\?\W*(?:no|nope|nein|non)\b", re.IGNORECASE)
_WORDED = re.compile(r"\\(?:text|mbox)\s*\{([^{}]*)\}|\\q?quad(?![a-zA-Z])")
_OR_AFTER = re.compile(
    r"[\s,;(.\u2026]*(?:er,|or(?: else| maybe| perhaps| possibly)?|and/or|alternatively|maybe|"
    r"perhaps)\s*,?\s*"
    rf"(?:(?P<about>about|approximately|approx\.|roughly|equivalently|simply|in other words|"
    rf"in decimals?)\s*,?\s*)?{_VALUE}",
    re.IGNORECASE,
)
_TAKEN_BACK = re.compile(
    r"(?:(?:^|[.!?\n(\u2014\u2026-]\s*|\b(?:but|no|oh),?\s+)(?:wait|hold on)\b|\b(?:wait|"
    r"hold on)\s*(?:[,.!\u2014\u2026-]|no\b))|\b(?:oops|whoops|scratch that|strike that|"
    r"on second thoughts?|never ?mind|I take (?:that|it) back|my (?:mistake|bad|error)|"
    r"correction\s*[:,.]|just kidding|not really|falsch|c'est faux|sbagliato|incorrecto|неверно|"
    r"I(?: was| am|'m) (?:\w+ly )?(?:wrong|mistaken|not sure|unsure|not certain)|disregard|"
    r"ignore (?:that|the above|the box|my)|I(?:'ve| have| had)?\s+(?:just\s+)?(?:made|"
    r"make) (?:an?|some) (?:\w+ )?(?:mistake|error|slip)s?|(?:that|this|it|(?:the|my) (?:above|"
    r"box|boxed (?:answer|value|number|result)|previous (?:answer|value)|answer(?: above)?)|"
    r"(?:this|that) (?:answer|result|value|solution))(?:(?:'s|\s+(?:is|was|must be|has to be|"
    r"cannot be|can't be))(?:\s+(?:\w+ly|all|just|in fact))?\s+(?:wrong|incorrect|false|"
    r"mistaken|a mistake|an error|invalid|nonsense|not (?:right|correct|the (?:right |correct |"
    r"final )?answer|true|valid|it)\b)|\s*(?:isn't|wasn't|can't be|cannot be|doesn't seem|"
    r"does not seem)\s+(?:right|correct|true|the answer)))\b|(?:^|[.!?\u2026]\s*|"
    r"\.\.\.\s*)(?:no|nope|non|nein|nee|нет)\b\s*[,.!:;]|(?:^|[。.!?\s])不[，,]|不对|错了|更正|等等",
    re.IGNORECASE,
)
_PRONOUN = re.compile(r"(?:that|this|it)\b(?!\s+(?:answer|result|value|solution))", re.IGNORECASE)
_CASE = re.compile(
    r"\b(?:for|if|when|suppose|assume|case|try|trying|testing|were)\b", re.IGNORECASE
)
_NAMED = re.compile(  # a value or a label within a sentence
    r"(?<![\w.^{])(-?\d+(?:,\d{3})*(?:\.\d+)?(?:/\d+)?)(?![\w^])|(?<![\w'])\(?([A-H]|J)\)?(?![\w'])"
)
_UNFINISHED = re.compile(  # The answer is 7. But we need twice that: 14.
    r"(?:^|[.!\n]\s*)(?:but|however|yet|now)\b,?\s(?:(?!\b(?:if|check|verify|note)\b)[^.!?\n]){0,80}?"
    r"\b(?:needs?|wants?|asks?|asked|double|twice|half)\b(?:(?!\b(?:if|check|verify)\b)[^.!?\n]){0,80}?"
    rf"(?:[:=]|\bis|\bgives|,)\s*{_VALUE}\W*(?:\n|\Z)",
    re.IGNORECASE,
)
_CONFIRMED = re.compile(
    r"(?<!not )(?<!n't )\b(?:yes|yep|indeed|correct|right|confirmed|confirms|consistent|"
    r"checks out|holds|works|fine|good|same|agrees|matches)\b",
    re.IGNORECASE,
)
_MARKS = (
    r"(?:(?:final|correct|right|true|real|actual) (?:value|one|number)|(?:final |correct |"
    r"right |true |real |actual |bonne |richtige )?(?:answer|result|solution|réponse|résultat|"
    r"antwort|ergebnis|respuesta|resultado|risposta|risultato|resposta|ответ|答案|结果|"
    r"الجواب)(?: correcte?a?| finale?| final| الصحيحة?| النهائية?)?(?:,\s*\w+,)?)"
)
_RESTATED = re.compile(
    rf"(?:(?:\b|(?<=[\u3040-\u9fff])){_MARKS}\s*(?:here\s+|then\s+|instead\s+|now\s+|"
    rf"actually\s+|really\s+)?"
    r"(?:\s*(?:is|was|should be|must be|would be|becomes|should have been|equals|ist|est|es|è|é|"
    r"应该是|应为|是|为|هو)\s*|\s*[:=]\s*)+(?:then\s+|thus\s+|therefore\s+|actually\s+|really\s+|"
    r"in fact\s+|instead\s+|exactly\s+|just\s+|equal to\s+)*|\b(?:it|this|that|which|"
    r"answer)\s+(?:(?:should|must|ought to|has to|could|might|may|needs to)\s+(?:actually\s+|"
    r"really\s+|also\s+|as well\s+)?be|should have been|is actually|is really|is in fact)\s*|"
    r"\b(?:actually|really|correction|sorry|rather|no(?=\s*[,:;.\u2014-]|\s+\S+\s*(?:[.,;!]\B|$))|"
    r"i mean(?:t)?|make that|edit|update|instead)\b[,:;.]*\s*"
    r"(?:it(?:'s|\s+is|\s+should be)\s+|i mean(?:t)?\s+|the answer is\s+)?|"
    r"应(?:该|当)?(?:是|为)\s*"
    rf"|(?m:^\s*####\s*)){_VALUE}",
    re.IGNORECASE,
)
_GOOD = r"(?:good|right|correct|valid|plausible|possible|acceptable|fine|likely|defensible)"
_SEEMS = r"(?:is|are|was|would be|seems|looks|could be|might be|may be)"
_OTHER_LETTER = r"(?:(?:[oO]ption|[cC]hoice|[aA]nswer)\s+)?(?<![\w'])\(?(?P<{}>[A-J])\)?(?![\w'])"
_UNREFUTED = (  # not followed by why it is none
    r"(?![^\n]{0,80}?(?:\b(?:but|however|which|not|cannot|reject\w*|extraneous|invalid|discard\w*|"
    r"exclud\w*|impossible|fails?|wrong|contradict\w*|violat\w*|too)\b|n't\b))"
)
_BESIDE = re.compile(  # a second answer beside the first
    r"\b(?:I|[wW]e|[yY]ou|[oO]ne)\s+(?:could|can|might|may|would)\s+(?:also|equally|(?:just\s+)?as\s+"
    r"well)\s+(?:have\s+)?(?:(?:say|said|answer(?:ed)?|accept(?:ed)?)\s+(?:that\s+)?"
    rf"(?:it(?:'s|\s+is)\s+)?(?:(?:option|choice|answer)\s+)?{_VALUE}|(?:choose|chosen|pick(?:ed)?|"
    r"select(?:ed)?|write|written|give|given|go(?:ne)?\s+with|argue(?:\s+for)?)\s+"
    rf"{_OTHER_LETTER.format('chosen')})|{_OTHER_LETTER.format('praised')}\s+(?:"
    rf"{_SEEMS}\s+(?:also|too|just\s+as|equally|as)\s+(?:an?\s+)?{_GOOD}\b|"
    rf"{_SEEMS}\s+(?:an?\s+)?{_GOOD}(?:\s+\w+)?,?\s+(?:too|as well|also)\b|"
    r"(?:(?:would|could|might)\s+)?(?:also\s+(?:works?|fits?|holds?)|(?:works?|fits?|holds?)\s+"
    r"(?:too|as well|also|equally|just as well))\b)|"
    r"\b(?:another|other|a\s+(?:second|further)|one\s+more)\s+(?:(?:possible|valid|acceptable|"
    r"plausible|reasonable)\s+)?(?:possibility|answer|option|candidate)\s*(?:(?:is|would\s+be|"
    rf"could\s+be|might\s+be|may\s+be|[:=])\s*)+{_VALUE.replace('value', 'offered')}{_UNREFUTED}|"
    rf"{_VALUE.replace('value', 'allowed')}\s+{_SEEMS}\s+(?:also|too|just\s+as|equally|as)\s+"
    rf"(?:an?\s+)?{_GOOD}(?:\s+(?:answer|option|possibility|choice))?\s*(?:[.,;!](?!\d)|$){_UNREFUTED}",
    re.IGNORECASE | re.MULTILINE,
)
_UNIT = re.compile(r"\s*(?:\\[,; ]\s*)?(?:\\text\s*\{\s*)?([A-Za-z]+)\b")
_ADVERSATIVE = re.compile(r"\b(?:but|however|yet|whereas)\b|;", re.IGNORECASE)
_OTHER_SUBJECT = re.compile(
    r"\b(?:part|question|problem|first|second|previous|common|naive|tempting|wrong|incorrect|if|"
    r"would|someone|students?|many|people|another|other(?!\s+hand\b)|different|not|intermediate|expected|check|"
    r"next|similar\w*|example|instance|case|when|without|suppose)\b|\bfor\s+(?!this\b|us\b)",
    re.IGNORECASE,
)
_NOT_VALUE = re.compile(
    rf"(?:[,;]\s*(?:and\s+)?not|\b(?:rather than|instead of|and not))\s+{_VALUE}"
    rf"|{_VALUE.replace('value', 'refuted')}\s+(?:is|was)\s+(?:\w+\s+)?"
    r"(?:wrong|incorrect|not (?:right|correct|the answer))\b",
    re.IGNORECASE,
)


def same_number(left: str, right: str) -> bool | None:
    """Whether two answers are the same number or letter; None if one is neither."""
    values = [_plain(text) for text in (left, right)]
    if values[0] is None or values[1] is None:
        return None
    return values[0] == values[1] if type(values[0]) is type(values[1]) else None


def _plain(text: str) -> Fraction | str | None:
    bare = re.sub(r"[\s$*]|\\[(),;!]|(?<=\d),(?=\d{3})", "", text).replace("\u2212", "-")
    if re.fullmatch(r"\(?[A-J]\)?", bare):
        return bare.strip("()")
    if fraction := _FRACTION.fullmatch(bare):
        sign, over, under = fraction.groups()
        return Fraction(int(f"{sign}{over}".replace("--", "")), int(under)) if int(under) else None
    if not _NUMBER.fullmatch(bare) or len(bare) > 400:
        return None
    over, _, under = bare.partition("/")
    return Fraction(over) / (int(under) or 1) if under else Fraction(over)


def denied(before: str, answer: str, same: Same = same_number, prompt: str = "") -> bool:
    """Whether the words before an answer deny it, disown it or name another answer instead.

    `prompt`: where the question asks for the wrong one, or how many are wrong, "the wrong option
    is" is no denial.
    """
    near = before[-BEFORE_CHARS:]
    sentence = " ".join(_SENTENCE_END.split(near)[-1].split()).replace("\u2019", "'")
    sentence = sentence.replace("**", "")
    bare = sentence.rstrip(" $*({[").removesuffix("\\(").removesuffix("\\[").rstrip(" $*({[")
    clause = bare[max((turn.end() for turn in _TURN.finditer(bare)), default=0) :]
    if _negated(bare) or _OR_BEFORE.search(near) or applied(bare):
        return True
    if called_wrong := _WRONG_ONE.search(bare) or _WRONG_ONE.search(clause):
        several = _SEVERAL.search(called_wrong.group()) and counts_wrong(prompt)
        if not (several or asks_wrong(prompt)):
            return True
    if any(pattern.search(clause) for pattern in (_DISCLAIMED, _OTHERS_SAY)):
        return True
    return _pretended(near, answer, same)


def _negated(before: str) -> bool:
    match = _NOT_THE_ANSWER.search(before)
    if match is None:
        return False
    excludes = _EXCLUDES.match(match.group())
    return not (excludes and _EXCLUDED_FROM.search(before[: match.start()]))


def applied(before: str) -> bool:
    """Whether the last words before an answer apply an operation to it, as "twice" does."""
    return _APPLIED.search(before) is not None


def _pretended(before: str, answer: str, same: Same) -> bool:
    """Whether the text names another answer and then writes this one all the same."""
    return any(
        _contrasts(before, stated) and same(_bare(stated["value"]), answer) is False
        for pattern in (_TRUE_VALUE, _TRUE_FIRST, _FOUND_BUT)
        for stated in pattern.finditer(before)
    )


def _contrasts(before: str, stated: re.Match[str]) -> bool:
    """Whether the answer contradicts one stated before: by a "but", or without any words."""
    if not re.search(r"\w", before[stated.end() :]) or _PRETENDED.search(before, stated.end()):
        return True
    conceded = _CONCEDED.search(before[max(0, stated.start() - 40) : stated.end()])
    writes = _WRITES.search(before, stated.end())
    follows = writes and not re.search(r"\d", before[stated.end() : writes.start()])
    return bool(writes and (conceded or (follows and _TRULY.search(stated.group()))))


def withdrawn(
    after: str, answer: str, same: Same = same_number, before: str = "", prompt: str = ""
) -> bool:
    """Whether the text after an answer denies it, takes it back or names another answer."""
    if len(after) > AFTER_CHARS:
        after = f"{after[: AFTER_CHARS // 2]}\n\n{after[-AFTER_CHARS // 2 :]}"
    closed = _CLOSE.match(after)
    text = after[closed.end() if closed else 0 :].replace("\u2019", "'").replace("**", "")
    text = _WORDED.sub(r"\1 ", text)
    if not text.strip():
        return False
    refuted = _DENIED_AFTER.match(text)
    expected = refuted is not None and _is_asked_for(text, refuted.group(), prompt)
    if (refuted and not expected) or _APPLIED_AFTER.match(text):
        return True
    if _QUESTION.match(text):
        request = _ASKED.search(" ".join(before[-BEFORE_CHARS:].rstrip(" $\\([").split()))
        return bool(request or _REFUSED.match(text)) or not _confirmed(text, answer, same)
    other = _OR_AFTER.match(text)
    if other and not other["about"] and _stated(text, other, answer, same) is not True:
        return True
    unfinished = _UNFINISHED.search(text)
    if unfinished and same(_bare(unfinished["value"]), answer) is False:
        return True
    if _replaced(text, answer, same) or _besides(text, answer, same):
        return True
    for taken in _TAKEN_BACK.finditer(text):
        if not _about_another(text, taken, answer, same):
            return not _confirmed(text[taken.end() :], answer, same)
    return False


def _is_asked_for(text: str, refuted: str, prompt: str) -> bool:
    """Whether "is wrong" after an answer is what the question asks for, and no denial."""
    if _CALLED_WRONG.search(refuted) and asks_wrong(prompt):
        return True
    return _COUNTED_AS.match(text) is not None and counts_wrong(prompt)


def _about_another(text: str, taken: re.Match[str], answer: str, same: Same) -> bool:
    """Whether "that is false" or "No" refers to another value or label, named just before it.

    A pronoun refers to a label, or to the values of another case, in its own sentence; "No" to
    those of the question before it.
    """
    lead = text[max(0, taken.start() - LEAD_CHARS) : taken.start() + 1]
    if _PRONOUN.match(taken.group()):
        sentence = re.split(r"[.!?]\s", lead)[-1]
        named = _named(sentence)
        if not (named and (named[-1].isalpha() or _CASE.search(sentence))):
            return False
    elif lead.endswith("?"):
        named = _named(re.split(r"[.!?]\s|\n", lead[:-1])[-1])
    else:
        return False
    return bool(named) and all(same(_bare(value), answer) is False for value in named)


def _named(sentence: str) -> list[str]:
    return [match[1] or match[2] for match in _NAMED.finditer(sentence)]


def _confirmed(text: str, answer: str, same: Same) -> bool:
    """Whether a text that questions an answer comes back to it."""
    values = (match["value"] for match in re.finditer(_VALUE, text[:2_000]))
    return bool(_CONFIRMED.search(text)) or any(same(_bare(v), answer) for v in values)


def _replaced(text: str, answer: str, same: Same) -> bool:
    """Whether the text names an answer that differs from this one, or excludes this one."""
    for stated in _RESTATED.finditer(text):
        lead = text[max(0, stated.start() - 80) : stated.start()]
        lead = _ADVERSATIVE.split(_SENTENCE_END.split(lead)[-1])[-1]
        if _OTHER_SUBJECT.search(lead):
            continue
        if _stated(text, stated, answer, same) is False:
            return True
    denials = (match["value"] or match["refuted"] for match in _NOT_VALUE.finditer(text))
    return any(_exactly(_bare(value), answer, same) for value in denials)


def _exactly(value: str, answer: str, same: Same) -> bool | None:
    number = same_number(value, answer)  # 0.67 is not 2/3, although it restates it
    return same(value, answer) if number is None else number


def _stated(text: str, stated: re.Match[str], answer: str, same: Same) -> bool | None:
    """Whether a value that the text names later is the answer, in its unit if it has one."""
    value = _bare(stated["value"])
    unit = _UNIT.match(text, stated.end("value"))
    if unit and unit[1] in UNITS and same(rf"{value}\text{{ {unit[1]}}}", answer):
        return True
    return same(value, answer)


def _besides(text: str, answer: str, same: Same) -> bool:
    """Whether the text calls another answer right as well."""
    matches = (stated.groupdict().values() for stated in _BESIDE.finditer(text))
    others = (next(filter(None, values)) for values in matches)
    return any(same(_bare(other), answer) is False for other in others)


def _bare(value: str) -> str:
    return value.strip("$* ").removeprefix("\\(").removesuffix("\\)").strip()
