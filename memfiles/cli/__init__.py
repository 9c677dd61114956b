"""The command line: ``memfiles --help`` lists it, ``main`` runs it.

What the files own: ``command_line`` the root command and its table, ``settings`` the options every
command takes, ``failures`` what an error looks like and which code the process ends with, ``output``
everything that is printed, ``streams`` where it goes, ``opening`` how a command gets at the memory. Every
other file is one family of commands, loaded only when one of them is asked for.
"""

from __future__ import annotations

import gc

from memfiles.cli import streams


def main() -> None:
    """Run the command line of this process and end it with the exit code."""
    streams.secure()
    gc.disable()  # what the imports make stays to the end: walking it again and again took 7 ms of 48
    from memfiles.cli.program import program

    gc.freeze()
    gc.enable()
    try:
        program()
    finally:
        streams.release()
