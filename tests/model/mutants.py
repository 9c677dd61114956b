"""Builds of the library with one safety rule taken out, which the model must catch and shrink to a few steps.

``python -m tests.model.mutants`` tries all of them and prints what caught each, after how many scripts.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.model.script import Script, parse
from tests.support import ROOT

SCRIPTS = 3000  # the most that are run to catch one
STEPS_MAX = 8
_COPIED = ("memfiles", "mirrors", "tests")


@dataclass(frozen=True)
class Mutant:
    """What is taken out: ``old``, which occurs once in the module at ``path``, becomes ``new``."""

    name: str
    path: str
    old: str
    new: str
    mode: str = "all"


@dataclass(frozen=True)
class Catch:
    """The shrunk script that caught a mutant, what was wrong, and what it took."""

    script: Script
    violation: str
    scripts: int
    seconds: float


MUTANTS = (
    Mutant(
        "two copies are merged without removing what the other one redacted",
        "memfiles/sync/merge/merge_files.py",
        "local, remote = without(local, here, traced_after=ends[0]), without(remote, there, traced_after=ends[1])",
        "pass",
        mode="files",
    ),
    Mutant(
        "a redaction that arrives leaves the journals and the notes as they are",
        "memfiles/sync/engine.py",
        "if self.ledger.meta.state().must_wipe:",
        "if False:",
        mode="files",
    ),
    Mutant(
        "a conflict drops what was appended to the copy that loses",
        "memfiles/sync/merge/merge_files.py",
        'if step.change.op == "append"]',
        "if False]",
        mode="files",
    ),
    Mutant(
        "a tombstone buries nothing but the record that it replaced",
        "memfiles/sync/merge/merge_entries.py",
        "if tombstones or (other is not None and buries(other, record)):",
        "if other is not None and buries(other, record):",
        mode="entries",
    ),
    Mutant(
        "a copy of an entry that was moved stays where it is met",
        "memfiles/sync/merge/merge_entries.py",
        'return "here" if place_of(record, known) is None else "elsewhere"',
        'return "here"',
        mode="entries",
    ),
    Mutant(
        "an erased entry that another machine hears of stays in its index, journals and notes",
        "memfiles/sync/merge/merge_entries.py",
        "    if isinstance(record, Mark) and record.cleared:\n",
        "    if False:\n",
        mode="entries",
    ),
    Mutant(
        "entries and files of a user live on when the epoch is forgotten",
        "memfiles/sync/merge/merge_entries.py",
        "    tombstones = [mark for id in record.mortal_ids if",
        "    tombstones = [mark for id in record.ids if",
        mode="users",
    ),
    Mutant(
        "what is kept for a user who was forgotten elsewhere stays",
        "memfiles/index/database.py",
        "ON e.epoch = m.lineage AND e.epoch <> ''",
        "ON e.epoch = m.lineage AND e.epoch = ''",
        mode="users",
    ),
    Mutant(
        "the entries of a run are pushed like all others",
        "memfiles/sync/reconciler.py",
        "if local.is_private:",
        "if False:",
        mode="entries",
    ),
)


def catch(mutant: Mutant, *, scripts: int = SCRIPTS) -> Catch | None:
    """Run the model on a copy of the tree with the mutant; None if it was not caught."""
    with _built(mutant) as root:
        begun = time.monotonic()
        environment = {**os.environ, "PYTHONPATH": str(root)}
        workers = str(os.cpu_count() or 1)
        command = ("-m", "tests.model", "--mode", mutant.mode, "--count", str(scripts), "--jobs", workers)
        ended = subprocess.run([sys.executable, *command], cwd=root, env=environment, capture_output=True, text=True)
    seconds = time.monotonic() - begun
    done = re.search(r"^(\d+) scripts in", ended.stdout, re.MULTILINE)
    assert done is not None, ended.stderr
    violation = re.search(r"^## (.*)", ended.stdout, re.MULTILINE)
    if violation is None:
        return None
    return Catch(parse(ended.stdout.partition("## ")[0]), violation[1], int(done[1]), seconds)


@contextmanager
def _built(mutant: Mutant) -> Iterator[Path]:
    """A copy of the tree with one rule taken out."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        root = Path(folder)
        for name in _COPIED:
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        module = root / mutant.path
        text = module.read_text("utf-8")
        assert text.count(mutant.old) == 1, f"{mutant.name}: the code to take out is not there once"
        module.write_text(text.replace(mutant.old, mutant.new), "utf-8")
        yield root


def main() -> None:
    """Try them all."""
    for mutant in MUTANTS:
        caught = catch(mutant)
        if caught is None:
            print(f"{mutant.name}: NOT CAUGHT by {SCRIPTS} scripts")
            continue
        print(f"{mutant.name}: caught after {caught.scripts} scripts, {caught.seconds:.0f} s with the shrinking;")
        print(f"{len(caught.script.steps)} steps\n{caught.script}## {caught.violation}\n", flush=True)


if __name__ == "__main__":
    main()
