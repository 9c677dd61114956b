"""A parent with an open manager and busy threads that forks, as some servers do.

``python -m tests.durability.family DIRECTORY CHILDREN TIMES`` prints a line of JSON: how the children
ended. With ``--orphan`` the parent kills itself in the middle of its work and leaves one child, which waits for input.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from itertools import count
from pathlib import Path

from memfiles.files.manager import MemoryManager
from tests.durability.crowd import UID, restored


def work(manager: MemoryManager, name: str, times: int) -> None:
    """Append so many lines with the manager that was there before the fork."""
    for turn in range(times):
        manager.append(UID, f"{name}.{turn}\n")


def fork_children(manager: MemoryManager, children: int, times: int) -> list[int]:
    """Fork while two threads of the parent write; the children's exit codes once all have written."""
    threads = [threading.Thread(target=work, args=(manager, f"parent-{n}", times)) for n in range(2)]
    for thread in threads:
        thread.start()
    pids = [_fork(manager, f"child-{number}", times) for number in range(children)]
    for thread in threads:
        thread.join()
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


def _fork(manager: MemoryManager, name: str, times: int) -> int:
    time.sleep(0.01)
    pid = os.fork()
    if pid:
        return pid
    try:
        work(manager, name, times)
        manager.close()
    except BaseException as error:
        print(f"{name}: {error!r}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def die_and_leave_a_child(manager: MemoryManager) -> None:
    """Fork a child that does nothing, then die by SIGKILL while the threads write."""

    def go_on(name: str) -> None:
        for turn in count():
            manager.append(UID, f"{name}.{turn}\n")

    for number in range(2):
        threading.Thread(target=go_on, args=(f"parent-{number}",), daemon=True).start()
    time.sleep(0.02)
    if os.fork() == 0:
        os.write(1, b"ready\n")
        os.read(0, 1)
        os._exit(0)
    time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Do one or the other, as the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("children", type=int)
    parser.add_argument("times", type=int)
    parser.add_argument("--orphan", action="store_true")
    asked = parser.parse_args()
    manager = restored(asked.directory)
    if asked.orphan:
        die_and_leave_a_child(manager)
    print(json.dumps({"exits": fork_children(manager, asked.children, asked.times)}))
    manager.close()


if __name__ == "__main__":
    main()
