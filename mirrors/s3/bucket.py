"""Requests to one bucket, whose answers are checked before they are believed.

The rules this file guards: a body is whole and arrives within a deadline; the version returned with it is the version
of exactly these bytes; only the size and the ETag are read from an object's metadata.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from memfiles.errors import CopyRefused, MirrorUnavailable
from memfiles.sync.mirror import ANY, BODY_MAX_BYTES, Condition, Stored, is_key
from mirrors.s3.failures import NoSuchObject, failures

DEADLINE = 60.0  # seconds for a body; at most 64 MiB, so a link of about 1 MB/s is enough
_CHUNK = 256 * 1024
_MD5 = re.compile(r"[0-9a-f]{32}")
_CREDENTIALS = re.compile(r"(?:Credential|Signature)=([^/,\s]+)")  # in an Authorization header: key id and signature


class Bucket:
    """A bucket, accessed through a boto3 client. A version is an ETag without its quotes."""

    def __init__(
        self, client: Any, name: str, *, sse: str | None = None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = name
        self._client = client
        self._sse = {"ServerSideEncryption": sse} if sse else {}
        self._monotonic = monotonic
        self._last = threading.local()  # ``sent``: the credentials in the last request of this thread
        self._failures = partial(failures, sent=lambda: getattr(self._last, "sent", []))
        client.meta.events.register("before-send.s3", self._note_credentials)

    @property
    def endpoint(self) -> str:
        """The URL that requests go to."""
        return str(self._client.meta.endpoint_url)

    @property
    def region(self) -> str:
        """The region that requests are signed for."""
        return str(self._client.meta.region_name)

    def list(self, prefix: str) -> Iterator[tuple[str, str]]:
        """Keys and versions in the store's order, 1,000 per request."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
        with self._failures(f"the list of {self.name}"):
            for page in pages:
                if "IsTruncated" not in page:
                    raise MirrorUnavailable(f"the list of {self.name}: the answer is not a list of objects")
                for item in page.get("Contents", ()):
                    if is_key(key := item.get("Key", "")) and (version := _etag(item) or self._version_now(key)):
                        yield key, version

    def read(self, key: str) -> Stored | None:
        """The object at ``key``, None if there is none."""
        return believed(lambda: self._read(key), key)

    def write(self, key: str, body: bytes, *, when: Condition) -> str | None:
        """Put ``body`` under a condition that the store checks; returns the version it answers, unverified.

        Raises ``PreconditionFailed`` or ``NoSuchObject`` if the condition does not hold.
        """
        with self._failures(key, conditional=when != ANY):
            answer = self._client.put_object(
                Bucket=self.name, Key=key, Body=body, **self._sse, **_headers(when, absent="IfNoneMatch")
            )
        return _etag(answer) or None

    def remove(self, key: str, *, when: Condition) -> None:
        """Delete the object under a condition that the store checks; errors as of ``write``."""
        with self._failures(key, conditional=when != ANY):
            self._client.delete_object(Bucket=self.name, Key=key, **_headers(when))

    def _note_credentials(self, request: Any, **_: Any) -> None:
        headers = {name.lower(): _text(value) for name, value in request.headers.items()}
        in_header = _CREDENTIALS.findall(headers.get("authorization", ""))
        self._last.sent = [*in_header, headers.get("x-amz-security-token", "")]

    def _read(self, key: str) -> tuple[Stored | None, bool]:
        """One answer, and whether it is proven: its ETag is the body's MD5, or cannot be one."""
        try:
            with self._failures(key):
                answer = self._client.get_object(Bucket=self.name, Key=key)
                body = self._receive(answer, key)
        except NoSuchObject:
            return None, True
        stored = Stored(body, _etag(answer))
        by_kms = "kms" in answer.get("ServerSideEncryption", "")
        return stored, bool(stored.version) and (by_kms or is_proven(stored))

    def _version_now(self, key: str) -> str | None:
        """The version of an object that was listed without an ETag, None if it is gone by now.

        ``rclone serve s3`` lists an object in this way while another request writes it.
        """
        stored = self.read(key)
        return stored.version if stored else None

    def _receive(self, answer: Any, key: str) -> bytes:
        stream = answer["Body"]
        stream._raw_stream = _ShortReads(stream._raw_stream)
        deadline = self._monotonic() + DEADLINE
        received = bytearray()
        try:
            if answer.get("ContentLength", 0) > BODY_MAX_BYTES:
                why = f"{key} has {answer['ContentLength']} bytes in the store, over {BODY_MAX_BYTES}"
                raise CopyRefused(why, version=_etag(answer) or None)
            while chunk := stream.read(_CHUNK):
                received += chunk
                if self._monotonic() > deadline:
                    raise MirrorUnavailable(f"{key}: incomplete after {DEADLINE:g} s ({len(received)} bytes)")
                if len(received) > BODY_MAX_BYTES:
                    why = f"{key} has more than {BODY_MAX_BYTES} bytes in the store"
                    raise CopyRefused(why, version=_etag(answer) or None)
        except BaseException:
            stream.close()  # what is still to come is not waited for
            raise
        return bytes(received)


class _ShortReads:
    """A response whose ``read`` returns the bytes received so far, so that a deadline holds while bytes trickle in.

    botocore's own ``read`` waits for all requested bytes, with a timeout per packet only.
    """

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self.read = getattr(raw, "read1", raw.read)  # an urllib3 before 2 has none

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)


def believed(read: Callable[[], tuple[Stored | None, bool]], key: str) -> Stored | None:
    """The answer of ``read`` if it is proven, or if a second read gives the same.

    An ETag is usually the MD5 of the body. If it looks like an MD5 and does not match, either the answer is damaged or
    the store makes ETags in another way; the same answer twice is taken for the latter. One answer without an ETag may
    be a passing state; two mean that the store gives none.
    """
    first, proven = read()
    if first is None or proven:
        return first
    second, proven = read()
    if second is None or proven:
        return second
    if not second.version:
        raise MirrorUnavailable(f"{key}: the store gives no ETag, so its version is unknown")
    if second == first:
        return second
    raise MirrorUnavailable(f"{key}: the store gives bodies that do not match their ETag, a different one each time")


def is_proven(stored: Stored) -> bool:
    """Whether the version is the MD5 of the body, or is not an MD5 at all."""
    if not stored.version:
        return False
    return not _MD5.fullmatch(stored.version) or stored.version == md5_of(stored.body)


def md5_of(body: bytes) -> str:
    """The ETag that S3 gives to an object put in one request and not encrypted with a KMS key."""
    return hashlib.md5(body, usedforsecurity=False).hexdigest()


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _etag(answer: Any) -> str:
    """The ETag of a listed, received or written object; empty if the store gave none."""
    return str(answer.get("ETag") or "").strip('"')


def _headers(when: Condition, *, absent: str | None = None) -> dict[str, str]:
    if when.kind == "equals":
        return {"IfMatch": f'"{when.version}"'}
    return {absent: "*"} if when.kind == "absent" and absent else {}
