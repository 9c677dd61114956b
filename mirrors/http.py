"""A mirror on the older HTTP service, which keeps the content of declared memory files.

The service has ``GET /agents/memory`` (an array of MemoryFile objects), ``PUT /agents/memory/{uid}`` with
``{"content": ...}``, the header ``Agent-Key``, and errors as ``{"error": {"message", "type"}}``. It keeps only the
content of a record and has no conditions and no delete, so this mirror promises less than the others:

- Its keys are those of memory files, ``<uid>.json``. A body must be a record of that uid.
- ``get`` returns a record built from the service's object: its content, name, description and cap; revision 1, no
  history, no level, the first second of 1970. The same object always gives the same bytes. So a record comes back with
  its content and without its history, and "the same body" means "the same content".
- A put reads, compares, writes and reads again; of two machines at the same moment one can overwrite the other.
- Nothing can be deleted: a ``MirrorRefused``. A tombstone (a record without content) empties the file.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from memfiles.errors import InvalidArgument, MirrorRefused, MirrorUnavailable
from memfiles.records.keys import NAME_MAX, check_name, record_path, uid_of
from memfiles.sync.mirror import ANY, Answer, Condition, Stored, check_body, check_key, check_keys, check_prefix
from mirrors.service import Service, connect

_log = logging.getLogger("memfiles.mirror")
_DEFAULT_CAP = 8 * 1024 * 1024  # the older manager has none
_WEAKNESS = (
    "has no conditional writes: of two machines that change one record at the same moment, one can overwrite the "
    "other; use it from one writing machine only"
)
_EPOCH = "1970-01-01T00:00:00.000Z"


def open_url(url: str) -> HttpMirror:
    """The mirror at ``http(s)://host/path``; its key is read from ``MEMFILES_AGENT_KEY`` in the environment."""
    return HttpMirror(connect(url))


class HttpMirror:
    """The older service as a mirror; the module docstring lists its limits."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._warning = threading.Lock()
        self._warned = False

    def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        """See ``Mirror.list``; one request."""
        check_prefix(prefix)
        found = [(key, stored.version) for key, stored in self._objects().items() if key.startswith(prefix)]
        return iter(sorted(found))

    def get(self, key: str) -> Stored | None:
        """See ``Mirror.get``; one request, for all objects."""
        return self._objects().get(key) if uid_of(check_key(key)) else None

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Answer]]:
        """See ``BulkMirror.get_many``; one request."""
        asked = check_keys(keys)
        try:
            objects = self._objects() if asked else {}
        except MirrorUnavailable as error:
            return iter([(key, error) for key in asked])
        return iter([(key, objects.get(key)) for key in asked])

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        """See ``Mirror.put``; three requests. ``InvalidArgument`` if the body is not a record of this key's uid."""
        uid, content = _content_of(check_key(key), check_body(key, body))
        self._warn()
        old = self._objects().get(key)
        if old is not None and _content_in(old) == content:
            return old.version
        when.check(key, old.version if old else None)
        self._service.ask("PUT", f"/agents/memory/{quote(uid)}", {"content": content})
        new = self._objects().get(key)
        if new is None or _content_in(new) != content:
            raise MirrorUnavailable(f"{key}: the service accepted the content, but now holds different content")
        return new.version

    def delete(self, key: str, *, when: Condition = ANY) -> None:
        """See ``Mirror.delete``; ``MirrorRefused`` if the object exists."""
        old = self.get(key)
        if old is not None:
            when.check(key, old.version)
            raise MirrorRefused(f"{key}: the service cannot delete; put a record without content to empty it")

    def takes(self, key: str) -> bool:
        """See ``SelectiveMirror.takes``: memory files only."""
        return uid_of(check_key(key)) is not None

    def shortcomings(self, key: str) -> tuple[str, ...]:
        """See ``CandidMirror.shortcomings``; makes no request."""
        check_key(key)
        return (
            f"{self._service.url} {_WEAKNESS}",
            f"{self._service.url} keeps content only: no history, no levels, no entries",
        )

    def _objects(self) -> dict[str, Stored]:
        """By key, each of the service's objects that can be a memory file, as a record."""
        answer = self._service.ask("GET", "/agents/memory")
        if not isinstance(answer, list):
            raise MirrorUnavailable("the service answered GET /agents/memory with something that is not an array")
        records = (record_of(item) for item in answer if isinstance(item, dict))
        return {key: Stored(body, hashlib.sha256(body).hexdigest()) for key, body in filter(None, records)}

    def _warn(self) -> None:
        with self._warning:
            if not self._warned:
                self._warned = True
                _log.warning("%s %s", self._service.url, _WEAKNESS)


def record_of(item: dict[str, Any]) -> tuple[str, bytes] | None:
    """The key and the record for one of the service's objects, None if it cannot be a memory file."""
    uid, content = item.get("uid", item.get("id")), item.get("content", "")
    if not isinstance(uid, str) or uid_of(f"{uid}.json") is None or not isinstance(content, str):
        return None
    description, cap = item.get("description"), item.get("maxSizeBytes", item.get("max_size_bytes"))
    record = {
        "format": "memfiles/1",
        "type": "file",
        "uid": uid,
        "name": _name_of(item, uid=uid),
        "description": description if isinstance(description, str) else "",
        "max_size_bytes": cap if type(cap) is int and cap >= 0 else _DEFAULT_CAP,
        "level": "",
        "content": content,
        "sha256": hashlib.sha256(_encoded(content)).hexdigest(),
        "revision": 1,
        "created_at": _EPOCH,
        "updated_at": _EPOCH,
        "history": [],
    }
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    return record_path(uid), _encoded(text) + b"\n"


def _name_of(item: dict[str, Any], *, uid: str) -> str:
    """The service's name or label if it is a valid name, else the uid."""
    for name in (item.get("name"), item.get("label")):
        with suppress(InvalidArgument):
            if isinstance(name, str):
                return check_name(name)
    return uid[:NAME_MAX]


def _content_of(key: str, body: bytes) -> tuple[str, str]:
    """The uid and the content of a record; a tombstone has none and counts as empty."""
    uid = uid_of(key)
    if uid is None:
        raise InvalidArgument(f"{key}: the service keeps memory files only, as <uid>.json")
    try:
        record = json.loads(body)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict) or record.get("uid") != uid or not isinstance(record.get("content", ""), str):
        raise InvalidArgument(f"{key}: the service keeps content only, and this is not a record of {uid}")
    return uid, record.get("content", "")


def _content_in(stored: Stored) -> str:
    return str(json.loads(stored.body)["content"])


def _encoded(text: str) -> bytes:
    """As UTF-8; a lone surrogate, which JSON allows and a record does not, is ``MirrorUnavailable``."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise MirrorUnavailable("the service answered with text that is not Unicode (a lone surrogate)") from error
