"""Calls of the tools for entries that must succeed."""

from __future__ import annotations

import json
from typing import Any

from memfiles.tools.session import Session


def done(session: Session, tool: str, arguments: object = None, **call: Any) -> dict[str, Any]:
    """The data of a call that must succeed, and must be its text."""
    result = session.call(tool, arguments, **call)
    assert (False, None) == (result.is_error, result.code), result.text
    assert result.data is not None
    assert json.dumps(result.data, ensure_ascii=False, separators=(",", ":")) == result.text
    return result.data


def save(session: Session, key: str = "plan", content: str = "Ada is on Pro", **said: Any) -> dict[str, Any]:
    return done(session, "memory_save", {"key": key, "content": content, **said})
