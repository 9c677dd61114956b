"""boto3's errors as errors of a mirror: the only place that knows both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from urllib3.exceptions import HTTPError

from memfiles.errors import MirrorRefused, MirrorUnavailable

# Client errors (4xx) that are transient.
_PASSING = {"RequestTimeout", "SlowDown", "Throttling", "ThrottlingException", "TooManyRequestsException"}
_PASSING_STATUS = {408, 425, 429}
_CONDITION_STATUS = {409, 412}
_NEVER_STATUS = {501}  # "not implemented": the one server error (5xx) that is permanent
_LONGEST = 200


class NotMet(Exception):
    """The condition does not hold, or the store cannot tell because of concurrent writes."""


class NoSuchObject(Exception):
    """The object does not exist (and not: the bucket does not exist)."""


@contextmanager
def failures(what: str, *, conditional: bool = False) -> Iterator[None]:
    """Map boto3's errors to ``NoSuchObject``, ``MirrorRefused`` or ``MirrorUnavailable``.

    ``conditional``: the request has a condition, so the error may also be ``NotMet``.
    """
    try:
        yield
    except ClientError as error:
        raise translated(error, what, conditional=conditional) from error
    except (BotoCoreError, HTTPError, OSError) as error:
        raise MirrorUnavailable(f"{what}: {_shown(error)}") from error


def translated(error: ClientError, what: str, *, conditional: bool) -> Exception:
    """The error for the store's answer."""
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
    """Whether the same request may succeed later. An answer without an S3 code does not come from S3."""
    if code in {*_PASSING, "", str(status)} or status in _PASSING_STATUS | _CONDITION_STATUS:
        return True
    return not 300 <= status < 500 and status not in _NEVER_STATUS


def _shown(error: Exception) -> str:
    text = " ".join(str(error).split())
    return "".join(letter if letter.isprintable() else "?" for letter in text[:_LONGEST]) or type(error).__name__
