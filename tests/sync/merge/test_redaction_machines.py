"""Redactions among other changes on several machines: each interleaving keeps the promises, whoever syncs when.

Every text of a script is one word that occurs nowhere else. A word counts as written with the redactions that the
record of its writer had; a redaction takes every word that was written without it. A word may be completed after its
first half was written: what the redacting record lost of the half is lost everywhere. ``MEMFILES_SCRIPTS`` is how many
interleavings are tried.
"""

from __future__ import annotations

import os
import string
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from memfiles.errors import MemfilesError
from memfiles.records.file_changes import absorb, append, edit, undo
from memfiles.records.history import contents
from memfiles.records.record import Record, encode
from memfiles.sync.merge.merge_files import ConflictPolicy
from tests.support.records import redact
from tests.sync.merge.machines import Machine, World

pytestmark = pytest.mark.slow

Step = tuple[int, str, int]  # the machine, what it does, and to which of the words so far (the latest is 0)
VERBS = ("append", "half", "complete", "hand", "edit", "split", "again", "redact", "undo", "sync", "sync")
steps = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(VERBS), st.integers(0, 5)), max_size=24)
thorough = settings(max_examples=int(os.environ.get("MEMFILES_SCRIPTS", "200")), deadline=None)


@dataclass
class Script:
    """Some machines on which steps are taken, and what these promise."""

    world: World
    words: list[str] = field(default_factory=list)
    written: dict[str, list[set[str]]] = field(default_factory=lambda: defaultdict(list))
    redacted: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    taken: set[str] = field(default_factory=set)
    plain: set[str] = field(default_factory=set)  # only appended, so that no conflict can drop them
    halves: set[str] = field(default_factory=set)  # words whose redaction took their first half as well

    def take(self, step: Step) -> None:
        """Take one step, as far as it can be taken."""
        number, verb, which = step
        machine = self.world.machines[number % len(self.world.machines)]
        if verb == "sync":
            machine.syncs(self.world.cell)
            return
        before = machine.record
        word = self.words[-1 - which % len(self.words)] if self.words else "nothing"
        try:
            self._make(machine, verb, word)
        except (MemfilesError, AssertionError):
            return  # the text is not there, or nothing changes
        known = {piece.id for piece in before.redactions}
        for each in self.words:
            more = machine.record.content.count(each) - before.content.count(each)
            if verb == "redact" and each == word:
                self.redacted[each] |= {piece.id for piece in machine.record.redactions} - known
            elif more > 0:
                if each not in self.written and verb == "append":
                    self.plain.add(each)
                elif verb != "again":
                    self.plain.discard(each)
                self.written[each] += [known] * more
            elif more < 0:
                self.taken.add(each)

    def _make(self, machine: Machine, verb: str, word: str) -> None:
        if verb == "undo":
            machine.does(undo)
        elif verb == "redact":
            record, _ = redact(machine.record, machine.stamp(""), text=word)
            assert record is not None
            machine.keep(record.stamped(machine.origin))
            self.halves |= {word} if word[:4] not in "".join(texts_of(record)) else set()
        elif verb == "again":
            own = {piece.id for piece in machine.record.redactions}
            assert self.redacted[word] & own or word in machine.record.content
            machine.does(partial(append, text=f"{word}\n"))
        elif verb == "edit":
            machine.does(partial(edit, old=word, new=self._new()))
        elif verb == "split":
            machine.does(partial(edit, old=word, new=f"{word[:3]}{self._new()}{word[3:]}"))
        elif verb == "half":
            machine.does(partial(append, text=f"{self._new()[:4]}\n"))
        elif verb == "complete":
            assert word not in machine.record.content
            machine.does(partial(edit, old=word[:4], new=word))
        elif verb == "append":
            machine.does(partial(append, text=f"{self._new()}\n"))
        else:
            text = f"{self._new()}\n{machine.record.content}"
            machine.keep(
                absorb(replace(machine.record, content=text), known=machine.record, at=machine.now()).stamped(
                    machine.origin
                )
            )

    def _new(self) -> str:
        """A word of a letter of its own, so that an edit of one word into another keeps nothing of it."""
        letter = string.ascii_lowercase[len(self.words)]
        self.words.append("".join(letter.upper() if place in "2357" else letter for place in "01234567"))
        return self.words[-1]

    def judge(self) -> None:
        """All machines have the same in the end, and in it is what was promised and not what was redacted."""
        record = self.world.settles()
        assert 1 == len(self.world.copies())
        copies = [record, *(loser for machine in self.world.machines for loser in machine.conflicts)]
        for word, writings in self.written.items():
            left = [known for known in writings if self.redacted[word] <= known]
            found = record.content.count(word)
            assert found <= len(left), f"{word} is there {found} times, and was written {len(left)} times"
            if word in self.plain - self.taken:
                assert found == len(left), f"{word} is there {found} times, not {len(left)}"
            is_told = any(word in text for copy in copies for text in texts_of(copy))
            assert found or is_told or not left, f"{word} is not there, and no copy tells of it"
            assert left or not is_told, f"{word} was redacted, and a copy tells of it"
            is_half_told = word in self.halves and any(word[:4] in text for copy in copies for text in texts_of(copy))
            assert left or not is_half_told, f"{word} was redacted, and a copy tells of its first half"


def texts_of(record: Record) -> list[str]:
    """The bytes of a record, and every revision that it tells."""
    return [encode(record).decode(), *(after.decode() for _, after in contents(record))]


@thorough
@example([(0, "append", 0), (0, "redact", 0), (1, "append", 0), (1, "sync", 0), (1, "redact", 0)], 2, "local")
@given(steps, st.integers(2, 4), st.sampled_from(["local", "remote"]))
def test_redacted_is_gone_and_nothing_else(steps: list[Step], count: int, on_conflict: ConflictPolicy) -> None:
    """Appends, edits within other texts, undos, hand edits, texts written again, and redactions of any of them."""
    script = Script(World.of(count, content="", on_conflict=on_conflict))
    for step in steps:
        script.take(step)

    script.judge()
