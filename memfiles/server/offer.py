"""What one server offers: the memory of one session, to change or only to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memfiles.memory import Memory
    from memfiles.tools.session import Session


@dataclass(frozen=True, slots=True)
class Offer:
    """An open memory, the session whose eyes and hands the clients have, and whether they may only read."""

    memory: Memory
    session: Session
    read_only: bool = False
