"""Threads that decode a class for the first time, at the same time, all get what they asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import ROOT

_AT_ONCE = """
import os, sys, threading, time
import memfiles.memory
from memfiles.records.entry_codec import read_entry
from memfiles.errors import MemfilesError
from memfiles.tools.arguments import AppendMemory, parse_arguments
half = threading.Event()

def slowly(frame, event, _):
    if (event, frame.f_code.co_name) == ("call", "__hash__"):  # of the type of a field, while it is learned
        half.set()
        time.sleep(0.02)

def call(then=lambda: None):
    try:
        {call}
    except MemfilesError as error:
        said.append(str(error))
    then()

def first():
    sys.setprofile(slowly)
    call(lambda: sys.setprofile(None))

said = []
other = threading.Thread(target=first)
other.start()
assert half.wait(20)
{second}
other.join()
print(len(said), len(set(said)))
"""
_ARGUMENTS = "said.append(parse_arguments(AppendMemory, dict(file='notes', content='x'), tool='t').file)"
_ENTRY = 'read_entry(b\'{"format":"memfiles/1","type":"entry","agent":1}\')'
_MARK = 'read_entry(b\'{"format":"memfiles/1","type":"tombstone","uid":"1"}\')'
_FORK = """
if not (child := os.fork()):
    said.clear()
    call()
    os._exit(len(said))
said += said * os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""
_INTERRUPTED = f"""
import signal
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, 0.05)
{_FORK}
"""


@pytest.mark.slow
@pytest.mark.parametrize("call", [_ARGUMENTS, _ENTRY, _MARK], ids=["arguments", "entry", "mark"])
@pytest.mark.parametrize("second", ["call()", _FORK], ids=["thread", "fork"])
def test_a_class_is_learned_by_one_thread_while_the_others_wait(call: str, second: str) -> None:
    """A second thread, or a child forked meanwhile, would crash with half of what is known of the class."""
    assert (0, "2 1\n", "") == _outcome(call, second)


@pytest.mark.slow
def test_a_fork_waits_until_a_class_is_learned_whatever_interrupts_it() -> None:
    """The child would crash with half of what is known of the class, or wait for it for ever."""
    assert (0, "2 1\n", "") == _outcome(_ENTRY, _INTERRUPTED)


def _outcome(call: str, second: str) -> tuple[int, str, str]:
    """How the program ends, and what it prints."""
    program = _AT_ONCE.format(call=call, second=second)
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program]  # of forks, from Python 3.12 on
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr
