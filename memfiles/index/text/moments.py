"""Moments: dates and expressions such as "last Friday", as words that a question and a text have in common.

A day has the words ``day20260504``, ``week202619`` (ISO 8601), ``month202605``, ``year2026`` and ``monthmay``; what is
less exact has fewer. An expression is resolved from the day on which it was said, or, where the text names one day and
tells of the time before it, from that day. Dates are read in ISO 8601 and as they are written in English, in which
relative expressions are read as well.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from datetime import date, timedelta
from functools import lru_cache

MONTHS = "january february march april may june july august september october november december".split()
DAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
NUMBERS = {"a": 1, "an": 1, "one": 1, "two": 2, "couple": 2, "three": 3, "few": 3, "four": 4, "five": 5, "six": 6}
NUMBERS |= {"seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12}
_SURE = "|".join(f"{name[:3]}(?:{name[3:]})?" for name in MONTHS if name not in ("march", "may", "september"))
_MONTH = rf"{_SURE}|mar(?:ch)?|may|sept?(?:ember)?"
_LONE = "|".join(name for name in MONTHS if name not in ("march", "may"))  # these two are words as well
_YEAR, _DAY = r"(?:19|20)\d\d", r"[0-3]?\d(?:st|nd|rd|th)?"
# The look ahead at a first letter halves the time of these: most words begin with another one.
_DATE = re.compile(
    rf"\b(?=[\djfmasond])(?:(?P<year1>{_YEAR})-(?P<month1>[01]\d)(?:-(?P<day1>[0-3]\d))?(?!\d)"
    rf"|(?P<day2>{_DAY})(?: of)? (?P<month2>{_MONTH})\b\.?(?:,? (?P<year2>{_YEAR}))?"
    rf"|(?P<month3>{_MONTH})\b\.? (?P<day3>{_DAY})\b(?!:)(?:,? (?P<year3>{_YEAR}))?"
    rf"|(?P<month4>{_MONTH})\b\.?,? (?P<year4>{_YEAR})\b"
    rf"|(?P<month5>{_LONE}|(?<=\bin )(?:march|may)|(?<=\bsince )(?:march|may)|(?<=\blast )(?:march|may))\b"
    rf"|(?P<year6>{_YEAR})\b)",
    re.IGNORECASE,
)
_RELATIVE = re.compile(
    r"\b(?=[\dacelfnopsty])(?:(?P<near>yesterday|today|tonight|tomorrow|this morning|last night)\b"
    rf"|(?P<count>\d{{1,3}}|{'|'.join(NUMBERS)})(?: of)? (?P<unit>day|week|month|year)s? (?:ago|before|earlier)\b"
    rf"|(?P<turn>last|past|previous|this|next) (?P<span>week(?:end)?|month|year|{'|'.join(DAYS)})\b"
    r"|the (?P<earlier>day|week(?:end)?|month|year) before\b)",
    re.IGNORECASE,
)
_HINTS = ["day", "week", "month", "year", "night", "morning", "tomorrow", *(name[:3] for name in MONTHS)]
_HINT = re.compile(rf"(?=[\dadfjmnostwy])(?:\d\d|{'|'.join(_HINTS)})", re.IGNORECASE)
# Every moment has one of these words, or one of either of the next: looking for them takes a tenth of the time of an
# expression.
_ALONE = frozenset(
    [name for month in MONTHS for name in (month, month[:3])] + ["sept", "sepember", *map(str, range(1900, 2100))]
    + "yesterday today tonight tomorrow ago before earlier".split()
)  # fmt: skip
_TURNING = frozenset("last past previous this next".split())
_TURNED = frozenset(["morning", "night", "week", "weekend", "month", "year", *DAYS])
_NEAR = {"yesterday": -1, "last night": -1, "tomorrow": 1}
_TURNS = {"this": 0, "next": 1}
_OTHER_CASES = {ord("\u017f"): "s", ord("\u0131"): "i", ord("\u0307"): ""}  # the last is left of a dotted capital I


@lru_cache(maxsize=1024)
def words_of_day(day: date) -> list[str]:
    """The words of a day, the most exact first."""
    return [f"day{day:%Y%m%d}", *_week(day)]


def moments_in(text: str, *, said: date | None, words: Collection[str] | None = None) -> list[str]:
    """The words of the moments in a text, each once; without the day on which it was said, only those of dates.

    ``words`` are those of a text of ASCII, folded, if they are known.
    """
    if not _may_tell(text, words):
        return []
    dates = [found for match in _DATE.finditer(text) if (found := _dated(match)) is not None]
    days = {day for day, _ in dates if day is not None}
    told = [word for _, named in dates for word in named]
    origin = next(iter(days)) if len(days) == 1 and " before" in text else said
    if origin is not None:
        told += (word for match in _RELATIVE.finditer(text) for word in _resolved(match, origin))
    return list(dict.fromkeys(told))


def tells_when(text: str, words: Collection[str] | None = None) -> bool:
    """Whether a text names a moment, however vaguely; ``words`` as of ``moments_in``."""
    return _may_tell(text, words) and bool(_RELATIVE.search(text) or _DATE.search(text))


def _may_tell(text: str, words: Collection[str] | None) -> bool:
    """Whether a moment may be in a text; False if none is."""
    if words is None:
        return bool(_HINT.search(text))
    return not _ALONE.isdisjoint(words) or not (_TURNING.isdisjoint(words) or _TURNED.isdisjoint(words))


def _dated(match: re.Match[str]) -> tuple[date | None, list[str]] | None:
    """The day of a date, if it names one, and the words of the date; None if there is no such day."""
    found = {name[:-1]: value for name, value in _named(match).items()}
    year, day = int(found.get("year", 0)), int(found.get("day", "0").rstrip("stndrh"))
    if "month" not in found:
        return None, [f"year{year}"]
    month = int(found["month"]) if found["month"].isdigit() else _number_of(found["month"])
    try:
        exact = date(year or 2000, month, day or 1)
    except ValueError:
        return None
    if year and day:
        return exact, words_of_day(exact)
    return None, _month(exact) if year else [f"month{MONTHS[month - 1]}"]


def _number_of(month: str) -> int:
    return next(number for number, name in enumerate(MONTHS, start=1) if name.startswith(month[:3]))


def _named(match: re.Match[str]) -> dict[str, str]:
    """The groups that matched, in lower case; an expression takes these letters for the Latin ones."""
    groups = match.groupdict().items()
    return {name: value.lower().translate(_OTHER_CASES) for name, value in groups if value}


def _resolved(match: re.Match[str], origin: date) -> Iterator[str]:
    """The words of a relative expression, seen from a day."""
    found = _named(match)
    try:
        if "near" in found:
            yield from words_of_day(origin + timedelta(days=_NEAR.get(found["near"], 0)))
        elif "unit" in found:
            count = found["count"]
            yield from _earlier(origin, found["unit"], int(count) if count.isdigit() else NUMBERS[count])
        elif "earlier" in found:
            yield from _earlier(origin, found["earlier"], 1)
        elif (span := found["span"]) in DAYS:
            back = (origin.weekday() - DAYS.index(span)) % 7
            days = {"this": -back, "next": 7 - back}.get(found["turn"], -(back or 7))
            yield from words_of_day(origin + timedelta(days=days))
        else:
            yield from _earlier(origin, span, -_TURNS.get(found["turn"], -1))
    except (OverflowError, ValueError):  # before the first year, or after the last
        return


def _earlier(origin: date, unit: str, count: int) -> list[str]:
    """The words of the day, week, month or year that is so many earlier."""
    if unit == "day":
        return words_of_day(origin - timedelta(days=count))
    if unit.startswith("week"):
        return _week(origin - timedelta(weeks=count))
    if unit == "month":
        year, month = divmod(origin.year * 12 + origin.month - 1 - count, 12)
        return _month(date(year, month + 1, 1))
    return [f"year{date(origin.year - count, 1, 1).year}"]


def _week(day: date) -> list[str]:
    year, week, _ = day.isocalendar()
    return [f"week{year}{week:02}", *_month(day)]


def _month(day: date) -> list[str]:
    return [f"month{day:%Y%m}", f"year{day.year}", f"month{MONTHS[day.month - 1]}"]
