"""The demo: a support desk whose agent remembers, across a refusal, a kill, a restart and the loss of its disk.

``support_desk`` holds what is declared and what the model will say, ``agent`` the loop between a model and
its memory, ``writer`` the process that gets killed, ``folder`` where it all happens, ``story`` the steps.
Nothing here prints: the steps are told to an ``Audience``.
"""

from __future__ import annotations

from memfiles.cli.demo.folder import prepared
from memfiles.cli.demo.story import Audience, DemoFailed, tell

__all__ = ["Audience", "DemoFailed", "prepared", "tell"]
