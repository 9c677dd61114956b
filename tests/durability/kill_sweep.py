"""Kill sweep over operations on memory files; "living" ones are examined by a process that ran all the while.

``python -m tests.durability.kill_sweep WORKSPACE NAME...`` prints a line of JSON for each kill.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from memfiles.files.manager import MemoryManager
from memfiles.storage import atomic
from tests.durability.examination import examine, examine_by_living, unreadable
from tests.durability.operations import BAD_EXAMPLE, FILES, OPERATIONS, Operation, Rehearsal
from tests.durability.sweep import Acknowledge, Scenario, run_sweeps

LIVING = "living: "


class FileScenario:
    """An operation on memory files, killed; ``is_living``: another process has the directory open meanwhile."""

    def __init__(self, operation: Operation, *, is_living: bool = False) -> None:
        self._operation = operation
        self._is_living = is_living
        self.name = f"{LIVING if is_living else ''}{operation.name}"

    def prepare(self, base: Path) -> None:
        """See ``Scenario``."""
        self._rehearsal = Rehearsal(self._operation, base)

    def act(self, place: Path, acknowledge: Acknowledge) -> Callable[[], None]:
        """See ``Scenario``."""
        return acting(self._operation, place, acknowledge)

    def observe(self, place: Path) -> Callable[[int], list[str]]:
        """See ``Scenario``."""
        bystander = _opened(place) if self._is_living else None

        def examined(acknowledged: int) -> list[str]:
            possible = self._rehearsal.states[acknowledged : acknowledged + 2]
            problems = unreadable(place, self._rehearsal.visible)
            if bystander is None:
                return problems + examine(place, possible)
            return problems + examine_by_living(bystander, possible)

        return examined


class NewFileScenario:
    """A file that is written where there is none, as by ``memfiles init``: all of it is there, or none."""

    name = "new file"

    def prepare(self, base: Path) -> None:
        """See ``Scenario``."""
        base.mkdir(parents=True)

    def act(self, place: Path, acknowledge: Acknowledge) -> Callable[[], None]:
        """See ``Scenario``."""

        def act() -> None:
            atomic.write_new(place / "workflow.yaml", b"name: desk\n")
            acknowledge()

        return act

    def observe(self, place: Path) -> Callable[[int], list[str]]:
        """See ``Scenario``."""

        def examined(acknowledged: int) -> list[str]:
            found = [path.read_bytes() for path in place.glob("workflow.yaml")]
            return [] if found in ([b"name: desk\n"], [] if not acknowledged else None) else [f"{found} is left"]

        return examined


def acting(operation: Operation, directory: Path, acknowledge: Acknowledge) -> Callable[[], None]:
    """Everything before the operation happens now, its steps when the result is called; each is acknowledged."""
    memory = operation.start(directory)

    def act() -> None:
        for step in operation.steps:
            step(memory)
            acknowledge()

    return act


def _opened(directory: Path) -> MemoryManager:
    manager = MemoryManager(directory)
    manager.restore(FILES)
    return manager


SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for operation in [*OPERATIONS.values(), BAD_EXAMPLE]
    for scenario in (FileScenario(operation), FileScenario(operation, is_living=True))
} | {NewFileScenario.name: NewFileScenario()}


def main() -> None:
    """Sweep the operations that the command line names."""
    run_sweeps(SCENARIOS)


if __name__ == "__main__":
    main()
