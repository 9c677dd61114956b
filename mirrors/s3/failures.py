"""boto3's errors as errors of a mirror: the only place that knows both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from urllib3.exceptions import HTTPError

from memfiles.errors import MirrorRefused, MirrorUnavailable
from mirrors.urls import cause_of, redirect_of, shown_answer

# Client errors (4xx) that are transient.
_PASSING = {"RequestTimeout", "SlowDown", "Throttling", "ThrottlingException", "TooManyRequestsException"}
_PASSING_STATUS = {408, 425, 429}
_CONDITION_STATUS = {409, 412}
_NEVER_STATUS = {501}  # "not implemented": the one server error (5xx) that is permanent
_UNKNOWN_HEADER = {"NotImplemented", "InvalidArgument", "InvalidRequest"}  # codes for a header of a condition


class PreconditionFailed(Exception):
    """The condition does not hold (412), or the store cannot tell because of concurrent writes (409)."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class NoSuchObject(Exception):
    """The object does not exist (and not: the bucket does not exist)."""


class ConditionRefused(MirrorRefused):
    """The store refuses a request with a condition, perhaps because it does not know the header."""


@contextmanager
def failures(what: str, *, conditional: bool = False, sent: Callable[[], Sequence[str]] = tuple) -> Iterator[None]:
    """Map boto3's errors to ``NoSuchObject``, ``MirrorRefused`` or ``MirrorUnavailable``.

    ``conditional``: the request has a condition, so the error may also be ``PreconditionFailed``. ``sent`` returns the
    credentials that no message may repeat; an error that does is not kept as the cause either.
    """
    try:
        yield
    except (ClientError, BotoCoreError, HTTPError, OSError) as error:
        told = shown_answer(str(error), sent=sent()) or type(error).__name__
        cause = cause_of(error, sent=sent())
        if isinstance(error, ClientError):
            raise translated(error, f"{what}: the store answered", told=told, conditional=conditional) from cause
        raise MirrorUnavailable(f"{what}: {told}") from cause


def translated(error: ClientError, what: str, *, told: str = "", conditional: bool) -> Exception:
    """The error for the store's answer; ``told`` is its text as it may be shown."""
    answer: dict[str, Any] = error.response
    status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    code = str(answer.get("Error", {}).get("Code", ""))
    if conditional and status in _CONDITION_STATUS:
        return PreconditionFailed(status)
    if code == "NoSuchKey":
        return NoSuchObject(what)
    if 300 <= status < 400:
        return MirrorRefused(f"{what} {status}, {_redirect(answer)}")
    kind = MirrorUnavailable if _passes(status, code) else MirrorRefused
    if conditional and (status in _NEVER_STATUS or code in _UNKNOWN_HEADER):
        kind = ConditionRefused
    return kind(f"{what} {status} {told}")


def _passes(status: int, code: str) -> bool:
    """Whether the same request may succeed later. An answer without an S3 code does not come from S3."""
    if code in {*_PASSING, "", str(status)} or status in _PASSING_STATUS | _CONDITION_STATUS:
        return True
    return not 400 <= status < 500 and status not in _NEVER_STATUS


def _redirect(answer: dict[str, Any]) -> str:
    """What to do about a redirect, which no request follows: the address or the region to name in the URL."""
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    if region := headers.get("x-amz-bucket-region") or answer.get("Error", {}).get("Region"):
        return f"as the bucket is in another region; set region={shown_answer(str(region))} in memory.mirror.url"
    if target := redirect_of(headers.get("location")):
        return f"a redirect; set endpoint={target[0]} in memory.mirror.url"
    return "a redirect that does not say where to; check the endpoint in memory.mirror.url"
