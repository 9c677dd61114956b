"""Runs scripts of the model: ``python -m tests.model --help``."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from tests.model.script import MODES, OFF, Script, generate, parse
from tests.model.shrink import shrink
from tests.model.world import quiet, run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one script or many; the exit code is 1 if one of them fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, help="a script to run")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=1, help="how many seeds")
    parser.add_argument("--mode", choices=list(MODES), default="all")
    parser.add_argument("--faults", type=float, default=0.0, help="the share of syncs with a bad mirror")
    parser.add_argument("--kills", type=float, default=0.0, help="the share of steps that are killed by SIGKILL")
    parser.add_argument("--everything", action="store_true", help="with the verbs that are switched off for now")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes")
    parser.add_argument("--stop", type=int, default=1, help="after how many failures to stop")
    chosen = parser.parse_args(arguments)
    if chosen.everything:
        OFF.clear()
    with quiet():
        if chosen.file is not None:
            return told(parse(chosen.file.read_text("utf-8")))
        if chosen.count == 1:
            return told(generate(chosen.seed, chosen.mode, faults=chosen.faults, kills=chosen.kills))
        return many(chosen)


def told(script: Script) -> int:
    """Run one script, and say what becomes of each step."""
    violation = run(script, talk=True)
    print(violation or "all is well")
    return violation is not None


def many(chosen: argparse.Namespace) -> int:
    """Run many in some processes; print one of each kind that fails, shrunk."""
    begun, found, kinds = time.monotonic(), Counter[str](), set[str]()
    seeds = range(chosen.seed, chosen.seed + chosen.count)
    done = 0
    with ProcessPoolExecutor(chosen.jobs) as pool:
        for seed, rule in pool.map(
            partial(outcome, mode=chosen.mode, faults=chosen.faults, kills=chosen.kills), seeds, chunksize=8
        ):
            done += 1
            if rule is None:
                continue
            found[rule] += 1
            fewest = shrunk(generate(seed, chosen.mode, faults=chosen.faults, kills=chosen.kills), rule)
            kind = " ".join(step.verb for step in fewest.steps)
            if kind not in kinds:
                print(f"{fewest}## {run(fewest)}\n", flush=True)
                kinds.add(kind)
            if len(kinds) >= chosen.stop:
                pool.shutdown(cancel_futures=True)
                break
    seconds = time.monotonic() - begun
    print(f"{done} scripts in {seconds:.1f} s ({seconds / done * 1000:.1f} ms each), failed: {dict(found) or 'none'}")
    return bool(found)


def outcome(seed: int, *, mode: str, faults: float, kills: float) -> tuple[int, str | None]:
    """The seed, and the rule that its script breaks."""
    with quiet():
        violation = run(generate(seed, mode, faults=faults, kills=kills))
    return seed, violation.rule if violation is not None else None


def shrunk(script: Script, rule: str) -> Script:
    """The fewest steps of a script that break this rule."""

    def fails(candidate: Script) -> bool:
        again = run(candidate)
        return again is not None and again.rule == rule

    return shrink(script, fails)


if __name__ == "__main__":
    sys.exit(main())
