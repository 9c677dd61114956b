"""Scripts: what several machines do, one step a line, made from a seed and written so that a person can follow it.

A step names its machine, its verb and the things it is about: a file (``notes``), a key (``K``), a text (``t1``). Every
text occurs once in a script as something new; ``words`` turns its name into letters that occur nowhere else. With
``age``, all clocks go on by more than deleted entries are kept; a save then erases some, and ``purge`` all. The file
``diary@ada`` is Ada's own; ``leave ada`` has a machine forget her, and whoever writes for her later begins anew. A step
that cannot be carried out (a text that is not there) is refused like the call of any user and changes nothing.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

WITH_MIRROR = ("sync", "push", "flush", "tick", "pack", "restart", "settle")  # changes of others may arrive
FILES = ("notes", "plan")
KEYS = ("K", "N", "M")
CALLERS = ("", "low", "sales", "ada", "bob")  # another level, another agent, one of two users
DIARY, USERS = "diary", ("ada", "bob")
USER_FILES = tuple(f"{DIARY}@{user}" for user in USERS)
_LETTERS = "bcdfghjkmnpqrtvwxz"  # no vowels: neither words nor endings that a stemmer removes
_HALF = 8

OFF: dict[str, str] = {}
"""The verbs that no script has for now, each with the reason, and ``apart``: keys saved before machines met.

Must be empty.
"""

FILE_VERBS = {
    **{"append": 10, "edit": 4, "cut": 2, "split": 2, "undo": 3, "back": 1, "redact": 5, "blot": 1},
    **{"hand": 1, "handcut": 1, "rewrite": 1},
}
ENTRY_VERBS = {
    **{"save": 10, "update": 3, "tag": 1, "rename": 4, "swap": 1, "share": 1, "unshare": 1, "delete": 2, "restore": 2},
    **{"takeback": 3, "goback": 1, "renew": 1},
    **{"forget": 4, "twin": 1, "episode": 2, "consolidate": 1, "unconsolidate": 1, "talk": 1, "hangup": 1},
    **{"age": 2, "purge": 2},
}
SYNC_VERBS = {
    **{"sync": 14, "push": 3, "flush": 3, "tick": 2, "pack": 1, "reopen": 2, "restart": 1, "deploy": 1, "again": 2},
    **{"amnesia": 1},
}
USER_VERBS = {"leave": 5}
PUT_BACK = {"empty": 1, "rewind": 1}  # of the bucket
VERBS = FILE_VERBS | ENTRY_VERBS | USER_VERBS | SYNC_VERBS | PUT_BACK
MODES: dict[str, dict[str, int]] = {
    "files": FILE_VERBS | SYNC_VERBS | PUT_BACK,
    "entries": ENTRY_VERBS | SYNC_VERBS | PUT_BACK,
    "users": {
        **{"append": 10, "edit": 3, "cut": 1, "split": 1, "undo": 2, "back": 1, "redact": 3, "rewrite": 1},
        **{"save": 10, "update": 3, "tag": 1, "rename": 2, "delete": 2, "restore": 1, "forget": 2, "talk": 1},
        **{"age": 1, "purge": 1},
        **USER_VERBS,
        **SYNC_VERBS,
        **PUT_BACK,
    },
    "all": VERBS,
}


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that one machine does.

    ``trouble`` is "", ``faults`` (of the mirror) or ``kill=N`` (before the Nth call that may change a file).
    """

    machine: str
    verb: str
    args: tuple[str, ...] = ()
    trouble: str = ""

    @property
    def call(self) -> str:
        """The id of the call, by which it can be repeated; "" if it has none."""
        if self.verb in ("append", "save", "update", "episode", "talk"):
            return self.args[1]
        return self.args[2] if self.verb in ("edit", "split", "rewrite") else ""

    def __str__(self) -> str:
        return " ".join([self.machine, self.verb, *self.args, *([f"!{self.trouble}"] if self.trouble else [])])


@dataclass(frozen=True, slots=True)
class Script:
    """Steps, and the world in which they happen: whose text wins a conflict, and how many entries are kept.

    ``processes``: each step is taken by a process of its own.
    """

    steps: tuple[Step, ...]
    on_conflict: str = "local"
    max_entries: int | None = None
    seed: int = 0
    processes: bool = False

    def __str__(self) -> str:
        head = f"# seed={self.seed} on_conflict={self.on_conflict} max_entries={self.max_entries}"
        head += " processes=True" if self.processes else ""
        return "\n".join([head, *map(str, self.steps)]) + "\n"

    @property
    def machines(self) -> list[str]:
        """The machines that do anything, in order."""
        return sorted({step.machine for step in self.steps})

    def of(self, steps: Sequence[Step]) -> Script:
        """The same world with other steps."""
        return replace(self, steps=tuple(steps))


def parse(text: str) -> Script:
    """The script that a person or ``str`` has written; lines that begin with ``##`` are remarks."""
    head: dict[str, str] = {}
    steps = []
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("##"):
            continue
        if line.startswith("#"):
            head = dict(pair.split("=") for pair in line.strip("# ").split())
            continue
        machine, verb, *rest = line.split()
        trouble = "".join(word[1:] for word in rest if word.startswith("!"))
        steps.append(Step(machine, verb, tuple(word for word in rest if not word.startswith("!")), trouble))
    most = head.get("max_entries", "None")
    return Script(
        tuple(steps),
        head.get("on_conflict", "local"),
        None if most == "None" else int(most),
        int(head.get("seed", 0)),
        head.get("processes") == "True",
    )


@lru_cache(None)
def words(name: str) -> str:
    """The text with this name: 16 letters; each half of them is its own.

    A text between the halves of another one is told from these: no letter at its ends could be one of theirs.
    """
    drawn = random.Random(hashlib.sha256(name.encode()).digest())
    outer, inner = _LETTERS[:_HALF], _LETTERS[_HALF:]
    among = [outer, *[_LETTERS] * (_HALF - 2), inner] + [inner, *[_LETTERS] * (_HALF - 2), outer]
    return "".join(map(drawn.choice, among))


def halves(name: str) -> tuple[str, str]:
    """Both halves of a text, which a split leaves apart."""
    return words(name)[:_HALF], words(name)[_HALF:]


def generate(seed: int, mode: str = "all", *, faults: float = 0.0, kills: float = 0.0) -> Script:
    """The script of a seed: the same one each time. ``faults`` and ``kills`` are the shares of steps with trouble."""
    return _Author(random.Random(f"{mode} {seed}"), MODES[mode], faults, kills).write(seed)


@dataclass
class _Author:
    """Writes one script, remembering what it wrote about: a step is about something that may well be there."""

    chances: random.Random
    weights: dict[str, int]
    faults: float
    kills: float
    texts: list[tuple[str, str, str]] = field(default_factory=list)  # name, file or key, machine
    written: int = 0

    def write(self, seed: int) -> Script:
        draw = self.chances
        names = "ABCD"[: draw.choices([2, 3, 4], [6, 3, 1])[0]]
        verbs = [verb for verb in self.weights if verb not in OFF]
        weights = [self.weights[verb] for verb in verbs]
        steps = [Step(name, "sync") for name in names] if draw.random() < 0.5 else []
        if "save" in verbs and (draw.random() < 0.3 or "apart" in OFF):
            steps = [Step("A", "save", (key, self._new(key, "A"))) for key in KEYS]
            steps += [Step(name, "sync") for name in names]
        machine = draw.choice(names)
        for _ in range(draw.randint(4, 18)):
            machine = machine if draw.random() < 0.5 else draw.choice(names)
            steps.append(self._step(machine, draw.choices(verbs, weights)[0]))
        policy, most = draw.choice(["local", "remote"]), draw.choice([None, None, 3]) if "save" in verbs else None
        return Script(tuple(steps), policy, most, seed, processes=self.kills > 0)

    def _step(self, machine: str, verb: str) -> Step:
        trouble = ""
        if verb in ("sync", "push", "flush", "tick", "restart") and self.chances.random() < self.faults:
            trouble = "faults"
        elif self.chances.random() < self.kills:
            trouble = f"kill={int(self.chances.expovariate(1 / 80))}"
        return Step(machine, verb, tuple(filter(None, self._args(machine, verb))), trouble)

    def _args(self, machine: str, verb: str) -> Sequence[str]:
        pick = self.chances.choice
        if verb == "leave":
            return [self._user()]
        if verb in ("append", "hand"):
            return [file := self._file(by_hand=verb == "hand"), self._new(file, machine)]
        if verb in ("edit", "split", "rewrite"):
            file, text = self._old((*FILES, *USER_FILES), "notes")
            return [file, text, self._new(file, machine)]
        if verb in ("cut", "redact", "blot", "handcut"):
            return self._old(FILES if verb == "handcut" else (*FILES, *USER_FILES), "notes")
        if verb in ("undo", "back"):
            return [self._file(), *([str(self.chances.randint(1, 3))] if verb == "back" else [])]
        if verb in ("save", "update", "episode", "talk"):
            return [key := self._key(), self._new(key, machine), self._caller()]
        if verb in ("rename", "swap"):
            return [*self.chances.sample(KEYS, 2), self._caller()]
        if verb in ("tag", "renew", "share", "unshare", "delete", "restore", "forget", "twin", "takeback"):
            return [self._key(), self._caller()]
        if verb == "goback":
            return [self._key(), str(self.chances.randint(1, 3)), self._caller()]
        if verb == "rewind":
            return [str(self.chances.randint(1, 4))]
        if verb == "again":
            mine = [name for name, _, by in self.texts if by == machine]
            return [pick(mine) if mine else "t0"]
        return []

    def _file(self, *, by_hand: bool = False) -> str:
        if self._is_for_user() and not by_hand:
            return f"{DIARY}@{self._user()}"
        return FILES[self.chances.random() < 0.15]

    def _user(self) -> str:
        return self.chances.choices(USERS, [3, 1])[0]

    def _is_for_user(self) -> bool:
        if "leave" not in self.weights:
            return False
        return self.chances.random() < (0.3 if "hand" in self.weights else 0.9)

    def _key(self) -> str:
        return self.chances.choices(KEYS, [5, 3, 1])[0]

    def _caller(self) -> str:
        return self._user() if self._is_for_user() else self.chances.choices(CALLERS[:3], [8, 1, 1])[0]

    def _new(self, about: str, machine: str) -> str:
        self.written += 1
        self.texts.append((f"t{self.written}", about, machine))
        return f"t{self.written}"

    def _old(self, among: Sequence[str], default: str) -> list[str]:
        """An earlier text, more likely one of the last."""
        known = [(about, name) for name, about, _ in self.texts if about in among]
        if not known:
            return [default, "t0"]
        weigh: Callable[[int], float] = lambda place: 1.3**place  # noqa: E731
        return list(self.chances.choices(known, [weigh(place) for place in range(len(known))])[0])
