"""Operations on a sealed mirror as a whole: check its keys, reseal it, and open a copy of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from memfiles.errors import InvalidArgument, MirrorRefused, StorageFailed
from memfiles.sync.mirror import Mirror
from mirrors.sealed.bucket import OnProgress, Sealer, SealReport
from mirrors.sealed.copy import open_copy
from mirrors.sealed.envelope import MirrorKeys, check_encryption
from mirrors.sealed.refusals import Notes

_NOTE = ".state/signing"  # the state and the mirror's URL, which earlier builds left out
_BEGUN, _DONE = b"begun", b"done"


class Keeper:
    """The mirror that a workflow declares, not sealed and not yet connected to, and the directory of its memory."""

    def __init__(
        self,
        open_mirror: Callable[[], Mirror],
        notes: Notes,
        has: Callable[[str, bytes], bool],
        *,
        url: str,
        key: str | None,
        encrypt: bool,
    ) -> None:
        """``has`` says whether the memory's record at a path has just these bytes. ``url`` is the mirror's.

        ``key`` is ``env:NAME``; without one, only ``problem`` and ``ids`` can be asked.
        """
        self._open_mirror = open_mirror
        self._url = url.encode()
        self._notes, self._has = notes, has
        self._key = key
        self._encrypt = encrypt
        self._ids: tuple[str, ...] = ()

    @property
    def keys(self) -> MirrorKeys:
        """The keys; ``InvalidArgument`` if none are declared, ``MirrorRefused`` if they cannot be used here."""
        if self._key is None:
            raise InvalidArgument("the workflow declares no key for a mirror; add `key: env:NAME` under memory.mirror")
        if self._encrypt:
            check_encryption()
        return MirrorKeys.named(self._key)

    def ids(self) -> tuple[str, ...]:
        """The ids of the keys as of the first call that could use them; none before, or if none are declared."""
        if self._key is not None and not self._ids:
            with suppress(MirrorRefused):
                self._ids = self.keys.ids
        return self._ids

    @property
    def problem(self) -> str | None:
        """Why the declared keys cannot be used here; None if they can, or if none are declared."""
        try:
            if self._key is not None:
                self.keys  # noqa: B018  # raises
            return None
        except MirrorRefused as error:
            return f"memory.mirror.key: {error}"

    def rekey(self, *, accept_unsigned: bool = False, progress: OnProgress | None = None) -> SealReport:
        """Seal every record in the mirror with the first key. May be repeated, and stopped anywhere.

        In a bucket that was never signed, every record is signed. Later, an unsigned record is signed only if this
        directory holds the same bytes, or with ``accept_unsigned``. ``MirrorUnavailable`` if the mirror cannot be read,
        ``StorageFailed`` if it is not known whether it was signed.
        """
        keys, mirror = self.keys, self._open_mirror()
        notes = self._notes
        sealing = Sealer(mirror, keys, encrypt=self._encrypt, is_trusted=lambda *it: is_first or self._has(*it))
        noted = self._noted(notes)
        is_first = accept_unsigned or noted == _BEGUN or (noted is None and not sealing.has_signed_objects())
        state = _BEGUN if is_first else _DONE
        notes.put(_NOTE, b"%b %b" % (state, self._url), makes=True)  # 1 a call after a kill continues
        report = sealing.run(progress=progress)  # 2
        if not report.failed:
            notes.put(_NOTE, b"%b %b" % (_DONE, self._url), makes=True)  # 3
        return report

    def open_copy(self, copied: Path, *, to: Path | None = None, progress: OnProgress | None = None) -> SealReport:
        """Open a copied bucket; see ``mirrors.sealed.copy.open_copy``."""
        return open_copy(copied, self.keys, to=to, progress=progress)

    def _noted(self, notes: Notes) -> bytes | None:
        """Whether this machine began to sign this mirror's unsigned objects, or is done with it; None: neither."""
        try:
            noted = notes.get(_NOTE)
        except OSError as error:
            why = error.strerror or error
            raise StorageFailed(f"whether the mirror was signed before cannot be read: {why}") from error
        state, _, url = noted.partition(b" ") if noted is not None else (None, b"", b"")
        return state if url in (b"", self._url) else None
