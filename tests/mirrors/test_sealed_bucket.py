"""Signing a bucket and replacing its key: nothing is lost, nothing is slipped in, and it may be stopped anywhere."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable
from typing import TypeVar

import pytest

from memfiles.errors import MirrorUnavailable
from memfiles.sync.mirror import ANY, Condition, Mirror, Stored
from mirrors import FaultyMirror, MemoryMirror, MirrorKeys
from mirrors.faulty import HONEST
from mirrors.s3.location import S3Location
from mirrors.s3.mirror import connect
from mirrors.sealed.bucket import Sealer, SealReport, in_bulk
from mirrors.sealed.envelope import is_sealed
from tests.mirrors.repeating import RepeatingMirror
from tests.mirrors.servers import BUCKET

pytestmark = pytest.mark.slow

NEW, OLD = secrets.token_hex(32), secrets.token_hex(32)
KEYS, BY_OLD = MirrorKeys.parse(f"{NEW},{OLD}", source="the test"), MirrorKeys.parse(OLD, source="the test")
BODIES = {f"entries/desk/{number}.json": b"body %d" % number for number in range(20)} | {"notes.json": b"notes"}
_fresh = itertools.count()
T = TypeVar("T")


class Killed(BaseException):
    """The process ends here."""


class KilledMirror:
    """Passes calls on, and ends the process at one of its puts or deletes, before or after it happens."""

    def __init__(self, inner: Mirror, *, at: int, happens: bool) -> None:
        self._inner = inner
        self._left = at
        self._happens = happens
        self.list, self.get = inner.list, inner.get

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        """See ``Mirror.put``."""
        return self._counted(lambda: self._inner.put(key, body, when=when))

    def delete(self, key: str, *, when: Condition = ANY) -> None:
        """See ``Mirror.delete``."""
        self._counted(lambda: self._inner.delete(key, when=when))

    def _counted(self, call: Callable[[], T]) -> T:
        self._left -= 1
        if self._left < 0:
            if self._happens:
                call()
            raise Killed
        return call()


def sealing(mirror: Mirror, *, keys: MirrorKeys = KEYS, encrypt: bool = False, trusted: object = True) -> Sealer:
    """Signs everything, or with ``trusted`` only those bodies."""

    def is_trusted(key: str, body: bytes) -> bool:
        return trusted is True or (isinstance(trusted, dict) and trusted.get(key) == body)

    return Sealer(mirror, keys, encrypt=encrypt, is_trusted=is_trusted)


def filled(mirror: Mirror, *, keys: MirrorKeys | None = None) -> Mirror:
    """The mirror with all bodies, sealed if keys are given."""
    for key, body in BODIES.items():
        mirror.put(key, keys.seal(key, body, encrypt=False) if keys else body)
    return mirror


def opened(mirror: Mirror, keys: MirrorKeys = KEYS) -> dict[str, bytes]:
    """Every body, opened; an object that is not sealed is an error."""
    return {key: keys.open(key, stored.body) for key, _ in mirror.list() if (stored := mirror.get(key))}


@pytest.fixture(params=["memory", "s3"])
def bucket(request: pytest.FixtureRequest) -> Mirror:
    """An empty store."""
    if request.param == "memory":
        return MemoryMirror()
    url = request.getfixturevalue("moto_url")
    return connect(S3Location(BUCKET, f"sealing/{next(_fresh)}", endpoint=url, region="us-east-1"))


@pytest.mark.parametrize("encrypt", [False, True])
def test_an_unsigned_bucket_is_signed(bucket: Mirror, encrypt: bool) -> None:
    """Every record, and no body changes; the second time there is nothing to do."""
    filled(bucket)
    seen: list[tuple[int, int]] = []
    first = sealing(bucket, encrypt=encrypt).run(progress=lambda *at: seen.append(at))
    versions = dict(bucket.list())
    second = sealing(bucket, encrypt=encrypt).run()

    assert SealReport(signed=len(BODIES)) == first
    assert (SealReport(current=len(BODIES)), versions) == (second, dict(bucket.list()))
    assert BODIES == opened(bucket)
    assert [(number, len(BODIES)) for number in range(1, len(BODIES) + 1)] == seen


def test_a_key_is_replaced(bucket: Mirror) -> None:
    """Afterwards the new key alone opens everything, and what was only signed is encrypted if that is asked for."""
    filled(bucket, keys=BY_OLD)
    report = sealing(bucket, encrypt=True, trusted={}).run()

    assert SealReport(resealed=len(BODIES)) == report
    assert BODIES == opened(bucket, MirrorKeys.parse(NEW, source="x"))
    assert not any(b"body" in stored.body for key in BODIES if (stored := bucket.get(key)))


def test_what_does_not_verify_stays_and_is_named(bucket: Mirror) -> None:
    """Altered, moved, or slipped in without a signature: the others go on."""
    filled(bucket, keys=BY_OLD)
    planted = {
        "notes.json": bucket.get("entries/desk/1.json").body,  # type: ignore[union-attr]
        "entries/desk/2.json": bucket.get("entries/desk/2.json").body[:-1] + b"9",  # type: ignore[union-attr]
        "entries/desk/3.json": b"planted",
        "slipped-in.json": b"planted",
    }
    for key, body in planted.items():
        bucket.put(key, body)
    report = sealing(bucket, trusted={}).run()

    assert sorted(planted) == sorted(report.refused)
    assert "--accept-unsigned" in report.refused["slipped-in.json"]
    assert len(BODIES) - 3 == report.resealed
    assert planted == {key: stored.body for key in planted if (stored := bucket.get(key))}


def test_what_is_known_to_be_genuine_is_signed(bucket: Mirror) -> None:
    """A machine without the key put it there; the machine that signs has the same bytes."""
    filled(bucket, keys=KEYS)
    bucket.put("notes.json", b"notes")
    bucket.put("other.json", b"other")
    report = sealing(bucket, trusted={"notes.json": b"notes", "other.json": b"not this"}).run()

    assert (1, ["other.json"]) == (report.signed, list(report.refused))
    assert KEYS.open("notes.json", bucket.get("notes.json").body) == b"notes"  # type: ignore[union-attr]


def test_a_signed_bucket_is_known_by_one_object(bucket: Mirror) -> None:
    """Then an object without a signature may have been slipped in."""
    filled(bucket)
    before = sealing(bucket).has_signed_objects()
    bucket.put("notes.json", BY_OLD.seal("notes.json", b"notes", encrypt=False))

    assert (False, True) == (before, sealing(bucket).has_signed_objects())


@pytest.mark.parametrize("happens", [False, True])
def test_it_may_be_killed_at_any_write(happens: bool) -> None:
    """Each body is whole and there, sealed or as before; the next run finishes, and leaves nothing unsigned."""
    for at in range(len(BODIES) + 2):
        bucket = filled(MemoryMirror())
        bucket.put(".state/pack/index.json", b"an index")
        bucket.put(".state/pack/1.part", b"a part")
        with pytest.raises(Killed):
            sealing(KilledMirror(bucket, at=at, happens=happens)).run()
        between = {key: stored.body for key in BODIES if (stored := bucket.get(key))}
        assert BODIES == {key: KEYS.open(key, body) if is_sealed(body) else body for key, body in between.items()}
        sealing(bucket).run()

        assert BODIES == opened(bucket)


def test_nobody_s_change_is_lost() -> None:
    """What others write while it runs stands, signed, whether they have the key or not."""

    class Busy(MemoryMirror):
        writes = 0

        def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
            if when.kind == "equals" and self.writes < 3:
                self.writes += 1
                super().put("notes.json", b"theirs %d" % self.writes)
                super().put(f"new-{self.writes}.json", b"new")
            return super().put(key, body, when=when)

    bucket = filled(Busy())
    report = sealing(bucket).run()

    assert {} == report.refused == report.failed
    assert BODIES | {"notes.json": b"theirs 3"} | {f"new-{n}.json": b"new" for n in (1, 2, 3)} == opened(bucket)


def test_answers_that_are_lost_are_found_out() -> None:
    """With a third of the calls unanswered, what was done is seen, and the rest is tried again or named."""
    for seed in range(20):
        inner = filled(MemoryMirror())
        for _ in range(9):  # what failed five times is left to the next run
            report = sealing(RepeatingMirror(FaultyMirror(inner, seed=seed, faults=HONEST))).run()
            if not report.failed:
                break
        assert ({}, {}, BODIES) == (report.refused, report.failed, opened(inner))


def test_an_object_that_cannot_be_reached_is_named() -> None:
    """The others are sealed."""

    class Stubborn(MemoryMirror):
        def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
            if key == "notes.json" and when != ANY:
                raise MirrorUnavailable("notes.json: 503")
            return super().put(key, body, when=when)

    report = sealing(filled(Stubborn())).run()

    assert (len(BODIES) - 1, ["notes.json"]) == (report.signed, list(report.failed))


def test_a_pack_is_removed_unless_it_is_sealed_as_asked(bucket: Mirror) -> None:
    """It is derived; a sound one stays."""
    sound, old = (keys.seal(".state/pack/index.json", b"index", encrypt=False) for keys in (KEYS, BY_OLD))
    left = []
    for body in (sound, old, b"unsigned"):
        bucket.put(".state/pack/index.json", body)
        bucket.put(".state/pack/1.part", b"unsigned")
        left.append((sealing(bucket, trusted={}).run().removed, [key for key, _ in bucket.list()]))

    assert [(1, [".state/pack/index.json"]), (2, []), (2, [])] == left


def test_what_is_not_a_record_stays_as_it_is(bucket: Mirror) -> None:
    """A readme that someone put next to the records is theirs; it is counted."""
    filled(bucket)
    bucket.put("README.txt", b"hands off")

    assert 1 == sealing(bucket).run().others
    assert bucket.get("README.txt").body == b"hands off"  # type: ignore[union-attr]


def test_a_bucket_that_cannot_be_read_is_not_taken_for_an_unsigned_one() -> None:
    """Else whatever a stranger put there would be signed."""

    class Unreadable(MemoryMirror):
        def get(self, key: str) -> Stored | None:
            raise MirrorUnavailable(f"{key}: 503")

    with pytest.raises(MirrorUnavailable):
        sealing(filled(Unreadable())).has_signed_objects()

    assert not sealing(filled(MemoryMirror())).has_signed_objects()


def test_what_failed_first_and_was_signed_then_is_no_failure() -> None:
    """A later round of the same call made it good."""
    report = SealReport(failed={"a.json": "no answer"})
    in_bulk(lambda key: "signed", ["a.json"], report, None)

    assert (1, {}) == (report.signed, report.problems)
