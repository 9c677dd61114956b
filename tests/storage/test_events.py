"""Change events: who is told of them, in which order, and that a callback disturbs nobody."""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime

import pytest

from memfiles.storage.events import RecordChanged, Subscribers, utc_now


def test_it_is_now() -> None:
    """The text is the present moment in UTC, to the millisecond, and of one shape."""
    before = datetime.now(UTC)
    texts = [utc_now() for _ in range(1000)]
    after = datetime.now(UTC)

    assert [] == [text for text in texts if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", text)]
    assert sorted(texts) == texts
    assert before.replace(microsecond=before.microsecond // 1000 * 1000) <= datetime.fromisoformat(texts[0])
    assert datetime.fromisoformat(texts[-1]) <= after


ONE = RecordChanged("notes", "notes", 2, "append", "local")


TWO = RecordChanged("notes", "notes", 3, "append", "process")


def test_everyone_is_told_of_every_change_in_order() -> None:
    """In the order in which they subscribed."""
    subscribers, told = Subscribers(), list[tuple[str, int]]()
    subscribers.add(lambda event: told.append(("a", event.revision)))
    subscribers.add(lambda event: told.append(("b", event.revision)))
    subscribers.tell([ONE, TWO])

    assert [("a", 2), ("b", 2), ("a", 3), ("b", 3)] == told


def test_whoever_leaves_is_told_nothing_more() -> None:
    """Leaving twice is leaving once, and takes nobody else along."""
    subscribers, told = Subscribers(), list[str]()
    leave = subscribers.add(lambda event: told.append("a"))
    subscribers.add(lambda event: told.append("b"))
    leave()
    leave()
    subscribers.tell([ONE])

    assert ["b"] == told


def test_the_same_callback_may_subscribe_twice() -> None:
    """Each subscription ends by itself."""
    subscribers, told = Subscribers(), list[RecordChanged]()
    leave = subscribers.add(told.append)
    subscribers.add(told.append)
    subscribers.tell([ONE])
    leave()
    subscribers.tell([TWO])

    assert [ONE, ONE, TWO] == told


def test_a_callback_that_raises_is_logged_and_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """The change has happened; the traceback is kept."""
    subscribers, told = Subscribers(), list[RecordChanged]()

    def fail(event: RecordChanged) -> None:
        raise ZeroDivisionError("in the callback")

    subscribers.add(fail)
    subscribers.add(told.append)
    with caplog.at_level(logging.ERROR, logger="memfiles"):
        subscribers.tell([ONE])

    assert [ONE] == told
    assert "in the callback" in caplog.text


def test_a_callback_may_leave_or_subscribe_while_it_is_told() -> None:
    """Who is told of an event is settled when it is told."""
    subscribers, told = Subscribers(), list[str]()

    def once(event: RecordChanged) -> None:
        told.append("once")
        leave()
        subscribers.add(lambda event: told.append("later"))

    leave = subscribers.add(once)
    subscribers.tell([ONE])
    subscribers.tell([TWO])

    assert ["once", "later"] == told
