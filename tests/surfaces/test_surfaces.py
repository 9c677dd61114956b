"""One agent's session leaves the same records, byte for byte, whichever surface its calls come through."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.adapters.agents_at_work import Answer
from tests.support.records import files_under
from tests.support.stores import put_by_hand
from tests.surfaces.surfaces import CALLS, SURFACES, Surface

ENTRY_ID = re.compile(r"\b[0-9a-f]{32}\b")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
CALL_ID = re.compile(r',"call":"[^"]*"')
ORDINAL = re.compile(r'"ordinal":\d+')
"""When an entry was saved, in nanoseconds."""


def without_times(text: str) -> str:
    """The text without what no two calls share: times, and the ids of entries and of calls."""
    return CALL_ID.sub("", ENTRY_ID.sub("<id>", TIME.sub("<time>", text)))


def records_under(folder: Path) -> dict[str, str]:
    """Every record and every line of the audit, without times and the ids of calls and entries."""
    kept = files_under(folder / ".memory").items()
    texts = {path: body.decode() for path, body in kept if re.fullmatch(r"[^/]+|entries/[^/]+/[^/]+|audit/[^/]+", path)}
    return {path: ORDINAL.sub("<time>", without_times(text)) for path, text in texts.items()}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Answer], dict[str, str]]:
    """What the library's own call answers and leaves."""
    folder = tmp_path_factory.mktemp("session")
    return SURFACES["session.call"](folder), records_under(folder)


def test_the_session_has_successes_and_errors(expected: tuple[list[Answer], dict[str, str]]) -> None:
    """Of every tool, so that there is something to compare."""
    answers, records = expected
    failed = {name for (name, _), answer in zip(CALLS, answers, strict=True) if answer.is_error}
    done = {name for (name, _), answer in zip(CALLS, answers, strict=True) if not answer.is_error}

    assert (9, 9) == (len(done), len({name for name, _ in CALLS}))
    assert {name for name, _ in CALLS} - {"memory_get", "memory_search", "memory_list"} == failed
    assert (7, 6) == (len(records), len([path for path in records if "audit" not in path]))


@pytest.mark.parametrize("surface", SURFACES.values(), ids=SURFACES)
def test_the_same_calls_leave_the_same_records(
    surface: Surface, expected: tuple[list[Answer], dict[str, str]], tmp_path: Path
) -> None:
    """The same answers, errors marked where the surface has a mark, and the same bytes in the directory."""
    answers, records = expected
    found = surface(tmp_path)

    assert [without_times(answer.text) for answer in answers] == [without_times(answer.text) for answer in found]
    assert [answer.is_error for answer in found] in ([answer.is_error for answer in answers], [None] * len(CALLS))
    assert records == records_under(tmp_path)


def test_a_difference_would_be_seen(expected: tuple[list[Answer], dict[str, str]], tmp_path: Path) -> None:
    """What is masked hides no other content: one call less shows in the records."""
    SURFACES["session.call"](tmp_path)
    body = files_under(tmp_path / ".memory")["u-notes.json"]
    put_by_hand(tmp_path / ".memory", "u-notes.json", body.replace(b"Pro", b"Free"))

    assert expected[1] != records_under(tmp_path)
