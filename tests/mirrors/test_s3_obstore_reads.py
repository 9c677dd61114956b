"""Many objects from S3: by obstore and by boto3 the same answers, and obstore is believed only what it proves."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import boto3
import pytest
from botocore.config import Config

from memfiles.errors import MirrorRefused, MirrorUnavailable
from memfiles.sync.mirror import Answer, Stored
from mirrors import S3Mirror
from mirrors.s3.bucket import Bucket, md5_of
from mirrors.s3.client import READ_SECONDS, make_client, make_session
from mirrors.s3.location import S3Location
from mirrors.s3.obstore_reads import ObstoreReads, address_of, make_store
from tests.mirrors.faulty_endpoint import Fault, FaultyEndpoint, Request
from tests.mirrors.servers import BUCKET, client_of

_fresh = itertools.count()
ONCE = Config(read_timeout=5, retries={"mode": "standard", "total_max_attempts": 1})


@pytest.fixture
def key(endpoint: FaultyEndpoint) -> str:
    """The key of an object of 1,000 bytes that this test has for itself."""
    key = f"fast/{next(_fresh)}.json"
    client_of(endpoint.upstream).put_object(Bucket=BUCKET, Key=key, Body=b"1" * 1000)
    return key


def bucket_at(url: str, *, name: str = BUCKET) -> Bucket:
    return Bucket(make_client(S3Location(BUCKET, endpoint=url), config=ONCE), name)


def fast_at(url: str, *, name: str = BUCKET, monotonic: Callable[[], float] = time.monotonic) -> ObstoreReads:
    bucket = bucket_at(url, name=name)
    store = make_store(bucket, _session())
    assert store is not None
    return ObstoreReads(store, bucket, monotonic=monotonic)


def readers_at(url: str, *, name: str = BUCKET) -> list[Callable[[str], Stored | None]]:
    """Obstore and boto3."""
    return [fast_at(url, name=name).read, bucket_at(url, name=name).read]


def agent_of(request: Request) -> str:
    """What made a request."""
    return {name.lower(): value for name, value in request.headers.items()}["user-agent"]


def test_obstore_needs_one_request(endpoint: FaultyEndpoint, key: str) -> None:
    """An object comes with its ETag as the version, which is the proof of its bytes."""
    answer = fast_at(endpoint.url).read(key)

    assert Stored(b"1" * 1000, md5_of(b"1" * 1000)) == answer
    assert ["GET"] == endpoint.methods
    assert "object_store" in agent_of(endpoint.requests[0])


def test_many_are_read_by_obstore(endpoint: FaultyEndpoint, key: str) -> None:
    """As soon as the mirror knows whose credentials to use."""
    location = S3Location(BUCKET, endpoint=endpoint.url)
    session = make_session(location)
    mirror = S3Mirror(Bucket(make_client(location, session=session), BUCKET), session=session)
    answers = list(mirror.get_many([key]))

    assert [(key, Stored(b"1" * 1000, md5_of(b"1" * 1000)))] == answers
    assert "object_store" in agent_of(endpoint.requests[0])


def test_without_it_boto3_reads_them(endpoint: FaultyEndpoint, key: str) -> None:
    """The same answers, more slowly."""
    answers = list(S3Mirror(bucket_at(endpoint.url)).get_many([key, "fast/none.json"]))

    assert {key: Stored(b"1" * 1000, md5_of(b"1" * 1000)), "fast/none.json": None} == dict(answers)


def test_what_is_not_there_is_none(endpoint: FaultyEndpoint) -> None:
    """Said by both."""

    assert [None, None] == [read("fast/none.json") for read in readers_at(endpoint.url)]


def test_no_such_bucket_is_a_refusal(endpoint: FaultyEndpoint) -> None:
    """Not taken for an absent object, though both are a 404."""
    for read in readers_at(endpoint.url, name="no-such-bucket"):
        with pytest.raises(MirrorRefused, match="NoSuchBucket"):
            read("a.json")


def test_no_access_is_a_refusal(endpoint: FaultyEndpoint, key: str) -> None:
    """By name, and for each key."""
    endpoint.faults, endpoint.rate = ["denied"], 1.0
    for read in readers_at(endpoint.url):
        with pytest.raises(MirrorRefused, match="403"):
            read(key)


@pytest.mark.parametrize("faults", [["truncated"], ["no_etag"], ["page"], ["reset"], ["slow_down"], ["huge"]])
def test_an_answer_that_cannot_be_right_is_asked_again(
    endpoint: FaultyEndpoint, key: str, faults: Sequence[Fault]
) -> None:
    """Through boto3; and there it is."""
    endpoint.script.extend(faults)

    assert b"1" * 1000 == (fast_at(endpoint.url).read(key) or pytest.fail()).body


@pytest.mark.parametrize("fault", ["truncated", "no_etag", "page", "reset", "slow_down"])
def test_a_store_whose_answers_are_never_right_is_unavailable(endpoint: FaultyEndpoint, key: str, fault: Fault) -> None:
    """For both."""
    endpoint.faults, endpoint.rate = [fault], 1.0
    for read in readers_at(endpoint.url):
        with pytest.raises(MirrorUnavailable):
            read(key)


def test_a_body_beyond_the_limit_is_refused(endpoint: FaultyEndpoint, key: str) -> None:
    """Its length alone refuses it."""
    endpoint.faults, endpoint.rate = ["huge"], 1.0
    for read in readers_at(endpoint.url):
        with pytest.raises(MirrorRefused, match="has 70000000000 bytes"):
            read(key)


def test_a_body_beyond_the_limit_is_not_begun(endpoint: FaultyEndpoint, key: str) -> None:
    """Obstore would set aside the memory that the header asks for, and abort the process where there is none."""
    endpoint.script.extend(["endless"])
    began = time.monotonic()

    assert b"1" * 1000 == (fast_at(endpoint.url).read(key) or pytest.fail()).body
    assert time.monotonic() - began < 50  # what comes of it takes 100 s


def test_a_damaged_body_is_read_again(endpoint: FaultyEndpoint, key: str) -> None:
    """An ETag that could be the body's MD5 and is not raises a doubt, which a second look settles."""
    endpoint.script.extend(["damaged"])

    assert b"1" * 1000 == (fast_at(endpoint.url).read(key) or pytest.fail()).body


def test_another_way_to_make_etags_is_accepted(endpoint: FaultyEndpoint, key: str) -> None:
    """The same body under the same odd ETag twice is how this store makes them."""
    endpoint.faults, endpoint.rate = ["other_etag"], 1.0

    assert "0" * 31 + "1" == (fast_at(endpoint.url).read(key) or pytest.fail()).version
    assert ["GET", "GET"] == endpoint.methods


def test_who_waited_long_is_not_asked_again(endpoint: FaultyEndpoint, key: str) -> None:
    """A store that was waited for in vain is unavailable; boto3 would wait as long once more."""
    ticks = itertools.count(step=16)
    endpoint.script.extend(["reset"])
    with pytest.raises(MirrorUnavailable, match=key):
        fast_at(endpoint.url, monotonic=lambda: float(next(ticks))).read(key)

    assert ["GET"] == endpoint.methods


def test_an_obstore_that_gets_nothing_is_given_up(endpoint: FaultyEndpoint, key: str) -> None:
    """Where only boto3 gets through (its proxy, its certificates), obstore is not tried for each of thousands."""
    bucket = bucket_at(endpoint.url)
    nowhere = make_store(Bucket(make_client(S3Location(BUCKET, endpoint="http://127.0.0.1:9")), BUCKET), _session())
    assert nowhere is not None
    reads = ObstoreReads(nowhere, bucket)
    answers: list[Answer] = [reads.read(key) for _ in range(9)]

    assert [Stored(b"1" * 1000, md5_of(b"1" * 1000))] * 9 == answers
    assert reads.has_given_up


def test_what_is_absent_is_no_reason_to_give_up(endpoint: FaultyEndpoint) -> None:
    """A 404 is an answer."""
    reads = fast_at(endpoint.url)
    for _ in range(20):
        reads.read("fast/none.json")

    assert not reads.has_given_up


@pytest.mark.parametrize(
    ("endpoint_url", "bucket", "expected"),
    [
        ("http://127.0.0.1:9000", "acme", ("http://127.0.0.1:9000", False)),
        ("https://s3.eu-central-1.amazonaws.com", "acme", ("https://acme.s3.eu-central-1.amazonaws.com", True)),
        ("https://s3.amazonaws.com", "acme.agents", ("https://s3.amazonaws.com", False)),
    ],
)
def test_where_a_bucket_is(endpoint_url: str, bucket: str, expected: tuple[str, bool]) -> None:
    """In the host name at Amazon's, as boto3 has it; in the path elsewhere and where no certificate would fit."""

    assert expected == address_of(endpoint_url, bucket)


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"])
def test_the_environment_sends_it_nowhere_else(
    endpoint: FaultyEndpoint, key: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks whom boto3 asks."""
    bucket = bucket_at(endpoint.url)
    for name, value in {variable: "http://127.0.0.1:9", "AWS_SKIP_SIGNATURE": "true", "AWS_BUCKET": "other"}.items():
        monkeypatch.setenv(name, value)
    store = make_store(bucket, _session())
    assert store is not None
    ObstoreReads(store, bucket).read(key)

    (request,) = endpoint.requests
    assert "object_store" in agent_of(request)
    assert "authorization" in {name.lower() for name in request.headers}


def test_without_credentials_there_is_no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """boto3 says what is missing."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")

    assert make_store(bucket_at("http://127.0.0.1:9"), _session()) is None
    ((_, answer),) = S3Mirror(bucket_at("http://127.0.0.1:9"), session=_session()).get_many(["a.json"])
    assert isinstance(answer, MirrorUnavailable) and "credentials" in str(answer)


HANGING = """
import sys
from memfiles.sync.mirror import get_many
from mirrors.s3.opening import open_url
answers = get_many(open_url(sys.argv[1]), [sys.argv[2], "hang.json"])
print(next(answers)[0], flush=True)
"""


def test_a_store_that_hangs_does_not_keep_the_process(endpoint: FaultyEndpoint, key: str) -> None:
    """Whoever is still waiting in obstore or boto3 when the program ends."""
    endpoint.hang_seconds = 60.0
    endpoint.hanging = "hang.json"
    url = f"s3://{BUCKET}?endpoint={endpoint.url}&region=us-east-1"
    command = [sys.executable, "-c", HANGING, url, key]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout is not None
        answered = process.stdout.readline()
        process.wait(READ_SECONDS * 0.8)  # from now on, not from its start

    assert (f"{key}\n", 0) == (answered, process.returncode)


def _session() -> Any:
    return boto3.session.Session()
