"""Words of other languages: an answer in one word, nouns after a number, "or" between values.

A run of letters after a number is a noun, as 元 in 12元. A single letter of an alphabet that looks
like the Latin one is none, nor is a run with a word that changes the value: 12万 is 120000, 12以上
is at least 12.
"""

import re

_LOOKALIKES = "\u0370-\u03ff\u0400-\u052f"  # Greek, Cyrillic
_FAMILIAR = re.compile(rf"[A-Za-z\u00c0-\u024f{_LOOKALIKES}]+")
_CHANGES = re.compile(
    # numerals and fractions
    "^[十百万萬亿億兆成만억천백]|^千(?![克米瓦卡])"
    "|半|分之"
    # or, not, about, up to, and, plus
    "|[或不非无無没未否约約多几至到和与及加减乘除错錯误誤假吗嗎]"
    # at least, around
    "|以[上下内外]|左右|또는|이[상하]|아[니님]|^약"
    "|または|ない|では|から|ほど"
    r"|^(?:или|не|нет|и|от|до|où|és|à|não|non|неверно|неправильно|ложно|أو|او|ليس|لا|خطأ)$"
    r"|^(?:тыс|миллион|миллиард|млн|млрд|сот|десят|половин|трет|четверт|пят|дюжин|боле|мене|"
    r"больш|меньш|пример|около|минус|плюс|ألف|مليون|مليار|نصف|ربع|ثلث|تقريبا|négati|milhõe|"
    r"millió|moitié|três|più|però)",
    re.IGNORECASE,
)
_SYMBOLS = re.compile("[\u0127\u0370-\u03ff]")
_NUMERALS = re.compile("[〇零一二两兩三四五六七八九十百千万萬亿億兆만억천백]+")
_HAN = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_OR = re.compile(
    rf"(?<![{_HAN}])\s*(?:或者?|または|또는|\u0438\u043b\u0438|\u0623\u0648)\s*(?![{_HAN}])"
)


def is_noun(word: str, *, spaced: bool) -> bool:
    """Whether a run of letters that are not all ASCII may follow a number as a noun."""
    if _CHANGES.search(word):
        return False
    return not _FAMILIAR.match(word) or (spaced and len(word) > 1)


def is_foreign_word(text: str) -> bool:
    """Whether letters, some of them not ASCII, are a word.

    Letters of formulas are none: Greek, h-bar, one letter of an alphabet like the Latin one. Nor
    are bare numerals, which have a value.
    """
    if text.isascii() or _SYMBOLS.search(text) or _NUMERALS.fullmatch(text):
        return False
    return len(text) > 1 or not _FAMILIAR.fullmatch(text)


def with_or(text: str) -> str:
    """The text with "or" for the word of that meaning between two values."""
    return text if text.isascii() else _OR.sub(" or ", text)
