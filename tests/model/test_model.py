"""Whatever several machines do with their memories and one mirror, in whatever order: the promises of ``oracle`` hold.

``MEMFILES_SCRIPTS`` is how many scripts of each kind are run, and ``MEMFILES_KILLED_SCRIPTS`` how many with kills, by
default a few; ``make sweeps`` runs many.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from tests.model.__main__ import outcome, shrunk
from tests.model.mutants import MUTANTS, STEPS_MAX, Mutant, catch
from tests.model.script import MODES, Step, generate, parse
from tests.model.shrink import shrink
from tests.model.world import quiet, run
from tests.support import ROOT, programs

IS_SWEEP = "MEMFILES_SCRIPTS" in os.environ
SCRIPTS = int(os.environ.get("MEMFILES_SCRIPTS", "20"))
KILLED_SCRIPTS = int(os.environ.get("MEMFILES_KILLED_SCRIPTS", "6"))
WORKERS = (os.cpu_count() or 1) if IS_SWEEP else 1
PROCESSES = "# processes=True\n"
HEADS = ["", pytest.param(PROCESSES, marks=pytest.mark.slow)]
LONGEST_SECONDS = 120


@pytest.mark.slow
@pytest.mark.parametrize("faults", [0.0, 0.4])
@pytest.mark.parametrize("mode", list(MODES))
def test_no_script_breaks_a_promise(mode: str, faults: float) -> None:
    """With a mirror that answers, and with one that is busy, loses calls and answers, or gives an earlier list."""

    count = max(1, SCRIPTS // 10) if IS_SWEEP and faults else SCRIPTS

    assert [] == failures(count, mode=mode, faults=faults, kills=0.0)


@pytest.mark.slow
def test_no_kill_breaks_a_promise() -> None:
    """Machines are processes that SIGKILL ends before any call that changes a file; a call is then made again."""

    assert [] == failures(KILLED_SCRIPTS, mode="all", faults=0.2, kills=0.3)


FOUND = {
    "an entry follows to a forgotten one's key": "A save K t1;A save N t2;A sync;B save N t5;A forget K;A rename N K",
    "an entry moves twice before another machine looks": "A save N t1;A sync;B rename N M;B sync;B rename M K",
    "an earlier value there, before the machines met": "C save K t2;C save K t3;A save K t5;A push",
    "an earlier value here, before the machines met": "A save K t3;A save K t4;C save K t6;C sync",
    "a forgotten key, saved apart": "C save K t2;C forget K;B save K t3",
    "a key forgotten and saved anew, renamed elsewhere": "A save M t3;A sync;A forget M;A save M t7;C rename M K",
    "a moved entry and a repeated call": "A save K t1;A share K;A save K t5;A again t1",
    "swapped while one was forgotten": "A save K t1;A save N t2;A sync;D swap K N;A forget K;A save K t6;A sync",
    "swapped while one was changed": "A save N t2;A save M t3;A sync;C swap N M;A update N t9;A save M t12",
    "moved under the key of a deleted one": "A save M t2;A save N t3;A save M t5;A push;A delete M;A rename N M",
    "joined with a deleted one that moves": "A save N t2;A sync;A save M t4;A delete N;A rename M N;B rename N K",
    "joined with one that moved before": "A sync;B save N t2;B sync;B rename N M;A save K t4;A rename K N",
    "joined with a forgotten one, and saved to elsewhere": (
        "# max_entries=3;A save K t1;A save N t2;A sync;A forget K;B consolidate;B rename N K;A save N t7"
    ),
    "renamed to a key that is changed": "B save N t1;B sync;A rename N K;B save K t4",
    "a bucket put back": "A flush;A append notes t2;B append notes t4;B sync;C rewind 2;C append notes t7",
    "a conflict over a user's line that was redacted": (
        "# on_conflict=remote;A append diary@ada t1;A tick;A back diary@ada 2;B edit diary@ada t1 t3;"
        "B redact diary@ada t1;B flush"
    ),
    "a last letter alike by chance": "A append notes t4;A push;B sync;A edit notes t4 t6;B redact notes t4",
    "a line redacted, whose text is also in another line": (
        "B append notes t4;B split notes t4 t5;B rewrite notes t5 t7;B blot notes t5"
    ),
    "one half redacted around an insert": "A append notes t1;A tick;A redact notes t1;B split notes t1 t2",
}
"""Scripts that broke a promise once."""


@pytest.mark.parametrize("steps", FOUND.values(), ids=list(FOUND))
def test_what_was_found_stays_mended(steps: str) -> None:
    """Each is as short as it can be and fail."""
    with quiet():
        assert None is run(parse(steps.replace(";", "\n")))


ERASED = {
    "on the machine that deleted it": "A save K t1;A sync;B sync;A delete K;A age;A purge;A sync",
    "by a save": "A save K t1;A sync;B sync;A delete K;A sync;A age;B save N t2;A purge",
    "with a change that was not known": "A save K t1;A sync;B sync;B update K t2;A delete K;A age;A purge;A sync",
    "under another key": "A save K t1;A rename K N;A sync;B sync;B delete N;B sync;A sync;A age;A purge;B rename N M",
    "by a save of its key": "A save K t1;A sync;B sync;A delete K;A age;A save K t6",
    "on three machines": "A save K t1;A sync;B sync;C sync;A delete K;A age;A purge;A sync;C tag K;B save K t2",
    "on both at once": "A save K t1;A delete K;A sync;B sync;B age;A purge;B purge;A sync;A save K t3;B restore K",
    "moved": "A save K t1;A sync;B sync;A delete K;B rename K M;A age;A purge;A sync;B delete M;B age;B purge",
    "before the bucket was put back": "A save K t1;A sync;A delete K;A age;A purge;A sync;A rewind 1;B sync",
    "of a run": "A talk M t2;A age;A purge",
    "unless joined with a save elsewhere": "A sync;B save N t4;B delete N;B age;B sync;A save N t7;B save K t8 low",
}


@pytest.mark.parametrize("steps", ERASED.values(), ids=list(ERASED))
@pytest.mark.parametrize("head", HEADS)
def test_what_was_kept_long_enough_is_erased_everywhere(steps: str, head: str, tmp_path: Path) -> None:
    """Unless a machine changed it meanwhile without knowing that."""

    assert None is violation(head + steps.replace(";", "\n"), tmp_path)


LEFT = {
    "while another is offline": "A append diary@ada t1;A save K t2 ada;A sync;B sync;B append diary@ada t3;"
    "B save N t4 ada;A leave ada;A sync;B flush",
    "with others": "A append diary@ada t1;A append diary@bob t2;A save K t3 bob;A save K t4;A sync;B sync;A leave ada;"
    "B append diary@bob t5;B update K t6 bob;A sync",
    "and came back on both": "A append diary@ada t1;A sync;B sync;A leave ada;B leave ada;A append diary@ada t2;"
    "B append diary@ada t3;A sync;B sync",
    "and came back where she was forgotten": "A append diary@ada t1;A sync;B sync;A leave ada;A append diary@ada t2;"
    "A sync;B append diary@ada t3",
    "before the bucket was put back": "A append diary@ada t1;A sync;B sync;A leave ada;A sync;A rewind 2;B sync",
    "and redacted": "A append diary@ada t1;A sync;B sync;A redact diary@ada t1;B split diary@ada t1 t2;A sync",
}


@pytest.mark.parametrize("steps", LEFT.values(), ids=list(LEFT))
@pytest.mark.parametrize("head", HEADS)
def test_nothing_of_a_user_who_left_is_anywhere(steps: str, head: str, tmp_path: Path) -> None:
    """In no byte of a machine or the bucket; and nothing of another epoch, or of anybody else, is lost."""

    assert None is violation(head + steps.replace(";", "\n"), tmp_path)


def violation(script: str, folder: Path) -> str | None:
    """What is wrong after a script, None if nothing is.

    One whose machines are processes is run by a small process, as this one is large: a fork of it takes long.
    """
    if not script.startswith(PROCESSES):
        with quiet():
            found = run(parse(script))
        return str(found) if found is not None else None
    (folder / "script").write_text(script)
    done = programs.run("tests.model.__main__", folder / "script", seconds=LONGEST_SECONDS)
    return None if done.output.endswith("all is well\n") else f"{done.output} {done.complaints}"


def failures(count: int, **kind: Any) -> list[str]:
    """The scripts of one kind that break a promise; the first ones shrunk."""
    if IS_SWEEP or kind["kills"]:
        with ProcessPoolExecutor(WORKERS, mp_context=get_context("forkserver")) as pool:
            ends = [*pool.map(partial(outcome, **kind), range(count), chunksize=4)]
    else:
        ends = [outcome(seed, **kind) for seed in range(count)]
    failed = [(seed, rule) for seed, rule in ends if rule is not None]
    with quiet():
        shown = [f"{shrunk(generate(seed, **kind), rule)}## {rule}" for seed, rule in failed[:3]]
    return [*shown, *[f"seed {seed}: {rule}" for seed, rule in failed[3:]]]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda it: it.name)
def test_a_rule_to_take_out_is_there_once(mutant: Mutant) -> None:
    """A sweep would otherwise be the first to find that it has moved."""
    assert 1 == (ROOT / mutant.path).read_text("utf-8").count(mutant.old)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS if IS_SWEEP else MUTANTS[-1:], ids=lambda it: it.name)
def test_a_rule_that_is_taken_out_is_missed(mutant: Mutant) -> None:
    """The model catches the build without it, and shows it in a few steps."""
    caught = catch(mutant)

    assert caught is not None
    assert len(caught.script.steps) <= STEPS_MAX


def test_a_seed_is_always_the_same_script() -> None:
    """Also when it was written down and read again."""
    script = generate(17, faults=0.5, kills=0.1)

    assert script == generate(17, faults=0.5, kills=0.1) == parse(str(script))


def test_a_script_is_shrunk_to_what_makes_it_fail() -> None:
    """The steps that are needed stay, in their order, with one machine where one is enough."""
    script = generate(3, faults=0.5)
    steps = [Step("B", "append", ("notes", "x")), *script.steps, Step("C", "sync", trouble="faults")]

    def fails(candidate: object) -> bool:
        return "append notes x" in str(candidate) and " sync" in str(candidate).partition("append notes x")[2]

    assert ["A append notes x", "A sync"] == [str(step) for step in shrink(script.of(steps), fails).steps]
