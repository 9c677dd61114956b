"""Everything that boto3 raises is said as a mirror says it."""

from __future__ import annotations

import botocore.exceptions
import pytest
import urllib3.exceptions
from botocore.exceptions import BotoCoreError, ClientError

from memfiles.errors import MirrorRefused, MirrorUnavailable
from mirrors.s3.failures import NoSuchObject, NotMet, failures, translated

CAUGHT = (BotoCoreError, ClientError, OSError, urllib3.exceptions.HTTPError)


def answer(status: int, code: str, message: str = "") -> ClientError:
    response = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, "PutObject")


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (412, "PreconditionFailed", NotMet),
        (409, "ConditionalRequestConflict", NotMet),
        (404, "NoSuchKey", NoSuchObject),
        (404, "NoSuchBucket", MirrorRefused),
        (404, "404", MirrorUnavailable),
        (403, "AccessDenied", MirrorRefused),
        (301, "PermanentRedirect", MirrorRefused),
        (400, "InvalidRequest", MirrorRefused),
        (501, "NotImplemented", MirrorRefused),
        (400, "RequestTimeout", MirrorUnavailable),
        (429, "TooManyRequests", MirrorUnavailable),
        (503, "SlowDown", MirrorUnavailable),
        (500, "InternalError", MirrorUnavailable),
        (200, "InternalError", MirrorUnavailable),
    ],
)
def test_what_a_store_answers(status: int, code: str, kind: type[Exception]) -> None:
    """A condition, an absence, a refusal that stays, or one that passes."""

    assert kind is type(translated(answer(status, code), "a.json", conditional=True))


@pytest.mark.parametrize("status", [409, 412])
def test_a_condition_that_nobody_set(status: int) -> None:
    """A request without one is refused by something on the way, and may be made again."""

    assert MirrorUnavailable is type(translated(answer(status, ""), "a.json", conditional=False))


@pytest.mark.parametrize("error", [ConnectionResetError("reset"), urllib3.exceptions.ProtocolError("broken")])
def test_what_the_network_does(error: Exception) -> None:
    """No answer is an unavailable mirror, with the cause attached."""
    with pytest.raises(MirrorUnavailable, match="a.json: ") as caught, failures("a.json"):
        raise error

    assert error is caught.value.__cause__


def test_every_error_of_boto3_is_known() -> None:
    """A new version may bring new kinds: those outside the families that are caught would end a push thread."""
    kinds = [value for value in vars(botocore.exceptions).values() if isinstance(value, type)]
    errors = [kind for kind in kinds if issubclass(kind, Exception) and not issubclass(kind, Warning)]
    uncaught = {kind.__name__ for kind in errors if not issubclass(kind, CAUGHT)}

    assert {"MissingServiceIdError", "UndefinedModelAttributeError"} == uncaught  # of a broken installation


def test_a_message_is_one_printable_line() -> None:
    """Whatever the store put into it."""
    error = translated(answer(403, "AccessDenied", "no\n\x1b[31m" + "x" * 5000), "a.json", conditional=False)

    assert str(error).isprintable()
    assert len(str(error)) < 300
