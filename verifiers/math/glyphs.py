"""Normalise Unicode: glyphs become the LaTeX with the same meaning.

Only signs with the same meaning are mapped. Letters of other alphabets that look like Latin letters
or digits are unchanged, and the grammar rejects them.
"""

import re
import unicodedata

_SIGNS = {
    "\u2212": "-", "\u2010": "-", "\u2011": "-", "\u2012": "-", "\u2013": "-", "\u2014": "-",
    "\ufe63": "-", "\u00d7": r"\times ", "\u2715": r"\times ", "\u22c5": r"\cdot ",
    "\u00b7": r"\cdot ", "\u2219": r"\cdot ", "\u2217": "*", "\u00f7": "/", "\u2215": "/",
    "\u2044": "/", "\u2236": ":", "\u00b1": r"\pm ", "\u2213": r"\mp ",
    "\u221e": r"\infty ", "\u2264": r"\le ", "\u2a7d": r"\le ", "\u2265": r"\ge ",
    "\u2a7e": r"\ge ", "\u2260": r"\ne ", "\u2248": r"\approx ", "\u2245": r"\approx ",
    "\u2261": r"\equiv ", "\u00b0": r"^\circ ", "\u00ba": r"^\circ ", "\u222a": r"\cup ",
    "\u2229": r"\cap ", "\u2205": r"\emptyset ", "\u00d8": r"\emptyset ",
    "\u2208": r"\in ", "\u2216": r"\setminus ", "\u2227": r"\wedge ", "\u2228": r"\vee ",
    "\u211d": r"\mathbb{R}", "\u2124": r"\mathbb{Z}", "\u2115": r"\mathbb{N}",
    "\u211a": r"\mathbb{Q}", "\u2102": r"\mathbb{C}", "\u230a": r"\lfloor ",
    "\u230b": r"\rfloor ", "\u2308": r"\lceil ", "\u2309": r"\rceil ", "\u27e8": r"\langle ",
    "\u27e9": r"\rangle ", "\u2329": r"\langle ", "\u232a": r"\rangle ", "\u2211": r"\sum ",
    "\u220f": r"\prod ", "\u222b": r"\int ", "\u2026": r"\ldots ", "\u22ef": r"\ldots ",
    "\u2220": r"\angle ", "\u2032": "'", "\u2033": "''", "\u03c0": r"\pi ", "\u2107": "e",
    "\u03b1": r"\alpha ", "\u03b2": r"\beta ", "\u03b3": r"\gamma ", "\u03b4": r"\delta ",
    "\u03b5": r"\epsilon ", "\u03b8": r"\theta ", "\u03bb": r"\lambda ", "\u03bc": r"\mu ",
    "\u00b5": r"\,\mu ",
    "\u03c1": r"\rho ", "\u03c3": r"\sigma ", "\u03c4": r"\tau ", "\u03c6": r"\phi ",
    "\u03d5": r"\phi ", "\u03c9": r"\omega ", "\u0394": r"\Delta ", "\u03a9": r"\Omega ",
    "\u03a3": r"\Sigma ", "\u20ac": r"\euro ", "\u00a3": r"\pounds ", "\u00a2": r"\cents ",
    "\u00a5": r"\yen ", "\u20b9": r"\rupees ",
    "\u221a": r"\surd ", "\u221b": r"\cubesurd ", "\u2265\ufe00": r"\ge ", "\uff0c": ", ",
    "\u3001": ", ", "\uff1b": "; ", "\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"',
    "\u2009": r"\,", "\u202f": r"\,", "\u2008": r"\,", "\u00a0": "~", "\u2007": r"\,",
    "\u2061": "", "\u2062": "", "\u2063": "", "\u200b": "", "\u200c": "", "\u200d": "",
    "\u2060": "", "\ufeff": "", "\u00ad": "", "\ufe0f": "",
}  # fmt: skip
_GLYPHS = str.maketrans({key: sign for key, sign in _SIGNS.items() if len(key) == 1})
_SUPER = re.compile("[\u00b2\u00b3\u00b9\u2070\u2071\u2074-\u207f]+")
_SUB = re.compile("[\u2080-\u208e\u2090-\u209c]+")
_VULGAR = re.compile("[\u00bc-\u00be\u2150-\u215e\u2189]")
_HIDDEN = re.compile("[\u202a-\u202e\u2066-\u2069\u0300-\u036f\u20d0-\u20f0]")


def plain(text: str) -> str:
    """The text with its glyphs as LaTeX: `x²` as `x^{2}`, `½` as `\\frac{1}{2}`.

    Marks that reverse or strike out text become U+FFFD, which the grammar rejects.
    """
    if text.isascii():
        return text
    text = _SUPER.sub(lambda run: f"^{{{unicodedata.normalize('NFKC', run.group())}}}", text)
    text = _SUB.sub(lambda run: f"_{{{unicodedata.normalize('NFKC', run.group())}}}", text)
    text = _VULGAR.sub(_fraction, text.translate(_GLYPHS))
    text = unicodedata.normalize("NFKC", text).translate(_GLYPHS)
    return _HIDDEN.sub("\ufffd", "".join(map(_digit, text)))


def _fraction(glyph: re.Match[str]) -> str:
    over, _, under = unicodedata.normalize("NFKC", glyph.group()).partition("\u2044")
    return rf"\frac{{{over}}}{{{under}}}"


def _digit(character: str) -> str:
    value = unicodedata.decimal(character, None)
    return character if value is None else str(value)
