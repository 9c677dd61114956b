"""S3Mirror when answers are lost, late, odd or wrong: nothing is overwritten, and nothing unproven is believed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import cache

import pytest
from botocore.config import Config
from msgspec.structs import astuple

from memfiles.errors import CopyRefused, MirrorConflict, MirrorRefused, MirrorUnavailable
from memfiles.sync.mirror import ABSENT, BODY_MAX_BYTES, Mirror, equals
from mirrors import PrefixedMirror, S3Mirror
from mirrors.s3.bucket import Bucket, md5_of
from mirrors.s3.client import make_client
from mirrors.s3.location import S3Location
from mirrors.testing import Place, Question, questions
from tests.mirrors.faulty_endpoint import Fault, FaultyEndpoint
from tests.mirrors.repeating import RepeatingMirror
from tests.mirrors.servers import BUCKET, client_of

_fresh = itertools.count()


@cache
def bucket_at(url: str, *, attempts: int = 1, read_timeout: float = 5) -> Bucket:
    retries = {"mode": "standard", "total_max_attempts": attempts}
    client = make_client(S3Location(BUCKET, endpoint=url), config=Config(read_timeout=read_timeout, retries=retries))
    return Bucket(client, BUCKET)


def mirror_at(endpoint: FaultyEndpoint, prefix: str, *, attempts: int = 1) -> Mirror:
    """A mirror that knows its endpoint already: the next requests are those of the next call."""
    mirror = PrefixedMirror(S3Mirror(bucket_at(endpoint.url, attempts=attempts)), prefix)
    mirror.put("known.json", b"1", when=ABSENT)
    endpoint.requests.clear()
    return mirror


@pytest.fixture
def prefix() -> str:
    """A part of the bucket for one test."""
    return f"mirror/{next(_fresh)}"


@pytest.fixture
def mirror(endpoint: FaultyEndpoint, prefix: str) -> Iterator[Mirror]:
    """A mirror behind the endpoint that asks each thing once."""
    yield mirror_at(endpoint, prefix)


def test_a_put_and_a_get_are_one_request_each(endpoint: FaultyEndpoint, mirror: Mirror) -> None:
    """Also a conditional put: its answer carries the proof."""
    version = mirror.put("a.json", b"1", when=ABSENT)
    mirror.put("a.json", b"2", when=equals(version))
    mirror.get("a.json")

    assert ["PUT", "PUT", "GET"] == endpoint.methods


@pytest.mark.parametrize("fault", ["lost", "precondition"])
def test_a_put_whose_answer_was_lost(endpoint: FaultyEndpoint, prefix: str, fault: Fault) -> None:
    """The repetition meets a 412, which is our own success: read, compared, acknowledged."""
    mirror = mirror_at(endpoint, prefix, attempts=3)
    seen = mirror.put("a.json", b"1", when=ABSENT)
    endpoint.script.extend([fault])

    assert md5_of(b"2") == mirror.put("a.json", b"2", when=equals(seen))


@pytest.mark.parametrize("fault", ["refused", "conflict"])
def test_a_refusal_without_a_reason(endpoint: FaultyEndpoint, mirror: Mirror, fault: Fault) -> None:
    """A look shows that the condition holds, so the put is made again."""
    endpoint.script.extend([fault])
    mirror.put("a.json", b"1", when=ABSENT)

    assert ["PUT", "GET", "PUT"] == endpoint.methods


def test_a_refusal_that_does_not_end(endpoint: FaultyEndpoint, mirror: Mirror) -> None:
    """The store contradicts itself, which is no conflict."""
    refused_then_looked_at: list[Fault | None] = ["refused", None]
    endpoint.script.extend(refused_then_looked_at * 4)
    with pytest.raises(MirrorUnavailable, match="refused a change 4 times"):
        mirror.put("a.json", b"1", when=ABSENT)


def test_a_delete_whose_answer_was_lost(endpoint: FaultyEndpoint, mirror: Mirror) -> None:
    """A 412 for what is gone by now is our own success."""
    seen = mirror.put("a.json", b"1")
    endpoint.script.extend(["precondition"])
    mirror.delete("a.json", when=equals(seen))

    assert mirror.get("a.json") is None


def test_a_conflict_is_one(endpoint: FaultyEndpoint, mirror: Mirror, prefix: str) -> None:
    """Someone else's bytes are there, and stay."""
    seen = mirror.put("a.json", b"1")
    client_of(endpoint.upstream).put_object(Bucket=BUCKET, Key=f"{prefix}/a.json", Body=b"theirs")
    with pytest.raises(MirrorConflict, match="read it again and retry"):
        mirror.put("a.json", b"2", when=equals(seen))
    with pytest.raises(MirrorConflict):
        mirror.delete("a.json", when=equals(seen))

    assert b"theirs" == (mirror.get("a.json") or pytest.fail()).body


def test_an_object_that_is_too_large_is_refused_at_its_version(
    endpoint: FaultyEndpoint, mirror: Mirror, prefix: str
) -> None:
    """That of a listing, so that it is named until it is replaced."""
    body = bytes(BODY_MAX_BYTES + 1)
    client_of(endpoint.upstream).put_object(Bucket=BUCKET, Key=f"{prefix}/a.json", Body=body)
    with pytest.raises(CopyRefused, match="a.json has 67108865 bytes") as refused:
        mirror.get("a.json")

    assert dict(mirror.list())["a.json"] == refused.value.version


@pytest.mark.parametrize("fault", ["no_etag", "other_etag"])
def test_an_answer_that_proves_nothing(endpoint: FaultyEndpoint, mirror: Mirror, fault: Fault) -> None:
    """A put whose ETag is not that of its body is looked at before its version is believed."""
    endpoint.script.extend([fault])

    assert md5_of(b"1") == mirror.put("a.json", b"1", when=ABSENT)
    assert ["PUT", "GET"] == endpoint.methods


def test_a_success_that_was_none(endpoint: FaultyEndpoint, mirror: Mirror) -> None:
    """A 200 from something that is not the store is found out."""
    endpoint.script.extend(["swallowed"])
    with pytest.raises(MirrorUnavailable, match="now holds other bytes"):
        mirror.put("a.json", b"1", when=ABSENT)


def test_an_object_without_a_version_is_asked_for_again(endpoint: FaultyEndpoint, mirror: Mirror) -> None:
    """A store that leaves the ETag out while another request writes the object gives it the next time."""
    version = mirror.put("a.json", b"1")
    endpoint.requests.clear()
    endpoint.script.extend(["no_etag"])

    assert (b"1", version) == astuple(mirror.get("a.json") or pytest.fail())
    assert ["GET", "GET"] == endpoint.methods


def test_an_object_listed_without_a_version_is_looked_at(endpoint: FaultyEndpoint, mirror: Mirror) -> None:
    """One that is being written is in the list, with the version that a get gives it."""
    version = mirror.put("a.json", b"1")
    endpoint.requests.clear()
    endpoint.script.extend(["no_etag"])

    assert [("a.json", version), ("known.json", md5_of(b"1"))] == list(mirror.list())
    assert ["GET", "GET", "GET"] == endpoint.methods


def test_an_object_that_went_while_it_was_listed(endpoint: FaultyEndpoint, mirror: Mirror) -> None:
    """It had no version in the list, and is not there when it is looked at."""
    endpoint.script.extend(["no_etag", "gone"])

    assert [] == list(mirror.list())


def test_a_damaged_body_is_read_again(endpoint: FaultyEndpoint, mirror: Mirror) -> None:
    """An ETag that could be the body's MD5 and is not raises a doubt, which a second look settles."""
    mirror.put("a.json", b"12345")
    endpoint.script.extend(["damaged"])

    assert b"12345" == (mirror.get("a.json") or pytest.fail()).body


def test_another_way_to_make_etags_is_accepted(endpoint: FaultyEndpoint, mirror: Mirror) -> None:
    """The same body under the same odd ETag twice is how this store makes them."""
    mirror.put("a.json", b"1")
    endpoint.script.extend(["other_etag", "other_etag"])

    assert "00000000000000000000000000000001" == (mirror.get("a.json") or pytest.fail()).version


@pytest.mark.parametrize("faults", [["truncated"], ["no_etag"] * 2, ["page"] * 2, ["reset"], ["damaged", "other_etag"]])
def test_an_answer_that_cannot_be_right(endpoint: FaultyEndpoint, mirror: Mirror, faults: Sequence[Fault]) -> None:
    """Half a body, a body without a version, a page of a proxy, silence: an unavailable mirror."""
    mirror.put("a.json", b"1" * 1000)
    endpoint.script.extend(faults)
    with pytest.raises(MirrorUnavailable):
        mirror.get("a.json")


def test_a_store_that_hangs(endpoint: FaultyEndpoint, prefix: str) -> None:
    """The wait is bounded, and then the mirror is unavailable."""
    endpoint.script.extend(["hang"])
    with pytest.raises(MirrorUnavailable, match="Read timeout"):
        bucket_at(endpoint.url, read_timeout=0.2).read(f"{prefix}/a.json")


def test_a_body_that_trickles_in_is_given_up(endpoint: FaultyEndpoint, prefix: str) -> None:
    """The deadline is for the whole body, and does not wait for a packet that completes a block."""
    ticks = itertools.count(step=25)
    bucket = Bucket(client_of(endpoint.url), BUCKET, monotonic=lambda: float(next(ticks)))
    S3Mirror(bucket).put(f"{prefix}/a.json", b"1" * 500)
    endpoint.script.extend(["trickle"])
    with pytest.raises(MirrorUnavailable, match=r"incomplete after 60 s \(3 bytes\)"):
        bucket.read(f"{prefix}/a.json")


def test_a_body_beyond_the_limit_is_not_read(endpoint: FaultyEndpoint, mirror: Mirror) -> None:
    """Its length alone refuses it."""
    endpoint.script.extend(["huge"])
    with pytest.raises(MirrorRefused, match="has 70000000000 bytes"):
        mirror.get("a.json")


@pytest.mark.parametrize("fault", ["page", "truncated", "slow_down"])
def test_a_list_that_cannot_be_right(endpoint: FaultyEndpoint, mirror: Mirror, fault: Fault) -> None:
    """It is no empty list: that would be taken for an emptied bucket."""
    endpoint.script.extend([fault])
    with pytest.raises(MirrorUnavailable):
        list(mirror.list())


def test_a_refusal_stays_one(endpoint: FaultyEndpoint, mirror: Mirror) -> None:
    """No access, no bucket: said so, and not asked again."""
    endpoint.script.extend(["denied"])
    with pytest.raises(MirrorRefused, match="403"):
        mirror.get("a.json")
    nowhere = S3Mirror(Bucket(client_of(endpoint.url), "no-such-bucket"))
    for call in (lambda: nowhere.get("a.json"), lambda: nowhere.put("a.json", b"1"), lambda: list(nowhere.list())):
        with pytest.raises(MirrorRefused, match="NoSuchBucket"):
            call()


def test_nobody_listens() -> None:
    """A closed port is an unavailable mirror."""
    with pytest.raises(MirrorUnavailable, match="127.0.0.1:9"):
        S3Mirror(bucket_at("http://127.0.0.1:9")).get("a.json")


def test_keys_of_others_are_not_listed(endpoint: FaultyEndpoint, mirror: Mirror, prefix: str) -> None:
    """Markers of folders and names that no mirror makes are not ours."""
    for key in ("folder/", "a//b.json", ".left.json.tmp", ".state/locks/1", "ours.json"):
        client_of(endpoint.upstream).put_object(Bucket=BUCKET, Key=f"{prefix}/{key}", Body=b"1")

    assert ["known.json", "ours.json"] == [key for key, _ in mirror.list()]


LONG = {"a_big_body_comes_back_whole", "more_keys_than_a_page_holds_are_listed"}  # asked of S3 in test_exam


@pytest.mark.parametrize("question", [each for each in questions(without={"bytes"}) if str(each) not in LONG], ids=str)
def test_the_exam_while_a_third_of_all_requests_fail(question: Question, endpoint: FaultyEndpoint, prefix: str) -> None:
    """Timeouts, 503, resets, 409, 412 true and false, truncated bodies: asked again, every promise is kept."""
    endpoint.hang_seconds = 0.35
    handles = [S3Mirror(bucket_at(endpoint.url, read_timeout=0.3)) for _ in range(2)]
    opened = itertools.cycle([RepeatingMirror(PrefixedMirror(handle, prefix)) for handle in handles])
    endpoint.rate = 1 / 3
    question(Place(lambda: next(opened)))
