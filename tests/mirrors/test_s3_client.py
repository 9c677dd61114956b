"""The settings of the boto3 client: where it goes, how long it waits, what it leaves out."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from memfiles.errors import MirrorUnavailable
from memfiles.sync.mirror import ANY
from mirrors.s3.bucket import Bucket
from mirrors.s3.client import TRANSFERS, is_aws, make_client, make_session
from mirrors.s3.location import S3Location
from tests.mirrors.faulty_endpoint import FaultyEndpoint
from tests.mirrors.servers import BUCKET

ELSEWHERE = "http://127.0.0.1:9"


def settings(client: Any) -> tuple[object, ...]:
    config = client.meta.config
    style = (config.s3 or {}).get("addressing_style")
    return style, config.request_checksum_calculation, config.response_checksum_validation


def test_it_is_patient_for_seconds() -> None:
    """Connect 3 s, read 15 s, three attempts in the standard mode, a connection for each transfer."""
    config = make_client(S3Location("acme")).meta.config

    assert (3, 15, TRANSFERS) == (config.connect_timeout, config.read_timeout, config.max_pool_connections)
    assert ("standard", 3) == (config.retries["mode"], config.retries["total_max_attempts"])


def test_aws_keeps_its_defaults() -> None:
    """Virtual hosts and checksums."""
    client = make_client(S3Location("acme", region="eu-central-1"))

    assert (None, "when_supported", "when_supported") == settings(client)
    assert "https://s3.eu-central-1.amazonaws.com" == client.meta.endpoint_url


@pytest.mark.parametrize("named_by", ["url", "environment"])
def test_another_endpoint_gets_what_it_understands(named_by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths instead of host names, and no checksums that it may not know."""
    if named_by == "environment":
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", ELSEWHERE)
    client = make_client(S3Location("acme", endpoint=ELSEWHERE if named_by == "url" else None))

    assert ("path", "when_required", "when_required") == settings(client)
    assert ELSEWHERE == client.meta.endpoint_url


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"])
def test_an_endpoint_in_the_url_wins(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment does not send a mirror elsewhere that says where it is."""
    monkeypatch.setenv(variable, ELSEWHERE)
    client = make_client(S3Location("acme", endpoint="http://127.0.0.1:10"))

    assert "http://127.0.0.1:10" == client.meta.endpoint_url


def test_the_region_in_the_url_wins() -> None:
    """Over the one in the environment."""

    assert "eu-north-1" == make_client(S3Location("acme", region="eu-north-1")).meta.region_name


def test_an_unknown_profile_is_an_unavailable_mirror() -> None:
    """The message names it."""
    with pytest.raises(MirrorUnavailable, match="nobody"):
        make_client(S3Location("acme", profile="nobody"))


def test_no_credentials_is_an_unavailable_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    """boto3's chain is the only source, and finding nothing there is no defect of the program."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    bucket = Bucket(make_client(S3Location("acme", endpoint=ELSEWHERE)), "acme")
    with pytest.raises(MirrorUnavailable, match="credentials"):
        bucket.read("a.json")


def test_a_put_is_one_round_trip(endpoint: FaultyEndpoint) -> None:
    """The client does not ask for leave to send a body, and sends the encryption that was asked for."""
    client = make_client(S3Location(BUCKET, endpoint=endpoint.url))
    Bucket(client, BUCKET, sse="AES256").write("client/a.json", b"1", when=ANY)
    (request,) = endpoint.requests

    assert "Expect" not in request.headers
    assert "AES256" == request.headers["x-amz-server-side-encryption"]


@pytest.mark.parametrize(
    ("url", "own"),
    [
        ("https://s3.eu-central-1.amazonaws.com", True),
        ("https://bucket.vpce-1a2b-3c4d.s3.us-east-1.vpce.amazonaws.com", True),
        ("https://s3.cn-north-1.amazonaws.com.cn", True),
        ("https://amazonaws.com.example.org", False),
        ("http://127.0.0.1:9000", False),
    ],
)
def test_which_endpoints_are_amazons(url: str, own: bool) -> None:
    """By the end of the host's name."""

    assert own == is_aws(url)


def test_times_are_read_as_ever(moto_url: str) -> None:
    """Quickly, since a list has one for each object, and as what callers of boto3 expect."""
    location = S3Location(BUCKET, endpoint=moto_url)
    client = make_client(location, session=make_session(location))
    client.put_object(Bucket=BUCKET, Key="times/a.json", Body=b"1")
    (listed,) = client.list_objects_v2(Bucket=BUCKET, Prefix="times/")["Contents"]
    got = client.get_object(Bucket=BUCKET, Key="times/a.json")

    assert timedelta(0) == listed["LastModified"].utcoffset() == got["LastModified"].utcoffset()
    assert abs(listed["LastModified"] - got["LastModified"]) < timedelta(seconds=1)
