"""The wall clock writes what a calendar says."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from memfiles.storage.events import utc_now


def test_it_is_now() -> None:
    """The text is the present moment in UTC, to the millisecond, and of one shape."""
    before = datetime.now(UTC)
    texts = [utc_now() for _ in range(1000)]
    after = datetime.now(UTC)

    assert [] == [text for text in texts if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", text)]
    assert sorted(texts) == texts
    assert before.replace(microsecond=before.microsecond // 1000 * 1000) <= datetime.fromisoformat(texts[0])
    assert datetime.fromisoformat(texts[-1]) <= after
