"""What the mirror has of the files that are not on this disk: all of them at once, and in bounded time.

The rule this file guards: every asked key has an answer when the time is up, and a mirror that is down, slow,
silent or wrong is only ever the reason in such an answer; it raises nothing and keeps nobody waiting.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator

from memfiles.errors import MirrorRefused, MirrorUnavailable
from memfiles.sync.bulk_reads import THREADS, get_many, in_parallel
from memfiles.sync.mirror import Answer, Mirror
from memfiles.sync.pack import read_pack

DEADLINE_SECONDS = 30.0
SECONDS_EACH = 0.005  # more for each file: boto3 gets 400 small objects a second
SILENCE_SECONDS = 15.0  # as long as an S3 client waits for a byte
FAILURES_IN_A_ROW = 16  # prove that the mirror is down: with a third of the calls failing, once in 40 million
FEW = THREADS  # are asked for in one go, without a look at what there is
_LOOK_SECONDS = 0.02
_log = logging.getLogger("memfiles.mirror")


def fetch(
    mirror: Mirror,
    keys: Iterable[str],
    *,
    deadline_seconds: float = DEADLINE_SECONDS,
    silence_seconds: float = SILENCE_SECONDS,
) -> dict[str, Answer]:
    """The object at each key, None where there is none, or the error that says why that is not known.

    ``deadline_seconds`` is for all keys together, with 5 ms more for each. A mirror from which nothing comes for
    ``silence_seconds``, or which fails 16 times in a row, is not waited for any longer.
    """
    asked = list(dict.fromkeys(keys))
    answers: dict[str, Answer] = {}
    if asked:
        arriving = _Arriving(mirror, asked)
        answers, missing = arriving.wait(deadline_seconds + SECONDS_EACH * len(asked), silence_seconds=silence_seconds)
        answers |= {key: missing for key in asked if key not in answers}
    return answers


class _Arriving:
    """The answers of a mirror, brought by a thread that nobody has to wait for."""

    def __init__(self, mirror: Mirror, asked: list[str]) -> None:
        self._count = len(asked)
        self._answers: dict[str, Answer] = {}
        self._missing: MirrorUnavailable | None = None
        self._adding = threading.Lock()
        self._is_wanted = True
        self._done = threading.Event()
        threading.Thread(target=self._bring, args=(mirror, asked), name="memfiles-hydration", daemon=True).start()

    def wait(self, seconds: float, *, silence_seconds: float) -> tuple[dict[str, Answer], MirrorUnavailable]:
        """The answers when all are there or the mirror has had its time, and why the others are missing.

        Looked at from time to time: to be woken for each of thousands would cost as much as fetching it.
        """
        end = time.monotonic() + seconds
        heard, quiet_until = 0, time.monotonic() + silence_seconds
        while not self._done.wait(_LOOK_SECONDS) and time.monotonic() < min(end, quiet_until):
            if len(self._answers) > heard:
                heard, quiet_until = len(self._answers), time.monotonic() + silence_seconds
        with self._adding:
            self._is_wanted = False
            late = MirrorUnavailable(f"{len(self._answers)} of {self._count} answers came in time")
            return self._answers, self._missing or late

    def _bring(self, mirror: Mirror, asked: list[str]) -> None:
        try:
            self._missing = self._add_all(_answers(mirror, asked))
        except MirrorUnavailable as error:
            self._missing = error
        except Exception as error:  # the edge of the thread; someone else's mirror must not fail a start
            _log.exception("the mirror failed in a way that no mirror may")
            self._missing = MirrorUnavailable(f"the mirror failed: {type(error).__name__}: {error}")
        finally:
            self._done.set()

    def _add_all(self, arriving: Iterator[tuple[str, Answer]]) -> MirrorUnavailable | None:
        """Take answers as long as they are wanted; the last one when so many failed that the rest is not asked for."""
        failures = 0
        for key, answer in arriving:
            with self._adding:
                if not self._is_wanted:
                    return None
                self._answers[key] = answer
            failures = failures + 1 if isinstance(answer, MirrorUnavailable) else 0
            if isinstance(answer, MirrorUnavailable) and failures == FAILURES_IN_A_ROW:
                return answer
        return None


def _answers(mirror: Mirror, asked: list[str]) -> Iterator[tuple[str, Answer]]:
    """A few by a call each; many by what the mirror lists, then its pack, and the rest together."""
    if len(asked) <= FEW:
        yield from in_parallel(mirror.get, asked)
        return
    try:
        listed = dict(mirror.list())
    except MirrorRefused:  # some may get and not list
        yield from get_many(mirror, asked)
        return
    wanted = {key for key in asked if key in listed}
    yield from ((key, None) for key in asked if key not in listed)
    for key, stored in read_pack(mirror, listed=listed):
        if key in wanted:
            wanted.remove(key)
            yield key, stored
    yield from get_many(mirror, [key for key in asked if key in wanted])
