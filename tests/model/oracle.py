"""The oracle: what a script promised, learned from the records on the disks, and what may not be so in the end.

It knows nothing of how machines merge. It sees every step with the records before and after it, and keeps for each text
who wrote it, who took it away, and which removals (of redactions and forgets) that writer already had. The rules:

- a text that was appended and never taken away is there as often as it was written; any other text is there at most
  that often, and if it is not there, a history or a kept copy tells of it;
- a text of which every writing was redacted or forgotten by someone who had it, or by someone else at the same time, is
  in no byte of any machine or of the bucket;
- what was written by someone who had the redaction stands;
- an entry's value is visible at most once; one of a run is nowhere but on its machine;
- what was written for a user in an epoch that anybody forgot is in no byte of any place; what was written in another
  epoch, or for somebody else, stands;
- what a machine erased, as it was kept long enough, may be gone; it is in no byte of any place if that
  machine had every change of it that anybody ever made. What is saved under its key is another entry.
- an undo gives an entry a text that its history had, under the same id, and adds or removes none: what it takes back
  is still told.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from msgspec.json import decode as from_json

from memfiles.errors import MemfilesError
from memfiles.records.entry import Entry
from memfiles.records.entry_codec import decode_entry
from memfiles.records.history import contents
from memfiles.records.keys import user_file_path
from memfiles.records.record import decode
from tests.model.script import FILES, USER_FILES, WITH_MIRROR, Step, halves, words

Records = Mapping[str, bytes]  # the records of one place, by path
_APPENDING = ("append", "rewrite")


class Violation(Exception):
    """A promise that was broken: the rule, and what was seen."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule


@dataclass(frozen=True)
class Writing:
    """One time that a text was written: how, and which removals its writer had for certain, or may have had.

    ``parents`` are the texts that the entry held before.
    """

    verb: str
    knows: frozenset[int]
    may_know: frozenset[int]
    parents: frozenset[str] = frozenset()
    epoch: str = ""  # of the user it was written for

    def is_before(self, removal: int) -> bool:
        """Whether its writer cannot have had the removal."""
        return removal not in self.may_know


@dataclass
class Knowledge:
    """The removals that somebody has, and those that he may have."""

    sure: set[int] = field(default_factory=set)
    perhaps: set[int] = field(default_factory=set)

    def learns(self, other: Knowledge, *, surely: bool) -> None:
        self.perhaps |= other.perhaps
        if surely:
            self.sure |= other.sure


class Oracle:
    """What is promised so far. ``saw`` every step, ``met`` every contact with the bucket; ``judge`` the end."""

    def __init__(self) -> None:
        self._known: dict[str, Knowledge] = defaultdict(Knowledge)
        self._bucket = Knowledge()
        self._removals = 0
        self._names: dict[str, str] = {}  # text -> its name
        self._in_files: dict[tuple[str, str], list[Writing]] = defaultdict(list)
        self._taken: Counter[tuple[str, str]] = Counter()
        self._redacted: dict[tuple[str, str], set[int]] = defaultdict(set)
        self._fragments: set[tuple[str, str]] = set()
        self._blotted: set[str] = set()  # files that lost an end of line to a redaction
        self._in_entries: dict[str, Writing] = {}
        self._forgotten: dict[int, tuple[frozenset[str], frozenset[str]]] = {}  # texts and ids
        self._together: set[frozenset[str]] = set()
        self._touched: dict[str, set[int]] = defaultdict(set)  # text -> the changes of entries that hold it
        self._erased: dict[str, list[frozenset[int]]] = defaultdict(list)  # text -> what each of its erasers had
        self._of_runs: dict[str, str] = {}  # name -> machine
        self._hung_up: set[str] = set()
        self._dead: set[str] = set()  # epochs of users
        self._redacted_in: dict[int, str] = {}  # the epoch of the file that a redaction was made in
        self.places: dict[str, str] = {}  # name -> path of the entry that it was written to

    # What happens

    def met(self, machine: str, *, pulled: bool, pushed: bool) -> None:
        """A machine had to do with the bucket; ``pulled``, ``pushed``: it certainly got, or gave, everything."""
        self._known[machine].learns(self._bucket, surely=pulled)
        self._bucket.learns(self._known[machine], surely=pushed)

    def bucket_knows(self) -> frozenset[int]:
        """The removals that the bucket certainly has."""
        return frozenset(self._bucket.sure)

    def bucket_was_put_back(self, knows: frozenset[int] | None) -> None:
        """The bucket is as it was when it had these removals; None: empty."""
        self._bucket.sure = set(knows or ())

    def saw(self, step: Step, before: Records, after: Records, *, done: bool) -> None:
        """A step was taken, and perhaps refused; a refused one may still be half of what a killed one did."""
        for name in step.args:
            if name.startswith("t") and name[1:].isdigit():
                self._names.setdefault(words(name), name)
        changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
        self._dead |= {str(from_json(after[path])["uid"]) for path in changed if b'"@users"' in after.get(path, b"")}
        if step.verb == "leave":
            pass
        elif step.verb in ("redact", "blot"):
            self._redacts(step, before, after, done=done)
        elif step.verb == "forget":
            self._forgets(step, before, after, done=done)
        else:
            for file in (*FILES, *USER_FILES):
                if path_of(file) in changed and step.verb not in WITH_MIRROR:  # what arrives was written elsewhere
                    self._writes_file(step, file, before, after)
            self._writes_entry(step, before, after)
        if step.verb not in WITH_MIRROR:
            self._touches(step, changed, before, after)
        if step.verb in ("takeback", "goback") and done:
            self._takes_back(step, before, after, changed)
        if step.verb == "hangup" and done:
            self._hung_up |= {name for name, machine in self._of_runs.items() if machine == step.machine}
        self.looks(after, changed)

    def looks(self, after: Records, changed: Iterable[str]) -> None:
        """Note which texts and ids are in one entry: whoever forgets one of them forgets, or may forget, the others."""
        for path in changed:
            if path.startswith("entries/") and b'"sources"' not in after.get(path, b""):
                self._together.add(frozenset(self._names_in(after.get(path, b"")) | _ids_in(after.get(path, b""))))

    def _writing(self, step: Step, body: bytes, parents: frozenset[str] = frozenset()) -> Writing:
        known, epoch = self._known[step.machine], str(from_json(body).get("epoch", "")) if body else ""
        return Writing(step.verb, frozenset(known.sure), frozenset(known.perhaps), parents, epoch)

    def _writes_file(self, step: Step, file: str, before: Records, after: Records) -> None:
        was, now = (content_of(records.get(path_of(file), b"")) for records in (before, after))
        for text, name in self._names.items():
            more = now.count(text) - was.count(text)
            if more > 1 and step.call:
                raise Violation("doubled", f"{step} put {name} there {more} times")
            self._in_files[file, name] += [self._writing(step, after.get(path_of(file), b""))] * max(0, more)
            self._taken[file, name] += max(0, -more)

    def _writes_entry(self, step: Step, before: Records, after: Records) -> None:
        if step.verb not in ("save", "update", "episode", "talk") or step.args[1] in self._in_entries:
            return
        name = step.args[1]
        for path, body in after.items():
            if path.startswith("entries/") and words(name).encode() in body and path not in before:
                self._in_entries[name] = self._writing(step, body)
                self.places[name] = path
            elif path.startswith("entries/") and words(name).encode() in body:
                parents = set() if _is_erased_by(before[path], body) else self._names_in(before[path])
                self._in_entries[name] = self._writing(step, body, frozenset(parents))
                self.places[name] = path
        if step.verb == "talk" and name in self._in_entries:
            self._of_runs[name] = step.machine

    @staticmethod
    def _takes_back(step: Step, before: Records, after: Records, changed: set[str]) -> None:
        """Whatever an undo changes is an entry that was there, whose content was one of its own before."""
        for path in (path for path in changed if path.startswith("entries/") and content_at(after.get(path, b""))):
            was = [content_at(before.get(path, b"")), *_contents(path, before.get(path, b"{}"))]
            now = [content_at(after[path]), *_contents(path, after[path])]
            if now[0] not in was or not {*was} <= {*now}:
                raise Violation("undone wrongly", f"{step} left {path} with {now}; it had {was}")
            if _ids_in(before[path]) != _ids_in(after[path]):
                raise Violation("undone wrongly", f"{step} gave {path} another id")

    def _redacts(self, step: Step, before: Records, after: Records, *, done: bool) -> None:
        file, name = step.args
        path, text = path_of(file), words(name)
        was = content_of(before.get(path, b""))
        if not done or before.get(path) == after.get(path):
            return
        if any(text not in it and halves(name)[0] in it for it in [was, *_contents(path, before[path])]):
            self._fragments.add((file, name))  # its redactor saw it cut in two, and asked for the whole
        self._blotted |= {file} if step.verb == "blot" else set()
        if step.verb == "blot" and text in content_of(after.get(path, b"")):
            return  # in the middle of another line, which is not what was redacted
        removal = self._removed_by(step.machine)
        self._redacted[file, name].add(removal)
        self._redacted_in[removal] = str(from_json(before[path]).get("epoch", ""))

    def _forgets(self, step: Step, before: Records, after: Records, *, done: bool) -> None:
        if done:
            left = set().union(*map(self._names_in, after.values()))
            gone = set().union(*map(self._names_in, before.values())) - left
            ids = {_buried_in(body) for path, body in after.items() if before.get(path) != body} - {""}
            self._forgotten[self._removed_by(step.machine)] = frozenset(gone & self._in_entries.keys()), frozenset(ids)

    def _touches(self, step: Step, changed: Iterable[str], before: Records, after: Records) -> None:
        """Note which texts a step changed entries of, and which of them it erased."""
        of_entries = [path for path in changed if path.startswith("entries/")]
        erased = [path for path in of_entries if _is_erased_by(before.get(path, b""), after.get(path, b""))]
        for path in erased:
            for name in self._names_in(before.get(path, b"")):
                if not any(name in self._names_in(body) for body in after.values()):
                    self._erased[name].append(frozenset(self._known[step.machine].sure))
        change = self._removed_by(step.machine) if of_entries else 0
        for path in of_entries:
            for body in (b"" if path in erased else before.get(path, b""), after.get(path, b"")):
                for name in self._names_in(body):
                    self._touched[name].add(change)

    def _removed_by(self, machine: str) -> int:
        self._removals += 1
        for knowledge in (self._known[machine].sure, self._known[machine].perhaps):
            knowledge.add(self._removals)
        return self._removals

    def _names_in(self, body: bytes) -> set[str]:
        if body.startswith(b"{"):
            text = body.decode()
            return {name for words_, name in self._names.items() if words_ in text}
        return set()

    # What must be so in the end

    def judge(self, records: Records, kept: Iterable[tuple[str, bytes]]) -> None:
        """Raise ``Violation`` unless the records that all have in the end, and the ``kept`` copies, are right."""
        copies = [*kept, *records.items()]
        for (file, name), writings in self._in_files.items():
            self._judge_line(file, name, writings, content_of(records.get(path_of(file), b"")), copies)
        gone, doubtful = self._forgotten_texts()
        live = [body for path, body in records.items() if path.startswith("entries/") and is_live(body)]
        for name in self._in_entries:
            if name in gone or name in self._of_runs or name in self._erased_texts() or self._in_dead_epoch(name):
                continue
            seen = sum(words(name).encode() in body for body in live)
            if seen > 1:
                raise Violation("doubled", f"{name} is the value of {seen} entries")
            if not seen and name not in doubtful and name not in self._erased and not tells_any(copies, words(name)):
                raise Violation("lost", f"{name} was saved and is in no entry, history or kept copy")

    def gone(self) -> dict[str, list[bytes]]:
        """The texts that may be nowhere: by name the letters to look for."""
        gone = {name: [words(name)] if at in self._fragments else halves(name) for at, name in self._gone_lines()}
        gone |= {name: halves(name) for name in (*self._forgotten_texts()[0], *self._erased_texts())}
        gone |= {name: halves(name) for name in self._in_entries if self._in_dead_epoch(name)}
        return {name: [text[1:].encode() for text in texts] for name, texts in gone.items()}

    def private(self, machine: str | None) -> dict[str, list[bytes]]:
        """The texts of runs of other machines than this one (None: the bucket)."""
        return {name: [words(name)[1:].encode()] for name, owner in self._of_runs.items() if owner != machine}

    def over(self, machine: str) -> set[str]:
        """The texts of runs of this machine that are over: in none of its records."""
        return {name for name in self._hung_up if self._of_runs[name] == machine}

    def _in_dead_epoch(self, name: str) -> bool:
        return self._in_entries[name].epoch in self._dead

    def _erased_texts(self) -> set[str]:
        """The texts that must be gone: somebody erased them who had all changes that there ever were of them.

        Changes of an entry that was joined with theirs count: the mark of an erasure yields to a change it lacks.
        """
        touched = {name: self._touched[name].copy() for name in self._erased}
        for group in self._together:
            changes = set[int]().union(*(self._touched[name] for name in group & self._touched.keys()))
            for name in group & touched.keys():
                touched[name] |= changes
        return {name for name, erasers in self._erased.items() if any(touched[name] <= had for had in erasers)}

    def _gone_lines(self) -> Iterable[tuple[tuple[str, str], str]]:
        in_dead = {at: set[int]() for at, made in self._in_files.items() if any(it.epoch in self._dead for it in made)}
        for at, removals in (in_dead | self._redacted).items():
            written_elsewhere = any(name == at[1] and file != at[0] for file, name in self._in_files)
            if not written_elsewhere and all(self._is_covered(it, removals) for it in self._in_files[at]):
                yield at, at[1]

    def _is_covered(self, writing: Writing, removals: Iterable[int]) -> bool:
        return writing.epoch in self._dead or any(
            writing.is_before(removal) for removal in removals if self._redacted_in[removal] == writing.epoch
        )

    def _judge_line(
        self, file: str, name: str, writings: list[Writing], content: str, copies: list[tuple[str, bytes]]
    ) -> None:
        removals, count = self._redacted.get((file, name), set()), content.count(words(name))
        left = [it for it in writings if not self._is_covered(it, removals)]
        sure = [it for it in left if removals <= it.knows]
        is_plain = not self._taken[file, name] and all(it.verb in _APPENDING for it in sure)
        is_plain = is_plain and file not in self._blotted
        if count > len(left):
            raise Violation("doubled", f"{name} is in {file} {count} times and was written {len(left)} times")
        if is_plain and count < len(sure):
            raise Violation("lost", f"{name} was appended to {file} {len(sure)} times and is there {count} times")
        if sure and not count and not tells_any(copies, words(name)):
            raise Violation("lost", f"{name} is not in {file}, and no history or kept copy tells of it")

    def _forgotten_texts(self) -> tuple[set[str], set[str]]:
        """The texts that must be gone, and those that may be: of an entry that was joined with a forgotten one.

        That includes what was saved to the entry by a machine that knew of the forget and not of the join.
        """
        gone: set[str] = set()
        doubtful: set[str] = set()
        for removal, (texts, ids) in self._forgotten.items():
            own = _closure(texts, partial(self._descends, removal), self._in_entries)
            gone |= own
            known_of = self._in_entries.keys() | set().union(*self._together)
            joined = _closure(own | ids, partial(self._may_be_with, removal), known_of)
            ids_joined = joined - ids - self._in_entries.keys()
            doubtful |= joined.union(*(names for names in self._together if names & ids_joined))
        return gone, doubtful - gone

    def _descends(self, removal: int, name: str, texts: set[str]) -> bool:
        writing = self._in_entries[name]
        return writing.is_before(removal) and bool(writing.parents & texts)

    def _may_be_with(self, removal: int, name: str, texts: set[str]) -> bool:
        if name in self._in_entries and removal in self._in_entries[name].knows:
            return False
        return any(name in names and names & texts for names in self._together)


def _closure(texts: Iterable[str], joins: Callable[[str, set[str]], bool], among: Iterable[str]) -> set[str]:
    """The texts, and whatever joins them, again and again."""
    found = set(texts)
    while more := {name for name in among if name not in found and joins(name, found)}:
        found |= more
    return found


def path_of(file: str) -> str:
    """The path of the record of a file, such as ``notes`` or ``diary@ada``."""
    uid, _, user = file.partition("@")
    return user_file_path(user, uid) if user else f"{file}.json"


def content_of(body: bytes) -> str:
    """The content of a memory file's record; "" if there is none."""
    return str(from_json(body).get("content", "")) if body else ""


def content_at(body: bytes) -> str:
    """The content of an entry's record; "" if it has none."""
    return str(from_json(body).get("content", "")) if body else ""


def _ids_in(body: bytes) -> set[str]:
    """The ids of the entry in a record, of which forgetting any forgets all."""
    found = from_json(body) if body else {}
    return {found["id"], *found.get("aliases", ())} if found.get("type") == "entry" and "id" in found else set()


def _buried_in(body: bytes) -> str:
    """The id that a record buries; "" if it is not a tombstone."""
    found = from_json(body)
    return str(found["uid"]) if found.get("type") == "tombstone" else ""


def is_erased(body: bytes) -> bool:
    """Whether this is what is left of an entry that was erased."""
    return b'"cleared":true' in body


def _is_erased_by(before: bytes, after: bytes) -> bool:
    """Whether an entry was erased by a change of its record, be it a save of another entry."""
    ids = _ids_in(before)
    return bool(ids) and (is_erased(after) or bool(_ids_in(after)) and ids.isdisjoint(_ids_in(after)))


def is_live(body: bytes) -> bool:
    """Whether this is an entry that can be seen, and no note that a consolidation made of others."""
    found = from_json(body)
    return found.get("type") == "entry" and not found.get("retired") and not found.get("sources")


def tells_any(copies: Iterable[tuple[str, bytes]], text: str) -> bool:
    """Whether a record or its history tells of a text."""
    return any(_tells(path, body, text) for path, body in copies)


def _tells(path: str, body: bytes, text: str) -> bool:
    return text.encode() in body or any(text in content for content in _contents(path, body))


def _contents(path: str, body: bytes) -> list[str]:
    """The content of a record's text after each change that its history keeps; none of a damaged one."""
    try:
        if not path.startswith("entries/"):
            return [content.decode() for _, content in contents(decode(body, uid=path.removesuffix(".json")))]
        entry = decode_entry(body, path=path)
        return [content.decode() for _, content in contents(entry.text)] if isinstance(entry, Entry) else []
    except MemfilesError:
        return []
