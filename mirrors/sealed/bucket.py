"""Work on all objects of a mirror at once: seal them with the key that seals now.

The rules this file guards: an object is replaced only at the version that was read, so that nobody's change is lost; a
kill at any point leaves whole objects; what does not verify stays as it is and is named; and an object without a
signature is signed only where nobody can have slipped it in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from memfiles.errors import CopyRefused, MirrorConflict, MirrorUnavailable
from memfiles.sync.mirror import Mirror, Stored, equals, get_many, in_parallel
from mirrors.sealed.envelope import MirrorKeys, check_encryption, is_sealed

DERIVED = ".state/"  # the pack: it names versions, which sealing changes, so it is removed and rewritten later
THREADS = 16
_ATTEMPTS = 5  # at one object that others write at the same time, or that gives no answer
_ROUNDS = 10  # through the listing, until nothing in it is new
_SLIPPED_IN = (
    "the mirror's object is not signed, and others are; if it was put there by a machine without the key and not by a "
    "stranger, `memfiles sync rekey --accept-unsigned` signs it"
)
Done = Literal["current", "signed", "resealed", "gone"]
OnProgress = Callable[[int, int], None]


@dataclass(slots=True)
class SealReport:
    """How many objects were ``signed`` for the first time, ``resealed``, or ``current`` already.

    ``removed`` ones were of a pack, which is derived; ``gone`` ones were deleted meanwhile; ``others`` are not records,
    and stay as they are. ``refused`` says by path why objects do not verify, ``failed`` why they could not be reached.
    """

    signed: int = 0
    resealed: int = 0
    current: int = 0
    removed: int = 0
    gone: int = 0
    others: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def problems(self) -> dict[str, str]:
        """By path, why objects were not sealed or opened."""
        return self.refused | self.failed

    def to_dict(self) -> dict[str, Any]:
        """A JSON object with every field."""
        return {name: getattr(self, name) for name in self.__slots__}


class Sealer:
    """Seals every record of a mirror with the first of the keys, in the form that is asked for."""

    def __init__(
        self,
        mirror: Mirror,
        keys: MirrorKeys,
        *,
        encrypt: bool,
        is_trusted: Callable[[str, bytes], bool],
    ) -> None:
        """``is_trusted``: whether an unsigned body at a key is known to be genuine; called by many threads."""
        if encrypt:
            check_encryption()
        self._mirror = mirror
        self._keys = keys
        self._encrypt = encrypt
        self._is_trusted = is_trusted
        self._versions: dict[str, str | None] = {}

    def has_signed_objects(self) -> bool:
        """Whether any record of the mirror is sealed: then one that is not may have been slipped in.

        ``MirrorUnavailable`` if none is sealed and some cannot be read.
        """
        failure: MirrorUnavailable | None = None
        for _, answer in get_many(self._mirror, filter(_is_record, self._listed())):
            if isinstance(answer, Stored) and is_sealed(answer.body):
                return True
            failure = answer if isinstance(answer, MirrorUnavailable) else failure
        if failure is not None:
            raise failure
        return False

    def run(self, *, progress: OnProgress | None = None) -> SealReport:
        """Seal every object that is not in the wanted form, until a listing shows nothing new. May be repeated."""
        report = SealReport()
        for _ in range(_ROUNDS):
            listed = self._listed()
            new = [key for key, version in listed.items() if self._versions.get(key) != version]
            if not new:
                break
            report.removed += self._remove_derived(new)
            report.others = sum(not _is_record(key) and not key.startswith(DERIVED) for key in listed)
            in_bulk(self._seal, list(filter(_is_record, new)), report, progress)
        return report

    def _listed(self) -> dict[str, str]:
        return dict(self._mirror.list())

    def _remove_derived(self, keys: Iterable[str]) -> int:
        """Remove what belongs to a pack and is not sealed as asked, the index first."""
        derived = sorted((key for key in keys if key.startswith(DERIVED)), key=lambda key: not key.endswith(".json"))
        unsound = [key for key in derived if not self._is_current(key)]
        for key in unsound:
            self._mirror.delete(key)
        return len(unsound)

    def _is_current(self, key: str) -> bool:
        stored = self._mirror.get(key)
        self._versions[key] = stored.version if stored else None
        try:
            return stored is None or bool(self._keys.open(key, stored.body)) and self._has_form(stored)
        except CopyRefused:
            return False

    def _has_form(self, stored: Stored) -> bool:
        return self._keys.is_current(stored.body, encrypt=self._encrypt)

    def _seal(self, key: str) -> Done:
        """Seal one object; ``CopyRefused`` if it does not verify."""
        problem: MirrorConflict | MirrorUnavailable | None = None
        for _ in range(_ATTEMPTS):
            try:
                return self._try_to_seal(key)
            except CopyRefused:
                raise
            except (MirrorConflict, MirrorUnavailable) as error:  # an answer that was lost is found out by reading
                problem = error
        raise MirrorUnavailable(f"{key}: {problem}")

    def _try_to_seal(self, key: str) -> Done:
        stored = self._mirror.get(key)
        self._versions[key] = stored.version if stored else None
        if stored is None:
            return "gone"
        if not (is_signed := is_sealed(stored.body)) and not self._is_trusted(key, stored.body):
            raise CopyRefused(f"{key}: {_SLIPPED_IN}")
        body = self._keys.open(key, stored.body) if is_signed else stored.body
        if is_signed and self._has_form(stored):
            return "current"
        sealed = self._keys.seal(key, body, encrypt=self._encrypt)
        self._versions[key] = self._mirror.put(key, sealed, when=equals(stored.version))
        return "resealed" if is_signed else "signed"


def in_bulk(work: Callable[[str], str], keys: Collection[str], report: SealReport, progress: OnProgress | None) -> None:
    """Do ``work`` for each key, in threads, and count its results in the field of the report that it returns."""
    for number, (key, done) in enumerate(in_parallel(work, keys, threads=THREADS), start=1):
        report.refused.pop(key, None)
        report.failed.pop(key, None)
        if isinstance(done, MirrorUnavailable):
            (report.refused if isinstance(done, CopyRefused) else report.failed)[key] = str(done)
        else:
            setattr(report, done, getattr(report, done) + 1)
        if progress is not None:
            progress(number, len(keys))


def _is_record(key: str) -> bool:
    return key.endswith(".json") and not key.startswith(DERIVED)
