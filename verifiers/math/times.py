"""Times of day and dates: 10:30 a.m., 22:30, noon, July 4, the 4th of July 2021."""

import re
from dataclasses import dataclass

_STYLE = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|normal)?|math(?:rm|bf|it|sf)|mbox|rm|left|right)(?![a-z])|\\!"
)
_BLANK = re.compile(r"(?:\\(?:q?quad|[,;: ])|[{}$~\s])+")
_CLOCK = re.compile(
    r"(?:at )?(?P<hour>\d{1,2})"
    r"(?: ?(?P<sign>[:.]) ?(?P<minute>\d{2})(?: ?: ?(?P<second>\d{2}))?)? ?"
    r"(?P<half>a\.? ?m\b\.?|p\.? ?m\b\.?|noon|midnight|o ?'? ?clock|in the morning|"
    r"in the (?:afternoon|evening))?"
)
_NAMED = {"noon": (12, "pm"), "midnight": (12, "am")}
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_IT_IS = re.compile(r"^(?:it (?:is|was|will be) )?(?:on |in )?(?:an? )?")
_ORDINAL = re.compile(r"(?<=\d) ?\^? ?(?:st|nd|rd|th)\b")
_DATE_GAP = re.compile(r"[\s,.]+(?:of |the )*|^the ")


@dataclass(frozen=True, slots=True)
class Clock:
    """A time of day; `half` is "am", "pm" or "" if the text does not say."""

    hour: int
    minute: int
    second: int
    half: str

    @property
    def of_day(self) -> int | None:
        """Seconds since midnight; None if the half of the day is unknown."""
        if not self.half and 0 < self.hour <= 12:
            return None
        hour = self.hour % 12 + 12 * (self.half == "pm") if self.half else self.hour
        return (hour * 60 + self.minute) * 60 + self.second


@dataclass(frozen=True, slots=True)
class Date:
    """A day of a month; `year` and `weekday` are 0 and "" if the text does not say."""

    month: int
    day: int
    year: int
    weekday: str


def simplified(text: str) -> str:
    """The text in lower case without style commands and with single blanks."""
    return _BLANK.sub(" ", _STYLE.sub("", text)).strip(" .").lower()


def clock(text: str, *, bare_hours: bool = False) -> Clock | None:
    """The time of day; `bare_hours`: a number alone is an hour."""
    bare = simplified(text)
    if bare in _NAMED:
        return Clock(_NAMED[bare][0], 0, 0, _NAMED[bare][1])
    match = _CLOCK.fullmatch(bare) or _CLOCK.fullmatch(f"{bare}.")
    if match is None:
        return None
    hour, minute = int(match["hour"]), int(match["minute"] or 0)
    second, half = int(match["second"] or 0), (match["half"] or "").replace(".", "")
    written = match["minute"] is not None and match["second"] is None
    if match["sign"] == "." and not half:
        return None  # a decimal
    if hour > 24 or minute > 59 or second > 59 or not (half or written or bare_hours):
        return None
    if half and hour > 12:
        half = ""  # 14:30 p.m.
    evening = ("pm", "p m", "noon", "in the afternoon", "in the evening")
    morning = ("am", "a m", "midnight", "in the morning")
    return Clock(hour, minute, second, "pm" if half in evening else "am" * (half in morning))


def same_time(gold: str, answer: str) -> bool | None:
    """Whether both are the same time or date; None if the gold text, or both, may be a ratio."""
    for names in (_DAYS, _MONTHS):
        if (index := _ordinal(simplified(gold), names)) is not None and len(simplified(gold)) > 2:
            return _ordinal(_IT_IS.sub("", simplified(answer)), names) == index
    expected = date(gold)
    if expected is not None:
        actual = date(answer)
        return actual is not None and _same_date(expected, actual)
    gold_clock = clock(gold)
    if gold_clock is None:
        return None
    sure = bool(gold_clock.half)
    answer_clock = clock(answer, bare_hours=sure)
    if answer_clock is None:
        return False if sure else None
    return _same_clock(gold_clock, answer_clock)


def _same_clock(gold: Clock, answer: Clock) -> bool:
    """Equality; where one of the two does not say a.m. or p.m., of what both say."""
    known = gold.of_day, answer.of_day
    if gold.hour == 12 and not gold.half and answer.half == "am":
        return False
    if None not in known:
        return known[0] == known[1]
    if not gold.half and not answer.half and gold.hour != answer.hour:
        return False
    twelve = gold.hour <= 12 and answer.hour <= 12
    return twelve and (gold.hour % 12, gold.minute, gold.second) == (
        answer.hour % 12,
        answer.minute,
        answer.second,
    )


def date(text: str) -> Date | None:
    """The date of a text with the name of a month and a day."""
    words = [w for w in _DATE_GAP.split(_ORDINAL.sub("", simplified(text))) if w]
    if not 2 <= len(words) <= 4:
        return None
    months = [m for w in words if (m := _ordinal(w, _MONTHS)) is not None]
    days = [d for w in words if (d := _ordinal(w, _DAYS)) is not None]
    numbers = [int(w) for w in words if w.isdecimal() and len(w) in (1, 2, 4)]
    if len(months) != 1 or len(days) > 1 or not 1 <= len(numbers) <= 2:
        return None
    if len(words) != 1 + len(days) + len(numbers) or not 1 <= numbers[0] <= 31:
        return None
    weekday = _DAYS[days[0]] if days else ""
    return Date(months[0] + 1, numbers[0], numbers[1] if len(numbers) == 2 else 0, weekday)


def _ordinal(word: str, names: tuple[str, ...]) -> int | None:
    """The index of a name, or of its abbreviation to three or four letters."""
    for index, name in enumerate(names):
        if word == name or (len(word) in (3, 4) and name.startswith(word)):
            return index
    return None


def _same_date(gold: Date, answer: Date) -> bool:
    """Equality of all that the gold date says."""
    if gold.year and gold.year != answer.year:
        return False
    if gold.weekday and gold.weekday != answer.weekday:
        return False
    return (gold.month, gold.day) == (answer.month, answer.day)
