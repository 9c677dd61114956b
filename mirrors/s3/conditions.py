"""A probe for conditional requests: whether an endpoint honours them, tried on a temporary object.

S3 has had them since 2024. Some servers (``rclone serve s3``) ignore the headers, overwrite and report success, so only
a trial tells them apart.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from uuid import uuid4

from memfiles.errors import MirrorRefused
from memfiles.sync.mirror import ABSENT, ANY, Condition, equals
from mirrors.s3.bucket import Bucket, md5_of
from mirrors.s3.client import is_aws
from mirrors.s3.failures import NoSuchObject, NotMet


@dataclass(frozen=True, slots=True)
class Honoured:
    """The conditions that the endpoint checks itself: put if absent, put over a version, delete a version."""

    absent: bool
    equals: bool
    delete: bool

    def of_put(self, when: Condition) -> bool:
        """Whether the endpoint checks the condition ``when`` of a put."""
        return {"any": True, "absent": self.absent, "equals": self.equals}[when.kind]

    @property
    def ignored(self) -> list[str]:
        """The names of the headers that the endpoint ignores."""
        named = {"If-None-Match": self.absent, "If-Match": self.equals, "If-Match on delete": self.delete}
        return [name for name, honoured in named.items() if not honoured]


ALL = Honoured(absent=True, equals=True, delete=True)


def find_out(bucket: Bucket, *, beside: str) -> Honoured:
    """Probe the endpoint with five requests for a temporary object in the folder of the key ``beside``.

    Amazon's own endpoints are not probed. The object is named like a staged file, so that a copy of the bucket made at
    this moment treats it as a left-over.
    """
    if is_aws(bucket.endpoint):
        return ALL
    folder, slash, _ = beside.rpartition("/")
    key = f"{folder}{slash}.probe-{uuid4().hex}.json.tmp"
    bucket.write(key, b"1", when=ANY)
    other = equals(md5_of(b"another"))
    try:
        return Honoured(
            absent=_refuses_put(bucket, key, when=ABSENT),
            equals=_refuses_put(bucket, key, when=other),
            delete=_refuses_delete(bucket, key, when=other),
        )
    finally:
        with suppress(MirrorRefused):  # a user who may write but not delete leaves it there
            bucket.remove(key, when=ANY)


def _refuses_put(bucket: Bucket, key: str, *, when: Condition) -> bool:
    try:
        bucket.write(key, b"2", when=when)
    except (NotMet, NoSuchObject):
        return True
    except MirrorRefused:  # the header itself is refused
        return False
    return False


def _refuses_delete(bucket: Bucket, key: str, *, when: Condition) -> bool:
    try:
        bucket.remove(key, when=when)
    except (NotMet, NoSuchObject):
        return True
    except MirrorRefused:
        return False
    return False
