"""A probe for conditional requests: whether an endpoint honours them, tried on a temporary object.

S3 has had them since 2024. Some servers (``rclone serve s3``) ignore the headers, overwrite and report success, so only
a trial tells them apart.

The rule this file guards: a verdict needs evidence. Honoured: the store answered 412. Not honoured: it overwrote or
deleted the object, or it refuses the header and accepts the same request without it. Any other answer (403, an expired
token, a proxy's page with 200) says nothing: the next call asks again, and so does each hour.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Literal
from uuid import uuid4

from memfiles.errors import MirrorRefused, MirrorUnavailable
from memfiles.sync.mirror import ABSENT, ANY, equals
from mirrors.s3.bucket import Bucket, md5_of
from mirrors.s3.client import is_aws
from mirrors.s3.failures import ConditionRefused, NoSuchObject, PreconditionFailed

ConditionKind = Literal["absent", "equals", "delete"]
HEADERS: dict[ConditionKind, str] = {
    "absent": "If-None-Match",
    "equals": "If-Match",
    "delete": "If-Match on delete",
}
FRESH_SECONDS = 3600.0
_AGAIN_SECONDS = 60.0  # until a verdict is checked again that could not be checked when it was due
_MET = 412
_OTHER = equals(md5_of(b"another"))


class Probe:
    """The verdicts on one endpoint: put if absent, put over a version, delete a version. Threads may share it."""

    def __init__(self, bucket: Bucket, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._bucket = bucket
        self._monotonic = monotonic
        self._asking = threading.Lock()
        self._name = f".probe-{uuid4().hex}.json.tmp"  # of a staged file: a copy of the bucket takes it for a left-over
        self._verdicts: dict[ConditionKind, bool] = dict.fromkeys(HEADERS, True) if is_aws(bucket.endpoint) else {}
        self._troubles: dict[ConditionKind, MirrorUnavailable] = {}
        self._due = float("inf") if self._verdicts else float("-inf")

    def honours(self, kind: ConditionKind, *, beside: str) -> bool:
        """Whether the endpoint checks this condition; if need be, five requests in the folder of the key ``beside``.

        ``MirrorRefused`` or ``MirrorUnavailable`` if that could not be found out. Amazon's endpoints are not probed.
        """
        with self._asking:
            if kind not in self._verdicts or self._monotonic() >= self._due:
                self._ask(beside)
            if kind not in self._verdicts:
                raise self._unknown(kind)
            return self._verdicts[kind]

    def findings(self, *, beside: str) -> tuple[list[str], list[str]]:
        """The headers that the endpoint ignores, and a sentence for each header of which that is not known.

        The errors of ``honours`` if nothing at all is known.
        """
        with self._asking:
            if len(self._verdicts) < len(HEADERS) or self._monotonic() >= self._due:
                self._ask(beside)
            if not self._verdicts:
                raise self._unknown("absent")
            ignored = [HEADERS[kind] for kind in HEADERS if self._verdicts.get(kind) is False]
            return ignored, [str(self._unknown(kind)) for kind in HEADERS if kind not in self._verdicts]

    def _ask(self, beside: str) -> None:
        """Try each condition; one that cannot be tried keeps the verdict it had."""
        folder, slash, _ = beside.rpartition("/")
        key = f"{folder}{slash}{self._name}"
        self._due = self._monotonic() + _AGAIN_SECONDS
        try:
            self._bucket.write(key, b"1", when=ANY)
        except MirrorUnavailable as error:
            self._troubles = dict.fromkeys(HEADERS, error)
            return
        for kind in HEADERS:
            try:
                self._verdicts[kind] = self._is_honoured(kind, key)
            except MirrorUnavailable as error:
                self._troubles[kind] = error
        with suppress(MirrorUnavailable, NoSuchObject):  # a user who may write but not delete leaves it there
            self._bucket.remove(key, when=ANY)
        self._due = self._monotonic() + FRESH_SECONDS

    def _is_honoured(self, kind: ConditionKind, key: str) -> bool:
        body = kind.encode()

        def attempt(*, conditional: bool) -> None:
            if kind == "delete":
                self._bucket.remove(key, when=_OTHER if conditional else ANY)
            else:
                self._bucket.write(key, body, when=(ABSENT if kind == "absent" else _OTHER) if conditional else ANY)

        try:
            attempt(conditional=True)
        except PreconditionFailed as error:
            if error.status == _MET:
                return True
            raise MirrorUnavailable(f"{key}: the store answered {error.status} to a condition") from error
        except NoSuchObject as error:
            raise MirrorUnavailable(f"{key}: the store lost the object of the probe") from error
        except ConditionRefused:
            attempt(conditional=False)
        found = self._bucket.read(key)
        if (found and found.body) != (None if kind == "delete" else body):
            raise MirrorUnavailable(f"{key}: the store reported success but changed nothing")
        return False

    def _unknown(self, kind: ConditionKind) -> MirrorUnavailable:
        why = self._troubles[kind]
        error = MirrorRefused if isinstance(why, MirrorRefused) else MirrorUnavailable
        return error(f"it is not known yet whether {self._bucket.endpoint} honours {HEADERS[kind]}: {why}")
