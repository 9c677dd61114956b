"""Copied buckets: directories of sealed objects, as ``aws s3 sync`` makes them, opened into memory directories.

The rule this file guards: a memory directory made here holds nothing but records that verified. It is made next to its
place and renamed there when it is whole, so that a kill at any point leaves the copy, and the call can be repeated.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from memfiles.errors import InvalidArgument, MirrorUnavailable
from memfiles.storage import atomic
from memfiles.sync.mirror import Mirror
from mirrors.directory import DirectoryMirror
from mirrors.sealed.bucket import DERIVED, OnProgress, SealReport, in_bulk
from mirrors.sealed.envelope import MirrorKeys


def open_copy(
    copied: Path, keys: MirrorKeys, *, to: Path | None = None, progress: OnProgress | None = None
) -> SealReport:
    """Make ``to`` a memory directory with the opened records of the directory ``copied``, by default in its place.

    In its place, the copy stays next to it, with ``.sealed`` after its name. Nothing changes if no object verifies.
    ``InvalidArgument`` if ``to`` is not empty; ``MirrorUnavailable`` if a file cannot be read or written.
    """
    source, target = (Path(os.path.abspath(path)) for path in (copied, to or copied))
    aside, stage = target.with_name(f"{target.name}.sealed"), target.with_name(f".{target.name}.opening")
    is_moved = to is None and not source.exists() and aside.exists()  # by a call that was killed
    try:
        _check(source, target, aside, in_place=to is None, is_moved=is_moved)
        shutil.rmtree(stage, ignore_errors=True)
        stage.mkdir(mode=0o700)
        report = open_all(DirectoryMirror(aside if is_moved else source), DirectoryMirror(stage), keys, progress)
        if report.failed:
            raise MirrorUnavailable(next(iter(report.failed.values())))
        if report.current:
            shutil.rmtree(stage / DERIVED, ignore_errors=True)  # locks
            _put_in_place(stage, target, aside=aside if to is None and not is_moved else None)
        return report
    except OSError as error:
        raise MirrorUnavailable(f"{error.filename or target}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def open_all(source: Mirror, target: Mirror, keys: MirrorKeys, progress: OnProgress | None = None) -> SealReport:
    """Put the opened objects of ``source`` into ``target``; ``current`` counts them. Refused ones are left out."""
    report = SealReport()

    def opened(key: str) -> str:
        if (stored := source.get(key)) is None:
            return "gone"
        target.put(key, keys.open(key, stored.body))
        return "current"

    in_bulk(opened, [key for key, _ in source.list() if not key.startswith(DERIVED)], report, progress)
    return report


def _check(source: Path, target: Path, aside: Path, *, in_place: bool, is_moved: bool) -> None:
    if not is_moved and not source.is_dir():
        raise InvalidArgument(f"{source} is not a directory; give the directory that the bucket was copied to")
    if not in_place and target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InvalidArgument(f"{target} is not empty; choose a new directory")
    if in_place and not is_moved and aside.exists():
        raise InvalidArgument(f"{aside} exists already; move it away, or open the copy elsewhere with --to")


def _put_in_place(stage: Path, target: Path, *, aside: Path | None) -> None:
    """Rename the finished directory to its place, with what is there put ``aside`` first."""
    parent = atomic.Descriptor.of_directory(target.parent)
    if aside is not None:
        atomic.move(parent, target.name, to=aside.name)  # 1 a call after a kill continues from there
    atomic.move(parent, stage.name, to=target.name)  # 2
    atomic.sync_folder(parent)
