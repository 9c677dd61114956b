"""Whether an endpoint honours conditions is found out by trying, and decided by evidence alone."""

from __future__ import annotations

import logging

import pytest

from memfiles.errors import MirrorConflict, MirrorRefused, MirrorUnavailable
from memfiles.sync.mirror import ABSENT, equals
from mirrors import S3Mirror
from mirrors.s3.bucket import Bucket
from mirrors.s3.client import make_client
from mirrors.s3.conditions import FRESH_SECONDS, HEADERS, ConditionKind, Probe
from mirrors.s3.location import S3Location
from tests.mirrors.faulty_endpoint import Fault, FaultyEndpoint
from tests.mirrors.servers import BUCKET, client_of

ALL: dict[ConditionKind, bool] = dict.fromkeys(HEADERS, True)
NONE: dict[ConditionKind, bool] = dict.fromkeys(HEADERS, False)


def bucket_at(endpoint: FaultyEndpoint) -> Bucket:
    return Bucket(client_of(endpoint.url), BUCKET)


def verdicts(probe: Probe, *, beside: str = "a.json") -> dict[ConditionKind, bool]:
    return {kind: probe.honours(kind, beside=beside) for kind in HEADERS}


def test_an_endpoint_that_honours_all(endpoint: FaultyEndpoint) -> None:
    """Five requests for a temporary object beside the key, which is gone afterwards."""

    assert ALL == verdicts(Probe(bucket_at(endpoint)), beside="found-out/a.json")
    assert ["PUT", "PUT", "PUT", "DELETE", "DELETE"] == endpoint.methods
    assert all(request.path.startswith(f"/{BUCKET}/found-out/.probe-") for request in endpoint.requests)
    assert [] == client_of(endpoint.upstream).list_objects_v2(Bucket=BUCKET, Prefix="found-out/").get("Contents", [])


def test_an_endpoint_that_ignores_all(endpoint: FaultyEndpoint) -> None:
    """It answers as if it had done what was asked, and the object shows that it has."""
    endpoint.deaf = True

    assert NONE == verdicts(Probe(bucket_at(endpoint)))


@pytest.mark.parametrize("fault", ["unknown", "bad_header"])
def test_an_endpoint_that_does_not_know_the_header(endpoint: FaultyEndpoint, fault: Fault) -> None:
    """It refuses the request with the header, and takes the same request without it."""
    endpoint.script.extend([None, fault])

    assert {**ALL, "absent": False} == verdicts(Probe(bucket_at(endpoint)))


@pytest.mark.parametrize("fault", ["denied", "expired", "page", "swallowed", "conflict", "gone", "slow_down", "moved"])
def test_what_says_nothing_about_conditions(endpoint: FaultyEndpoint, fault: Fault) -> None:
    """A refusal, a proxy's page and an answer without an effect are no verdict: the next call asks again."""
    probe = Probe(bucket_at(endpoint))
    endpoint.script.extend([None, *[fault] * 30])
    with pytest.raises(MirrorUnavailable, match="not known yet whether .* honours If-None-Match: "):
        probe.honours("absent", beside="a.json")
    endpoint.behave()

    assert ALL == verdicts(probe)


def test_a_verdict_is_checked_each_hour(endpoint: FaultyEndpoint) -> None:
    """An endpoint may be replaced; what cannot be asked again keeps its verdict."""
    now = 0.0
    probe = Probe(bucket_at(endpoint), monotonic=lambda: now)
    endpoint.deaf = True
    before = verdicts(probe)
    endpoint.deaf, now = False, FRESH_SECONDS - 1
    unchanged = verdicts(probe)
    endpoint.always, now = "denied", FRESH_SECONDS
    refused = verdicts(probe)
    endpoint.always, now = None, FRESH_SECONDS * 2

    assert [NONE, NONE, NONE, ALL] == [before, unchanged, refused, verdicts(probe)]


def test_who_may_not_delete_may_still_put(endpoint: FaultyEndpoint) -> None:
    """The temporary object is left; its name is one that nobody lists or takes for a record."""
    endpoint.script.extend([None, None, None, "denied", "denied"])
    mirror = S3Mirror(bucket_at(endpoint))

    (unknown,) = mirror.shortcomings("left/a.json")
    assert "not known yet" in unknown and "If-Match on delete" in unknown and "AccessDenied" in unknown
    assert [] == list(mirror.list("left/"))
    mirror.put("left/b.json", b"1", when=ABSENT)


def test_amazon_is_not_asked() -> None:
    """Its endpoints honour all; no request is made, so that none can fail here."""

    assert ALL == verdicts(Probe(Bucket(make_client(S3Location("acme")), "acme")))


def test_a_mirror_finds_out_once(endpoint: FaultyEndpoint) -> None:
    """By its first conditional call, and not again; a failure to find out is asked again."""
    mirror = S3Mirror(bucket_at(endpoint))
    mirror.put("once/a.json", b"0")
    endpoint.script.extend(["denied"])
    with pytest.raises(MirrorRefused):
        mirror.put("once/a.json", b"1", when=ABSENT)
    with pytest.raises(MirrorConflict):
        mirror.put("once/a.json", b"1", when=ABSENT)
    before = len(endpoint.requests)
    mirror.put("once/b.json", b"1", when=ABSENT)

    assert 1 == len(endpoint.requests) - before


def test_a_weak_endpoint_is_worked_around_with_one_warning(
    endpoint: FaultyEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    """Conditions are looked at by reading first; the warning says what can happen."""
    endpoint.deaf = True
    mirror = S3Mirror(bucket_at(endpoint))
    with caplog.at_level(logging.WARNING, "memfiles.mirror"):
        seen = mirror.put("weak/a.json", b"1", when=ABSENT)
        mirror.put("weak/a.json", b"2", when=equals(seen))
        for when in (ABSENT, equals(seen)):
            with pytest.raises(MirrorConflict):
                mirror.put("weak/a.json", b"3", when=when)
            with pytest.raises(MirrorConflict):
                mirror.delete("weak/a.json", when=when)

    (warning,) = caplog.messages
    assert (warning,) == mirror.shortcomings("weak/doctor.json")
    assert "ignores conditional requests (If-None-Match, If-Match, If-Match on delete)" in warning
    assert b"2" == client_of(endpoint.upstream).get_object(Bucket=BUCKET, Key="weak/a.json")["Body"].read()


def test_a_put_to_a_weak_endpoint_is_looked_at(endpoint: FaultyEndpoint) -> None:
    """What is not there after the answer of a success is not acknowledged."""
    endpoint.deaf = True
    mirror = S3Mirror(bucket_at(endpoint))
    mirror.put("weak/b.json", b"1", when=ABSENT)
    endpoint.script.extend([None, "swallowed"])
    with pytest.raises(MirrorUnavailable, match="now holds other bytes"):
        mirror.put("weak/c.json", b"1", when=ABSENT)
