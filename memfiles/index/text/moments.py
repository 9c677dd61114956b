"""Moments: dates and expressions such as "last Friday", as words that a question and a text have in common.

A day has the words ``day20260504``, ``week202619`` (ISO 8601), ``month202605``, ``year2026`` and ``monthmay``; what is
less exact has fewer. An expression is resolved from the day on which it was said, or, where the text names one day and
tells of the time before it, from that day. Dates are read in ISO 8601 and as they are written in English, in which
relative expressions are read as well. A question is also read in other languages, as an entry has the words of the day
on which it was said whatever its language is.
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
# Of questions in other languages, folded: German, French, Spanish, Italian, Portuguese, Russian and Arabic.
_NAMES = """
    januar februar marz april mai juni juli august september oktober november dezember
    janvier fevrier mars avril mai juin juillet aout septembre octobre novembre decembre
    enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre
    gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre
    janeiro fevereiro marco abril maio junho julho agosto setembro outubro novembro dezembro
    января февраля марта апреля мая июня
    июля августа сентября октября ноября декабря
    يناير فبراير مارس ابريل مايو يونيو
    يوليو اغسطس سبتمبر اكتوبر نوفمبر ديسمبر
""".split()
_MONTH_OF = {name: place % 12 + 1 for place, name in enumerate(_NAMES)}
_WEEKDAY_NAMES = """
    montag dienstag mittwoch donnerstag freitag samstag sonntag lundi mardi mercredi jeudi vendredi samedi dimanche
    lunes martes miercoles jueves viernes sabado domingo lunedi martedi mercoledi giovedi venerdi sabato domenica
""".split()
_SPANS = {name: DAYS[place % 7] for place, name in enumerate(_WEEKDAY_NAMES)}
for _unit, _names in {
    "day": "tag tage tagen jour jours dia dias giorno giorni \u5929",
    "week": "woche wochen semaine semaines semana semanas settimana settimane \u5468 \u661f\u671f \u793c\u62dc",
    "month": "monat monate monaten mois mes meses mese mesi \u6708",
    "year": "jahr jahre jahren an ans annee ano anos anno anni \u5e74",
}.items():
    _SPANS |= dict.fromkeys(_names.split(), _unit)
_COUNT_NAMES = """
    ein zwei drei vier funf sechs sieben acht neun zehn un deux trois quatre cinq six sept huit neuf dix
    una dos tres cuatro cinco seis siete ocho nueve diez uno due tre quattro cinque sei sette otto nove dieci
    \u4e00 \u4e24 \u4e09 \u56db \u4e94 \u516d \u4e03 \u516b \u4e5d \u5341
""".split()
_COUNTS = {name: place % 10 + 1 for place, name in enumerate(_COUNT_NAMES)}
_COUNTS |= {"einem": 1, "einer": 1, "une": 1, "\u4e8c": 2}
_DISTANT = {
    "gestern": -1,
    "vorgestern": -2,
    "ayer": -1,
    "anteayer": -2,
    "avant-hier": -2,
    "ieri": -1,
    "ontem": -1,
    "demain": 1,
}
_DISTANT |= {"\u0432\u0447\u0435\u0440\u0430": -1, "\u0627\u0645\u0633": -1}
_HAN_DISTANT = {"\u6628\u5929": -1, "\u524d\u5929": -2, "\u660e\u5929": 1}
_HAN_DAYS = "\u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u65e5\u5929"  # Monday to Saturday, and Sunday twice
_WEEKS, _SOME = "\u5468|\u661f\u671f|\u793c\u62dc", rf"\d{{1,3}}|{'|'.join(_COUNTS)}"
_LATIN_SPANS = "|".join(name for name in _SPANS if name.isascii())
_MONTH_NAMES = "|".join(_MONTH_OF)
_OTHERS = (  # compiled when a question needs it, as that takes longer than all else here
    rf"\b(?P<day1>[0-3]?\d)(?:\.|er|o)? ?(?:de )?(?P<month1>{_MONTH_NAMES})\b(?:,? (?:de |del )?(?P<year1>{_YEAR}))?"
    rf"|\b(?P<month2>{_MONTH_NAMES})\b (?:de |del )?(?P<year2>{_YEAR})\b"
    rf"|\b(?P<day3>[0-3]?\d)\.(?P<month3>[01]?\d)\.(?P<year3>{_YEAR})\b"
    rf"|(?P<year4>{_YEAR})\u5e74(?:(?P<month4>[01]?\d)\u6708(?:(?P<day4>[0-3]?\d)[\u65e5\u53f7])?)?"
    rf"|\b(?:im|en|em) (?P<month5>{_MONTH_NAMES})\b|(?P<month6>[01]?\d)\u6708(?P<day6>[0-3]?\d)[\u65e5\u53f7]"
    rf"|\b(?:{'|'.join(_DISTANT)})\b|{'|'.join(_HAN_DISTANT)}"
    rf"|\b(?:vor|il y a|hace|ha) (?P<count1>{_SOME}) (?P<unit1>{_LATIN_SPANS})\b"
    rf"|\b(?P<count2>{_SOME}) (?P<unit2>{_LATIN_SPANS}) fa\b"
    rf"|(?<!\d)(?P<count3>{_SOME})\u4e2a?(?P<unit3>\u5929|{_WEEKS}|\u6708|\u5e74)\u524d"
    rf"|\b(?:letzt|vorig|vergangen)e[nrms]? (?P<last1>{_LATIN_SPANS})\b"
    rf"|\b(?P<last2>{_LATIN_SPANS}) (?:derniere?|passee?|pas+ad[oa]|scors[oa])\b"
    rf"|\u4e0a\u4e2a?(?:{_WEEKS})(?P<han>[{_HAN_DAYS}])|\u4e0a\u4e2a?(?P<last3>{_WEEKS}|\u6708)|(?P<ago>\u53bb)\u5e74"
)
# What is in no question in English, mostly, and in each of the above; it takes a tenth of the time to look for these.
_ENDINGS = ("e", "en", "er", "em", "es")
_TELLING = frozenset(
    [*_MONTH_OF, *_DISTANT, *(stem + end for stem in ("letzt", "vorig", "vergangen") for end in _ENDINGS)]
)
_TELLING |= set(
    "avant hier vor il hace ha fa dernier derniere passe passee pasado pasada passado passada scorso scorsa".split()
)
_SIGN = re.compile(r"\d\.\d|[\u5e74\u6708\u5929\u5468\u661f\u793c]")
_HIER = re.compile(r"(?<!-)\bhier\b")
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


def moments_asked(folded: str, words: Collection[str], *, today: date, language: str = "") -> list[str]:
    """The words of the moments in a folded question that are not written in English, each once.

    ``words`` are its words, and ``language`` is the one that they seem to be in.
    """
    if _TELLING.isdisjoint(words) and _SIGN.search(folded) is None:
        return []
    if language == "french":
        folded = _HIER.sub("ieri", folded)  # which is "here" in German
    told: list[str] = []
    for match in re.finditer(_OTHERS, folded):
        try:
            told += _asked(match[0], {name.rstrip("123456"): it for name, it in match.groupdict().items() if it}, today)
        except (OverflowError, ValueError):  # no such day, or none that a calendar has
            continue
    return list(dict.fromkeys(told))


def _asked(text: str, found: dict[str, str], today: date) -> list[str]:
    if (days := _DISTANT.get(text, _HAN_DISTANT.get(text))) is not None:
        return words_of_day(today + timedelta(days=days))
    if "count" in found:
        count = found["count"]
        return _earlier(today, _SPANS[found["unit"]], int(count) if count.isdecimal() else _COUNTS[count])
    if "ago" in found:
        return _earlier(today, "year", 1)
    if "han" in found:  # of the calendar week before, whatever day it is
        return words_of_day(today - timedelta(days=today.weekday() + 7 - min(_HAN_DAYS.index(found["han"]), 6)))
    if (span := _SPANS.get(found.get("last", ""), "")) in DAYS:
        return words_of_day(today - timedelta(days=(today.weekday() - DAYS.index(span)) % 7 or 7))
    if span:
        return _earlier(today, span, 1)
    if (name := found.get("month")) is None:
        return [f"year{int(found['year'])}"]
    month = int(name) if name.isdecimal() else _MONTH_OF[name]
    exact = date(int(found.get("year", 2000)), month, int(found.get("day", 1)))
    if "year" not in found:
        return [f"month{MONTHS[month - 1]}"]
    return words_of_day(exact) if "day" in found else _month(exact)


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
    """The words of the day, week, month or year that is ``count`` earlier."""
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
