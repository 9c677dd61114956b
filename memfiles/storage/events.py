"""Change events: callbacks that hear of every change of a record, and the audit log of who did what to which record.

The rules this file guards: a callback that fails disturbs nobody; a line of the audit log says that something was done
or refused, and holds no content, no key and no free text; a change by a program with memfiles is logged by that
program alone, and a change by hand or from the mirror by each program that notices it; lines of several processes never
mix, as each write to the file, opened for appending, has whole lines; and no operation fails because of its log, nor
waits for a flush: the log says what happened, and is not what makes it durable. A line that may wait waits for no
write until there are 64 KiB, and lines that may not are written together, by whoever has the turn.

A line waits in memory for at most a second, so a kill loses no more than that. Written at once are refusals, failures,
what makes content go or leave, and every line that names a user: whoever forgets the user has to find it.
"""

import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby, repeat
from operator import attrgetter, itemgetter
from queue import Empty, SimpleQueue
from typing import Any, Literal, TypeVar

from msgspec import Struct

from memfiles.errors import InvalidArgument, MemfilesError, StorageFailed, reason_of
from memfiles.records import late_logger as _log
from memfiles.records import to_json
from memfiles.records.keys import ID_PATHS, USERS, user_in
from memfiles.records.record import NOBODY, Actor
from memfiles.storage.fork_safety import join_thread, renew_in_child, start_thread
from memfiles.storage.home import AUDIT, AuditPages, MemoryHome, MemoryPlace, home_of

_FIELDS = "op outcome path level agent run call code count user actor bytes plan paths".split()
_values_of = attrgetter(*_FIELDS)
_PATHS_MAX = 200  # records in one line of the audit log
_LONGEST_WAIT_SECONDS = 1.0
_WAITING_BYTES_MAX = 64 * 1024
_AT_ONCE = frozenset({"forget", "redact", "purge", "export", "forget-user", "export-user"})
REFUSED = ("read_only", "level_denied", "secret_refused", "budget_exceeded", "size_exceeded")
Progress = Callable[[int, int], None]
"""Called with the work that is done and the whole of it, by any thread."""

Origin = Literal["local", "process", "external", "restored", "mirror"]
AuditOutcome = Literal["ok", "refused", "failed"]
OUTCOMES: tuple[AuditOutcome, ...] = ("ok", "refused", "failed")
T = TypeVar("T")
_second = (0, "")  # the last second formatted: formatting costs five times as much as the rest


def reported(items: Sequence[T], progress: Progress | None, *, part: int = 1, parts: int = 1) -> Iterator[T]:
    """The items of one of several equal parts of the work, each reported once it is done. ``InvalidArgument``."""
    if progress is not None and not callable(progress):
        raise InvalidArgument(f"progress must be a function of done and total, not {type(progress).__name__}")
    for number, item in enumerate(items, 1):
        yield item
        if progress is not None:
            progress((part - 1) * len(items) + number, parts * len(items))


def utc_now() -> str:
    """The current time as ``2026-11-21T09:00:00.000Z``, the form it has in records. It never decides an order."""
    global _second
    second, millisecond = divmod(time.time_ns() // 1_000_000, 1000)
    known, text = _second
    if second != known:
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        _second = (second, text)
    return f"{text}.{millisecond:03d}Z"


class RecordChanged(Struct, frozen=True):
    """A memory file or an entry has a new revision.

    ``origin``: local (this manager), process (another process with memfiles, or another manager in this one), external
    (a person or another program), restored (the record was deleted or broken, and the last good version was put back;
    ``warning`` says why), mirror (fetched from the mirror, or merged with its copy). Of changes in quick succession,
    only the last may be told. Two threads may tell of two changes at once, the later one first: the revision gives the
    order. ``path`` is the record's path; an entry's ``name`` is its key, "" once forgotten. ``op`` is ``remove`` if the
    file of an entry was removed by hand: it is gone, but not forgotten. ``grown_bytes`` is by how much the content that
    agents can see grew, as far as this process knows. ``erased``: this change, or one before it that was not told, may
    have redacted, forgotten or purged a text.
    """

    uid: str
    name: str
    revision: int
    op: str
    origin: Origin
    warning: str | None = None
    path: str = ""
    level: str = ""
    by: Actor = NOBODY
    grown_bytes: int = 0
    erased: bool = False


class Subscribers:
    """The callbacks for every change, called in the thread that made or noticed it."""

    def __init__(self) -> None:
        self._callbacks: dict[object, tuple[Callable[[RecordChanged], None], bool]] = {}

    def add(self, callback: Callable[[RecordChanged], None], *, foreign_only: bool = False) -> Callable[[], None]:
        """Call ``callback`` for every change from now on; returns a function that ends the subscription.

        ``foreign_only`` leaves out the changes that this process made.
        """
        key = object()
        self._callbacks[key] = callback, foreign_only
        return lambda: self._callbacks.pop(key, None) and None

    def tell(self, events: Iterable[RecordChanged]) -> None:
        """Call every callback; one that raises is logged and disturbs neither the change nor the others.

        The caller holds no lock, as a callback may change memory files itself.
        """
        for event in events:
            for callback, foreign_only in list(self._callbacks.values()):
                if event.origin == "local" and foreign_only:
                    continue
                try:
                    callback(event)
                except Exception:
                    _log.exception("a callback for changes of memory files failed")


class AuditEvent(Struct, frozen=True):
    """Something that was done, or was refused.

    ``op`` is the operation's name (``save``, ``forget``, ``evict``); ``outcome`` is ``ok``, ``refused`` or ``failed``,
    and ``code`` then the error's code. ``path`` is the record's path in the memory directory, ``count`` the number of
    records concerned, ``paths`` those of a read. ``agent``, ``run``, ``call`` and ``actor`` say who did it,
    ``user`` for whom: a hash of the name. ``bytes`` is by how much the content that agents can see grew. ``plan`` is
    the id of a plan, by which it is undone. ``at`` is the time of a logged event.
    """

    op: str
    outcome: AuditOutcome = "ok"
    path: str | None = None
    level: str | None = None
    agent: str | None = None
    run: str | None = None
    call: str | None = None
    code: str | None = None
    count: int | None = None
    user: str | None = None
    actor: str | None = None
    bytes: int | None = None
    plan: str | None = None
    paths: tuple[str, ...] | None = None
    at: str = ""

    def to_dict(self) -> dict[str, Any]:
        """A JSON object of what is known."""
        return _line_of(self, self.at) | ({"paths": list(self.paths)} if self.paths is not None else {})


class _ChangeLine(Struct, frozen=True, omit_defaults=True, gc=False):
    """The line of a change. A struct, as every change comes through here; what is not known is left out."""

    at: str
    op: str
    outcome: AuditOutcome
    path: str
    level: str
    agent: str | None = None
    run: str | None = None
    call: str | None = None
    user: str | None = None
    actor: str | None = None
    bytes: int = 0


class AuditLog:
    """The audit log of one memory. Threads may share it; processes have their own.

    A forked child starts without the lines that wait here.
    """

    def __init__(self, where: MemoryPlace, *, reads: bool = False, now: Callable[[], str] = utc_now) -> None:
        """Nothing is made before the first event. ``reads``: the log says who read what."""
        self.reads = reads
        self._now = now
        self._lines = _Lines(home_of(where))
        weakref.finalize(self, self._lines.flush)  # of a log that is dropped without a close, and at the end of Python

    def record(self, event: AuditEvent) -> None:
        """Append ``event``; never raises. A failing log is reported once, until it works again."""
        at_once = event.outcome != "ok" or event.user is not None or event.op in _AT_ONCE
        self._write(_line_of(event, at := self._now()), at, at_once=at_once)

    def flush(self) -> None:
        """Write the lines that wait; never raises."""
        self._lines.flush()

    def blank_runs(self, tombstones: Collection[str], user_of: Callable[[str], str]) -> bool:
        """See ``AuditPages.blank``; False after a failure, which is reported as of ``record``."""
        self._lines.flush()
        try:
            self._lines.pages.blank(tombstones, user_of)
        except (OSError, MemfilesError) as error:
            self._lines.report(error)
            return False
        return True

    def record_change(self, event: RecordChanged) -> None:
        """Log a change, as a subscriber; changes of other processes are logged there."""
        if event.origin != "process" and not event.path.startswith(ID_PATHS):  # the entry's own record has it
            by, at, op, path = event.by if event.origin == "local" else NOBODY, self._now(), event.op, event.path
            user = by.user or (user_in(path) if USERS in path else None)
            who = by.agent, by.session, by.call, user, by.actor
            line = _ChangeLine(at, op, "ok", path, event.level, *who, event.grown_bytes)
            self._write(line, at, at_once=user is not None or op in _AT_ONCE)

    def record_read(self, op: str, paths: Sequence[str], *, by: Actor, level: str) -> None:
        """Log which records a read returned, some hundred a line; one that returned nothing is a line as well."""
        for start in range(0, max(1, len(paths)), _PATHS_MAX) if self.reads else ():
            some = tuple(paths[start : start + _PATHS_MAX])
            self.record(event_by(by, op, level=level, call=by.call, count=len(some), paths=some))

    def record_refusal(self, error: BaseException, op: str, *, by: Actor, level: str) -> None:
        """Log a refused call; one that failed for another reason is not a refusal."""
        if isinstance(error, MemfilesError) and error.code in REFUSED:
            self.record(event_by(by, op, outcome="refused", level=level, code=error.code))

    def close(self) -> None:
        """Write the lines that wait, and close the file; it is open only for the moment of a later event."""
        self._lines.close()

    def _write(self, line: dict[str, Any] | _ChangeLine, at: str, *, at_once: bool) -> None:
        try:
            written = to_json(line) + b"\n"
        except ValueError as error:
            self._lines.report(error)
            return
        self._lines.add(at[:7] + ".jsonl", written, at_once=at_once)


class _Lines:
    """The lines of an audit log that wait, and where they go."""

    def __init__(self, home: MemoryHome) -> None:
        self._home = home
        self._pages: AuditPages | None = None
        self._failing = self._is_closed = False
        self._renew()
        renew_in_child(self, _Lines._renew)

    @property
    def pages(self) -> AuditPages:
        """Where the lines go; not loaded before something happens."""
        if self._pages is None:
            self._pages = self._home.audit
        return self._pages

    def _renew(self) -> None:
        """Start without lines and without an open file, also in a forked child: both are the parent's."""
        self._lock = threading.RLock()  # of the timer: it is never held for long
        self._turn = threading.RLock()  # of whoever writes; a signal handler may come while either is held
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._waiting_bytes = 0
        self._timer: threading.Thread | None = None
        self._written = SimpleQueue[None]()  # an interrupt in an Event could leave that locked
        self._is_noted = self._is_away = False
        self._let_go()

    def add(self, name: str, line: bytes, *, at_once: bool) -> None:
        """Write a line to the file of that name, within a second or at once."""
        self._waiting.append((name, line))  # before the timer is asked for: one that ends now still takes it
        with self._lock:
            self._waiting_bytes += len(line)
            is_due = at_once or self._is_closed or self._waiting_bytes >= _WAITING_BYTES_MAX
        if is_due:
            self._write(is_hurried=not self._is_closed)
        if self._waiting and not self._is_timed():
            self.flush()

    def flush(self) -> None:
        """Write the lines that wait, and end the timer."""
        with self._lock:
            if self._timer is not None:
                self._written.put(None)
            self._timer = None
        self._write(is_hurried=False)

    def _write(self, *, is_hurried: bool) -> None:
        """Write the waiting lines in order; a line that cannot be written is lost, and that is reported.

        ``is_hurried``: the lines go on waiting while a server is away, as their operations are acknowledged already.
        Threads take turns, each with all waiting lines, so the second of many has nothing left to write. Whoever has
        the turn never takes the other lock, so a signal handler that holds the other may wait for the turn.
        """
        with self._lock:
            self._waiting_bytes = 0
        if is_hurried and self._is_away:  # whoever waits for the server takes these lines along
            return
        with self._turn:
            lines: list[tuple[str, bytes]] = []
            try:
                with suppress(IndexError):  # a signal handler has taken them
                    # In one step, as an interrupt may come between two; and no more than there are now.
                    lines.extend(map(deque.popleft, repeat(self._waiting, len(self._waiting))))
                while lines:
                    name, of_month = next(groupby(lines, key=itemgetter(0)))
                    done = self._append(name, [line for _, line in of_month], is_hurried=is_hurried)
                    del lines[:done]
                    if not done:
                        break
            finally:  # of an interrupt, or of a server that is away: the next flush writes them, at worst again
                self._waiting.extendleft(reversed(lines))
            if self._is_closed:
                self._let_go()

    def _append(self, name: str, lines: list[bytes], *, is_hurried: bool) -> int:
        """Write these lines, or report that they are lost; returns how many they are, 0 if they may go on waiting."""
        try:
            self.pages.append(name, b"".join(lines), is_hurried=is_hurried)
            self._failing = self._is_away = False
        except (OSError, MemfilesError) as error:
            is_away = isinstance(error, StorageFailed) and error.transient and self._home.directory is None
            self._is_away = is_hurried and is_away
            if self._is_away:
                return 0
            self.report(error)
            self._let_go()
        return len(lines)

    def close(self) -> None:
        """Write the lines that wait, and close the file after each later one."""
        with self._lock:
            timer, self._is_closed = self._timer, True
        self.flush()
        join_thread(timer)

    def report(self, error: Exception) -> None:
        """Say that the log cannot be written, once until it works again."""
        if not self._failing:
            self._failing = True
            why = reason_of(error)
            _log.tell(f"the audit log in {AUDIT} cannot be written; operations continue without it: {why}")

    def _let_go(self) -> None:
        if self._pages is not None:
            self._pages.let_go()

    def _note_end(self) -> None:
        """Flush at the end of a process that multiprocessing forked, which leaves out ``atexit``."""
        self._is_noted = True
        finalize = getattr(sys.modules.get("multiprocessing.util"), "Finalize", None)  # None while it is imported
        if finalize is not None:
            finalize(self, _flush, args=(weakref.ref(self),), exitpriority=0)

    def _is_timed(self) -> bool:
        """Whether a thread writes the lines within a second; see ``_start_timer``."""
        with self._lock:
            return (self._timer is not None and self._timer.is_alive()) or self._start_timer()  # one may never start

    def _start_timer(self) -> bool:
        """Start a thread that flushes in a second; False if none can be started, or Python is ending."""
        if not self._is_noted:
            self._note_end()
        self._written = SimpleQueue()
        self._timer = threading.Thread(target=self._wait, args=[self._written], name="memfiles-audit", daemon=True)
        return start_thread(self._timer)

    def _wait(self, written: SimpleQueue[None]) -> None:
        try:
            written.get(timeout=_LONGEST_WAIT_SECONDS)
        except Empty:
            self.flush()


def _flush(lines: weakref.ref[_Lines]) -> None:
    if (alive := lines()) is not None:
        alive.flush()


def event_by(who: Actor, op: str, **said: Any) -> AuditEvent:
    """An event of this operation, done by ``who``."""
    return AuditEvent(op, agent=who.agent, run=who.session, user=who.user, actor=who.actor, **said)


def _line_of(event: AuditEvent, at: str) -> dict[str, Any]:
    """The JSON object of an event: its time and what is known."""
    known = zip(_FIELDS, _values_of(event), strict=True)
    return {"at": at, **{name: value for name, value in known if value is not None}}
