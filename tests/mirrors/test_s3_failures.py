"""Everything that boto3 raises is said as a mirror says it."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable

import botocore.exceptions
import pytest
import urllib3.exceptions
from botocore.exceptions import BotoCoreError, ClientError

from memfiles.errors import MirrorRefused, MirrorUnavailable
from memfiles.sync.mirror import ABSENT, Mirror, shortcomings_of
from mirrors.s3.failures import ConditionRefused, NoSuchObject, PreconditionFailed, failures, translated
from mirrors.s3.location import S3Location
from mirrors.s3.mirror import connect
from tests.mirrors.faulty_endpoint import Fault, FaultyEndpoint
from tests.mirrors.servers import ACCESS_KEY, BUCKET

CAUGHT = (BotoCoreError, ClientError, OSError, urllib3.exceptions.HTTPError)


def answer(status: int, code: str, message: str = "") -> ClientError:
    response = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, "PutObject")


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (412, "PreconditionFailed", PreconditionFailed),
        (409, "ConditionalRequestConflict", PreconditionFailed),
        (404, "NoSuchKey", NoSuchObject),
        (404, "NoSuchBucket", MirrorRefused),
        (404, "404", MirrorUnavailable),
        (403, "AccessDenied", MirrorRefused),
        (301, "PermanentRedirect", MirrorRefused),
        (400, "InvalidRequest", ConditionRefused),
        (501, "NotImplemented", ConditionRefused),
        (307, "307", MirrorRefused),
        (400, "ExpiredToken", MirrorRefused),
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
    with pytest.raises(MirrorRefused) as caught, failures("a.json"):
        raise answer(403, "AccessDenied", "no\n\x1b[31m" + "x" * 5000)

    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("fault", ["moved", "moved_for_now"])
@pytest.mark.parametrize("call", ["list", "get", "put", "put_if", "delete", "shortcomings"])
def test_a_redirect_is_refused_with_the_address_to_use(endpoint: FaultyEndpoint, fault: Fault, call: str) -> None:
    """One error with what to write into the URL; boto3 would ask for the region without an end."""
    endpoint.always, endpoint.elsewhere = fault, "https://user:pass@elsewhere.example:9443"
    mirror = connect(S3Location(BUCKET, endpoint=endpoint.url, region="us-east-1"))
    with pytest.raises(MirrorRefused) as caught:
        _CALLS[call](mirror)

    assert "set endpoint=https://elsewhere.example:9443 in memory.mirror.url" in str(caught.value)
    assert len(endpoint.requests) <= 2


@pytest.mark.parametrize("fault", ["echo", "echo_status"])
def test_a_credential_that_comes_back(
    endpoint: FaultyEndpoint, fault: Fault, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No part of what a client sent as a credential is in an error or its causes, nor in the log."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", "IQoJb3JpZ2luX2VjEAoaCXVzLWVhc3QtMSJHMEUCIQ")
    mirror = connect(S3Location(BUCKET, endpoint=endpoint.url, region="us-east-1"))
    endpoint.always = fault
    for call in _CALLS.values():
        with pytest.raises(MirrorUnavailable) as caught:
            call(mirror)
        told = "".join(traceback.format_exception(caught.value)) + caplog.text
        for request in endpoint.requests:
            headers = {name.lower(): value for name, value in request.headers.items()}
            (signature,) = re.findall("Signature=([0-9a-f]{64})", headers["authorization"])
            for credential in (ACCESS_KEY, headers["x-amz-security-token"], signature):
                assert not [part for part in _parts(credential) if part in told]


_CALLS: dict[str, Callable[[Mirror], object]] = {
    "list": lambda mirror: list(mirror.list()),
    "get": lambda mirror: mirror.get("a.json"),
    "put": lambda mirror: mirror.put("a.json", b"1"),
    "put_if": lambda mirror: mirror.put("a.json", b"1", when=ABSENT),
    "delete": lambda mirror: mirror.delete("a.json"),
    "shortcomings": lambda mirror: shortcomings_of(mirror, "a.json"),
}


def _parts(credential: str) -> list[str]:
    return [credential[start : start + 8] for start in range(len(credential) - 7)]
