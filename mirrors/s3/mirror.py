"""S3 as a mirror: the promises of ``Mirror``, kept with S3 requests.

The rules this file guards: a refusal (412) after a lost answer is usually our own success, so the object is read and
compared before a conflict is reported; and a version is returned only for bytes that were seen in the bucket.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from memfiles.errors import MirrorUnavailable
from memfiles.sync.mirror import (
    ANY,
    Answer,
    Condition,
    Mirror,
    Stored,
    check_body,
    check_key,
    check_keys,
    check_prefix,
    in_parallel,
)
from mirrors.prefixed import PrefixedMirror
from mirrors.s3.bucket import Bucket, md5_of
from mirrors.s3.client import TRANSFERS, make_client, make_session
from mirrors.s3.conditions import ConditionKind, Probe
from mirrors.s3.failures import NoSuchObject, PreconditionFailed
from mirrors.s3.location import S3Location

_log = logging.getLogger("memfiles.mirror")
_WEAKNESS = (
    "%s ignores conditional requests (%s): of two machines that change one record at the same moment, one can "
    "overwrite the other; use it from one writing machine only"
)
_ROUNDS = 4  # of being refused although the condition holds when read back


def connect(location: S3Location) -> Mirror:
    """The mirror at ``location``: the bucket, or its folder named by the prefix."""
    session = make_session(location)
    bucket = Bucket(make_client(location, session=session), location.bucket, sse=location.sse)
    whole = S3Mirror(bucket, session=session)
    return PrefixedMirror(whole, location.prefix) if location.prefix else whole


class S3Mirror:
    """A bucket as a mirror; see ``Mirror``. Ignored conditions are replaced by a read, with a warning."""

    def __init__(self, bucket: Bucket, *, session: Any = None) -> None:
        """``session`` provides credentials for obstore (None: boto3 reads everything)."""
        self._bucket = bucket
        self._session = session
        self._probe = Probe(bucket)
        self._has_warned = False

    def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        """See ``Mirror.list``. Sorted here: some stores list a folder's content before its neighbours."""
        found = dict(self._bucket.list(check_prefix(prefix)))
        return iter(sorted(found.items(), key=lambda pair: pair[0].encode()))

    def get(self, key: str) -> Stored | None:
        return self._bucket.read(check_key(key))

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Answer]]:
        """See ``BulkMirror.get_many``; one request per key, through obstore if it is installed, else boto3."""
        asked = check_keys(keys)
        read, threads = self._reader()
        return in_parallel(read, asked, threads=threads)

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        """See ``Mirror.put``. One request; more if an answer is in doubt or the endpoint ignores conditions."""
        check_body(check_key(key), body)
        for _ in range(_ROUNDS):
            try:
                return self._put(key, body, when=when)
            except (PreconditionFailed, NoSuchObject):
                found = self._bucket.read(key)
            if found is not None and found.body == body:
                return found.version
            when.check(key, found.version if found else None)
        raise _undecided(key)

    def delete(self, key: str, *, when: Condition = ANY) -> None:
        check_key(key)
        for _ in range(_ROUNDS):
            try:
                return self._delete(key, when=when)
            except NoSuchObject:
                return None
            except PreconditionFailed:
                found = self._bucket.read(key)
            if found is None:
                return None
            when.check(key, found.version)
        raise _undecided(key)

    def _reader(self) -> tuple[Callable[[str], Stored | None], int]:
        """The function that reads one of many objects, and how many to read at a time."""
        if self._session is not None:
            try:
                from mirrors.s3 import obstore_reads
            except ImportError:
                pass
            else:
                return obstore_reads.reader(self._bucket, self._session), obstore_reads.THREADS
        return self._bucket.read, TRANSFERS

    def shortcomings(self, key: str) -> tuple[str, ...]:
        """See ``CandidMirror.shortcomings``; an endpoint that is not Amazon's is probed."""
        ignored, unknown = self._probe.findings(beside=check_key(key))
        weakness = [_WEAKNESS % (self._bucket.endpoint, ", ".join(ignored))] if ignored else []
        return (*weakness, *unknown)

    def _put(self, key: str, body: bytes, *, when: Condition) -> str:
        checked_there = when.kind == "any" or self._honours(when.kind, key)
        if not checked_there:
            found = self._bucket.read(key)
            if found is not None and found.body == body:
                return found.version
            when.check(key, found.version if found else None)
        version = self._bucket.write(key, body, when=when if checked_there else ANY)
        if checked_there and version == md5_of(body):
            return version
        return self._seen(key, body)

    def _seen(self, key: str, body: bytes) -> str:
        """The version of ``body`` as read back from ``key``, as the answer to the put did not prove it."""
        found = self._bucket.read(key)
        if found is None or found.body != body:
            raise MirrorUnavailable(f"{key}: the store accepted the put, but now holds other bytes")
        return found.version

    def _delete(self, key: str, *, when: Condition) -> None:
        if when.kind == "any" or (when.kind == "equals" and self._honours("delete", key)):
            return self._bucket.remove(key, when=when)
        found = self._bucket.read(key)
        if found is not None:
            when.check(key, found.version)
            self._bucket.remove(key, when=ANY)
        return None

    def _honours(self, kind: ConditionKind, key: str) -> bool:
        """Whether the endpoint checks a condition itself; a warning, once, if it does not."""
        is_honoured = self._probe.honours(kind, beside=key)
        if not is_honoured and not self._has_warned:
            self._has_warned = True
            _log.warning("%s", " ".join(self.shortcomings(key)))
        return is_honoured


def _undecided(key: str) -> MirrorUnavailable:
    return MirrorUnavailable(f"{key}: the store refused a change {_ROUNDS} times although its condition held")
