"""Dates in a text, as memfiles reads them and as dateparser does: what they find in five languages, and what it costs.

dateparser (BSD-3-Clause) is not a part of memfiles: ``pip install dateparser``. Each sentence names one day, as seen
from a Wednesday, or none.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime

import pytest

from memfiles.index.text.moments import moments_in
from tests.benchmarks.bare import show

SAID = date(2026, 5, 6)
DAYS = ("20260505", "20260501", "20260504", "20260507", "20260303", "20260501", "20260430", "20260429", "", "")
SENTENCES: Mapping[str, Sequence[str]] = {
    "en": (
        *("We met yesterday.", "We met last Friday.", "She called two days ago.", "The trip is tomorrow."),
        *("He left on 3 March 2026.", "It was on May 1, 2026.", "signed 2026-04-30", "seven days ago we moved"),
        *("I may go and sat down for a second.", "We sat in the sun, and he will march on."),
    ),
    "de": (
        *("Wir trafen uns gestern.", "letzten Freitag", "vor zwei Tagen rief sie an", "Morgen fahren wir."),
        *("Er ging am 3. M\u00e4rz 2026.", "am 1. Mai 2026", "unterschrieben 2026-04-30", "vor sieben Tagen"),
        *("Das war am Ende so.", "Sie mag die Art."),
    ),
    "es": (
        *("Nos vimos ayer.", "el viernes pasado", "hace dos d\u00edas llam\u00f3", "El viaje es ma\u00f1ana."),
        *("Se fue el 3 de marzo de 2026.", "el 1 de mayo de 2026", "firmado 2026-04-30", "hace siete d\u00edas"),
        *("Vamos al mar y al sol.", "No hay segundo plato."),
    ),
    "fr": (
        *("Nous nous sommes vus hier.", "vendredi dernier", "il y a deux jours", "Le voyage est demain."),
        *("Il est parti le 3 mars 2026.", "le 1er mai 2026", "sign\u00e9 2026-04-30", "il y a sept jours"),
        *("La mer est calme.", "Un second plat."),
    ),
    "zh": (
        *("\u6211\u4eec\u6628\u5929\u89c1\u9762\u4e86\u3002", "\u4e0a\u5468\u4e94\u6211\u4eec\u53bb\u4e86"),
        *("\u4e24\u5929\u524d\u5979\u6253\u4e86\u7535\u8bdd", "\u660e\u5929\u51fa\u53d1"),
        *("\u4ed62026\u5e743\u67083\u65e5\u79bb\u5f00", "2026\u5e745\u67081\u65e5", "\u7b7e\u4e8e2026-04-30"),
        *("\u4e03\u5929\u524d", "\u6211\u4eec\u5750\u4e0b\u6765\u4e86\u3002", "\u4e00\u8d77\u53bb\u5427\u3002"),
    ),
}  # fmt: skip


def ours(text: str) -> set[str]:
    return {word[3:] for word in moments_in(text, said=SAID) if word.startswith("day")}


def theirs(text: str) -> set[str]:
    search = pytest.importorskip("dateparser.search", reason="pip install dateparser")
    settings = {"RELATIVE_BASE": datetime(SAID.year, SAID.month, SAID.day), "PREFER_DATES_FROM": "past"}
    return {f"{day:%Y%m%d}" for _, day in search.search_dates(text, settings=settings) or ()}


@pytest.mark.parametrize("read", [ours, theirs])
def test_dates(read: Callable[[str], set[str]]) -> None:
    """Days found of the ten sentences of each language, and the time of one."""
    asked = [(text, {day} if day else set()) for texts in SENTENCES.values() for text, day in zip(texts, DAYS)]  # noqa: B905
    right = [read(text) == day for text, day in asked]
    begun = time.process_time()
    for text, _ in asked:
        read(text)
    taken = (time.process_time() - begun) / len(asked)
    for place, language in enumerate(SENTENCES):
        show(f"{read.__name__}, {language}", f"{sum(right[10 * place : 10 * place + 10])} of 10")
    show(f"{read.__name__}, a text", f"{1000 * taken:.3f} ms")


@pytest.mark.parametrize("module", ["memfiles.index.text.moments", "dateparser.search"])
def test_imports(module: str) -> None:
    """The processor time that a fresh interpreter needs to import what reads dates."""
    program = (
        f"import time, re, datetime; begun = time.process_time(); import {module}; print(time.process_time() - begun)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    show(f"import of {module}", f"{1000 * float(ran.stdout):.0f} ms" if ran.stdout else "not installed")
