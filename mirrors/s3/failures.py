"""What boto3 raises, as a mirror says it: the only place that knows both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from urllib3.exceptions import HTTPError

from memfiles.errors import MirrorRefused, MirrorUnavailable

# Answers of the kind "you did wrong" (4xx) that pass by themselves.
_PASSING = {"RequestTimeout", "SlowDown", "Throttling", "ThrottlingException", "TooManyRequestsException"}
_PASSING_STATUS = {408, 425, 429}
_CONDITION_STATUS = {409, 412}
_NEVER_STATUS = {501}  # of the kind "I failed" (5xx), the one that says: and always shall
_LONGEST = 200


class NotMet(Exception):
    """The store says that a condition does not hold, or that it cannot tell because others are writing."""


class NoSuchObject(Exception):
    """The store says that there is no such object (and not that there is no such bucket)."""


@contextmanager
def failures(what: str, *, conditional: bool = False) -> Iterator[None]:
    """Raise what goes wrong inside as ``NoSuchObject``, ``MirrorRefused`` or ``MirrorUnavailable``.

    ``conditional``: the request had a condition, so that an answer may be that it is ``NotMet``.
    """
    try:
        yield
    except ClientError as error:
        raise translated(error, what, conditional=conditional) from error
    except (BotoCoreError, HTTPError, OSError) as error:
        raise MirrorUnavailable(f"{what}: {_shown(error)}") from error


def translated(error: ClientError, what: str, *, conditional: bool) -> Exception:
    """The error that says what the store answered."""
    answer: dict[str, Any] = error.response
    status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    code = str(answer.get("Error", {}).get("Code", ""))
    if conditional and status in _CONDITION_STATUS:
        return NotMet(code)
    if code == "NoSuchKey":
        return NoSuchObject(what)
    kind = MirrorUnavailable if _passes(status, code) else MirrorRefused
    return kind(f"{what}: the store answered {status} {_shown(error)}")


def _passes(status: int, code: str) -> bool:
    """Whether the same request may be answered otherwise later. What names no code of S3 does not come from S3."""
    if code in {*_PASSING, "", str(status)} or status in _PASSING_STATUS | _CONDITION_STATUS:
        return True
    return not 300 <= status < 500 and status not in _NEVER_STATUS


def _shown(error: Exception) -> str:
    text = " ".join(str(error).split())
    return "".join(letter if letter.isprintable() else "?" for letter in text[:_LONGEST]) or type(error).__name__
