"""What the synchronisation is told and what it tells: settings in, status and reports out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from memfiles.workflow.workflow import MirrorSpec

Outcome = Literal["equal", "pushed", "pulled", "merged", "conflict"]
OUTCOMES: tuple[Outcome, ...] = ("equal", "pushed", "pulled", "merged", "conflict")  # the later tells more


@dataclass(frozen=True, slots=True)
class SyncSettings:
    """``url`` names the mirror; ``pull_seconds`` is how often it is looked at for changes (None: never by itself)."""

    url: str = "given by the program"
    on_conflict: Literal["local", "remote"] = "local"
    pull_at_start: bool = False
    pull_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class SyncStatus:
    """How far the mirror is behind; ``mirror`` is None where there is none.

    ``pending`` counts the records whose last change the mirror has not acknowledged, ``lag_seconds`` is how long the
    one called ``oldest_pending`` has been waiting. ``last_error`` is what last went wrong, None once all went well.
    ``conflicts`` are the losing copies that were kept.
    """

    mirror: str | None = None
    pending: int = 0
    oldest_pending: str | None = None
    lag_seconds: float = 0.0
    last_error: str | None = None
    conflicts: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """A JSON object with every field."""
        return {**asdict(self), "conflicts": list(self.conflicts)}


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What a pull or push did: the outcome for each record it looked at, by path, and what is still pending.

    ``equal``: nothing to do; ``pushed``: the mirror has it now; ``pulled``: the mirror's was taken; ``merged``: both
    writers' changes are in both copies now; ``conflict``: so are those that agree, and the losing copy was kept.
    """

    outcomes: Mapping[str, Outcome]
    pending: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """A JSON object of the whole report."""
        return {"records": dict(self.outcomes), "pending": list(self.pending)}


def settings_of(declared: MirrorSpec | None) -> SyncSettings:
    """The settings that a workflow declares."""
    if declared is None:
        return SyncSettings()
    seconds = float(declared.pull) if isinstance(declared.pull, int) else None
    at_start = declared.pull != "cold-start"
    return SyncSettings(declared.url, declared.on_conflict, pull_at_start=at_start, pull_seconds=seconds)
