"""HTML with escaped text, and data embedded as JSON."""

import base64
import gzip
import importlib.util
import json
import re
from collections.abc import Iterable
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, Final

SURROGATES = re.compile("[\ud800-\udfff]")
UNSEEN = re.compile(  # as in page/tokens.js
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)
VOID: Final = frozenset({"meta", "input", "br"})


class Html(str):
    """Text that is already markup and is not escaped."""

    __slots__ = ()


def el(name: str, /, *inside: str | Iterable[str] | None, **attributes: str | bool | None) -> Html:
    """An element. `cls` sets class, `data_x` sets data-x. Strings inside are escaped."""
    opening = name + "".join(_attribute(key, value) for key, value in attributes.items())
    return Html(f"<{opening}>" if name in VOID else f"<{opening}>{join(inside)}</{name}>")


def join(inside: Iterable[str | Iterable[str] | None]) -> Html:
    """Markup and text, concatenated."""
    return Html("".join(_markup(part) for part in inside))


def _markup(part: str | Iterable[str] | None) -> str:
    if part is None:
        return ""
    if isinstance(part, Html):
        return part
    return readable(escape(part)) if isinstance(part, str) else join(part)


def _attribute(key: str, value: str | bool | None) -> str:
    name = {"cls": "class", "for_": "for"}.get(key, key.replace("_", "-"))
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{readable(escape(str(value)))}"'


def readable(text: str) -> str:
    """The text with NUL and lone surrogates, invalid in HTML or UTF-8, replaced by U+FFFD."""
    return SURROGATES.sub("�", text.replace("\0", "�"))


def visible(text: str) -> str:
    """The text with invisible and direction-changing characters replaced by their code point."""
    return UNSEEN.sub(lambda match: f"⟨{ord(match[0]):04x}⟩", text)


def data(name: str, value: Any) -> Html:
    """A script element that holds JSON, in which no text can end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    safe = SURROGATES.sub("�", text).replace("<", "\\u003c")
    safe = safe.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return Html(f'<script type="application/json" id="{escape(name)}">{safe}</script>\n')


@cache
def plotly() -> Html:
    """A script element with plotly's JavaScript, gzipped and in base64 to halve the page's size."""
    text = base64.b64encode(gzip.compress(plotly_js(), 9, mtime=0)).decode()
    return Html(f'<script type="text/plain" id="plotly">{text}</script>\n')


def plotly_js() -> bytes:
    """The JavaScript of the installed plotly. Raises ModuleNotFoundError if it is missing."""
    spec = importlib.util.find_spec("plotly")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("charts need plotly: pip install plotly")
    return (Path(spec.origin).parent / "package_data" / "plotly.min.js").read_bytes()
