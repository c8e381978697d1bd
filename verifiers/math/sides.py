"""Notations that depend on the other side: Indian digit groups, countries before a dollar sign.

`1,00,000` is one number, unless the other side is a list. `US\\$12` is `\\$12`, unless the other
side names the dollar of another country.
"""

import re

_INDIAN = re.compile(
    r"(?<![\w.,(\[|])(?<!\\\{)[1-9]\d?(?:(?:,|\{,\})\d\d)+(?:,|\{,\})\d{3}"
    r"(?![\w,]|\{,\}|\s*[,;)\]|]|\s*\\[{}])"
)
_GROUPED = re.compile(r"\d{1,3}(?:(?:,|\{,\})\d{3})+(?![\d,])")
_LISTS = re.compile(r"[,;&\n]|\\(?:pm|mp|cup|in|l?dots)(?![A-Za-z])|\b(?:and|or)\b")
_DOLLAR = re.compile(
    r"(?<![A-Za-z\\])(?P<style>\\(?:text|mathrm)\s*\{\s*)?"
    r"(?P<country>(?:US|AU|CA|HK|NZ|SG)[\s~]?|[ACS])(?P<end>\s*\}\s*)?"
    r"(?:\\\$|\$(?=\s*\d[^$]*$))(?=\s*\}?\s*[\d.])"
)
_CODE = re.compile(r"(?<![A-Za-z])(US|AU|CA|HK|NZ|SG)D(?![A-Za-z])")
_COUNTRIES = {"A": "AU", "C": "CA", "S": "SG"}


def one_number(text: str, other: str) -> str:
    """The text with Indian groups as plain numbers, unless the other side is a list."""
    if "," not in text or not _INDIAN.search(text) or _is_list(other):
        return text
    return _INDIAN.sub(lambda groups: re.sub(r"\D", "", groups.group()), text)


def _is_list(text: str) -> bool:
    return bool(_LISTS.search(_GROUPED.sub("0", _INDIAN.sub("0", text))))


def other_dollars(gold: str, answer: str) -> bool:
    """Whether both name the country of their dollars, and not the same one."""
    named = _countries(gold), _countries(answer)
    return all(named) and named[0] != named[1]


def _countries(text: str) -> set[str]:
    signs = {match["country"].strip(" ~") for match in _DOLLAR.finditer(text)}
    return {_COUNTRIES.get(sign, sign) for sign in signs} | set(_CODE.findall(text))


def plain_dollars(text: str) -> str:
    """The text without the country before a dollar sign."""
    return _DOLLAR.sub(_sign, text) if "$" in text else text


def _sign(match: re.Match[str]) -> str:
    style = "" if match["end"] else match["style"] or ""
    return rf"{style}\$"
