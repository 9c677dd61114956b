"""Visibility of memory files: which files a session may read or change now, and the index card that lists them.

The rules this file guards: the index card, the tool schemas and every tool call ask here and nowhere else. A hidden
file is therefore hidden everywhere, and looks like a file that does not exist. On the card, the block of the system
prompt, each file is one line, whatever its name or description holds, and the same state gives the same bytes.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from memfiles.errors import FileNotDeclared, InvalidArgument, LevelDenied, ReadOnly, RecordCorrupt, StorageFailed
from memfiles.records import late_logger as _log
from memfiles.records.file_changes import FileCard
from memfiles.records.levels import Levels
from memfiles.storage.atomic import is_of_one_file
from memfiles.tools.arguments import shortened
from memfiles.tools.definitions import file_verbs
from memfiles.workflow.declared import from_mapping
from memfiles.workflow.workflow import MemoryRef

if TYPE_CHECKING:
    from memfiles.files.manager import MemoryManager
    from memfiles.files.user_files import UserEpoch

RefLike = MemoryRef | Mapping[str, Any]
HEADING = "## Memory files available"
_JOINERS = "\u200c\u200d"


class VisibleFile(Struct, frozen=True):
    """A memory file that the session may read. ``session_level`` is None where no level rule applies."""

    card: FileCard
    mode: Literal["r", "rw"]
    session_level: str | None
    same_level: bool

    @property
    def writable(self) -> bool:
        """Whether the session may change the file now."""
        return self.mode == "rw" and self.same_level


def as_refs(refs: Iterable[RefLike]) -> list[MemoryRef]:
    """References from ``MemoryRef``s or ``{id, mode}`` objects; ``InvalidArgument`` names the first bad one."""
    if not isinstance(refs, Iterable):
        raise InvalidArgument(f"references must be a list of {{id, mode}} objects, not {type(refs).__name__}")
    found = []
    for index, ref in enumerate(refs):
        try:
            found.append(ref if isinstance(ref, MemoryRef) else from_mapping(MemoryRef, ref))
        except InvalidArgument as error:
            raise InvalidArgument(f"refs[{index}]: {error}; a reference is {{id, mode}}, mode r or rw") from None
    return found


def visible_files(
    refs: Iterable[RefLike],
    manager: MemoryManager,
    *,
    levels: Levels | None = None,
    level: str | None = None,
    user: str | UserEpoch | None = None,
) -> list[VisibleFile]:
    """The files behind ``refs`` that a session at ``level`` may read now, sorted by name.

    Without a level only the modes count; ``levels`` are the workflow's, or the default four. Left out are references to
    files that are undeclared, damaged or unreadable now, and without a ``user`` those to files ``per: user``. Of two
    references to one file the wider mode counts.
    """
    checked, cards = as_refs(refs), []
    for uid in dict.fromkeys(ref.id for ref in checked):
        which = uid, user if uid in manager.per_user else None
        try:
            card = _card(manager, uid, user)
        except StorageFailed as error:
            if not is_of_one_file(error):
                raise
            if which not in manager.left_out:
                manager.left_out.add(which)
                _log.warning("a memory file is left out, as it cannot be read: %s", error)
            continue
        manager.left_out.discard(which)
        if card is not None:
            cards.append(card)
    return visible_among(cards, checked, levels=levels or Levels(), level=level)


def visible_among(
    cards: Iterable[FileCard], refs: Iterable[MemoryRef], *, levels: Levels, level: str | None
) -> list[VisibleFile]:
    """The files of these cards that ``refs`` let a session at ``level`` read, sorted by name."""
    modes: dict[str, Literal["r", "rw"]] = {}
    for ref in refs:
        modes[ref.id] = "rw" if "rw" in (ref.mode, modes.get(ref.id)) else "r"
    found = []
    for card in cards:
        if card.uid in modes and (level is None or is_readable(card.level, levels=levels, level=level)):
            same_level = level is None or levels.may_write(session=level, item=card.level)
            found.append(VisibleFile(card, modes[card.uid], session_level=level, same_level=same_level))
    return sorted(found, key=lambda file: file.card.name)


def names_in(files: Iterable[VisibleFile]) -> dict[str, list[str]]:
    """The names of the ``readable`` and of the ``writable`` files, as tool definitions take them."""
    shown = list(files)
    return {
        "readable": [file.card.name for file in shown],
        "writable": [file.card.name for file in shown if file.writable],
    }


def is_any_unread(
    refs: Iterable[RefLike], manager: MemoryManager, *, levels: Levels, level: str, user: str | UserEpoch | None
) -> bool:
    """Whether a file that a session at ``level`` may see, as it is declared, cannot be read now by this process."""
    uids = [ref.id for ref in as_refs(refs)]
    for uid in (uid for uid in uids if is_readable(manager.levels.get(uid), levels=levels, level=level)):
        try:
            _card(manager, uid, user)
        except StorageFailed as error:
            if is_of_one_file(error):
                return True
    return False


def _card(manager: MemoryManager, uid: str, user: str | UserEpoch | None) -> FileCard | None:
    """The card of a file; None if it is undeclared or damaged, or ``per: user`` without a ``user``."""
    whose = user if uid in manager.per_user else None
    if whose is None and uid in manager.per_user:
        return None
    try:
        return manager.card(uid, user=whose)
    except (FileNotDeclared, RecordCorrupt):
        return None


def find_file(files: Iterable[VisibleFile], wanted: str, *, of_users: Collection[str] = ()) -> VisibleFile:
    """The visible file with this name or uid; else ``FileNotDeclared``, whether it is hidden or does not exist.

    ``of_users`` are names of files that a session with a user sees: for these, the error says what is missing.
    Case is ignored if that leaves exactly one file, as Anthropic's strict tools do not hold models to an enum's case.
    """
    shown = list(files)
    known = {file.card.uid: file for file in shown} | {file.card.name: file for file in shown}  # a name comes first
    if wanted in known:
        return known[wanted]
    alike = [file for file in shown if file.card.name.casefold() == wanted.casefold()]
    if len(alike) == 1:
        return alike[0]
    names = ", ".join(file.card.name for file in shown)
    remedy = f"use one of {names}" if names else "no memory files are available here"
    if wanted in of_users:
        raise FileNotDeclared(f"{wanted} is kept for each user, and this session is for no user: {remedy}")
    raise FileNotDeclared(f"unknown memory file {shortened(wanted)}: {remedy}")


def check_writable(file: VisibleFile) -> None:
    """Raise ``ReadOnly`` or ``LevelDenied`` if the session may not change ``file``."""
    name = file.card.name
    if file.mode != "rw":
        raise ReadOnly(f"{name} is read-only here; write to a file marked RW")
    if not file.same_level:
        raise LevelDenied(
            f"{name} is at level {file.card.level} and this session is at {file.session_level}: a session may change "
            f"only files at its own level. Write to a file marked RW"
        )


def validate_refs(refs: Iterable[RefLike], manager: MemoryManager) -> None:
    """Check that every reference is to a declared file, and none twice.

    Raises ``FileNotDeclared`` or ``InvalidArgument`` that names every wrong reference.
    """
    uids = [ref.id for ref in as_refs(refs)]
    declared = {*manager.uids(), *manager.per_user}
    unknown = [uid for uid in dict.fromkeys(uids) if uid not in declared]
    if unknown:
        known = ", ".join(sorted(declared)) or "none"
        raise FileNotDeclared(f"references to undeclared memory files: {', '.join(unknown)} (declared: {known})")
    twice = sorted({uid for uid in uids if uids.count(uid) > 1})
    if twice:
        raise InvalidArgument(f"memory files referenced more than once: {', '.join(twice)}; keep one reference to each")


def is_readable(of_file: str | None, *, levels: Levels, level: str) -> bool:
    """Whether a session at ``level`` may read a file of this level, which another deploy may have made up."""
    return of_file in levels.names and levels.may_read(session=level, item=str(of_file))


def index_card(
    refs: Iterable[RefLike],
    manager: MemoryManager,
    *,
    levels: Levels | None = None,
    level: str | None = None,
    user: str | None = None,
) -> str:
    """The index card of these references, rendered from the current files; "" if no file may be read.

    Files are sorted by name. With a ``level``, files above that level are left out and only files at that level can be
    RW; ``levels`` then are the workflow's, or the default four. Files ``per: user`` are those of ``user``. The text has
    no final newline.
    """
    return card_of_files(visible_files(refs, manager, levels=levels, level=level, user=user))


def card_of_files(files: Iterable[VisibleFile], *, read_only: bool = False, tool_names: str | None = None) -> str:
    """The index card of these files, in their order; ``read_only`` for a model without tools to change them.

    ``tool_names`` is the naming profile of the tools.
    """
    lines = [_line(file, writable=file.writable and not read_only) for file in files]
    read, append, edit = file_verbs(tool_names)
    how_to = f"Read with {read}(file)." + ("" if read_only else f" Change RW files with {append} or {edit}.")
    return "\n".join([HEADING, how_to, *lines]) if lines else ""


def one_line(text: str) -> str:
    """``text`` as one line without control characters, direction marks or tags.

    White space is collapsed, and ``<`` becomes ``&lt;`` so that no tag or special token can start.
    """
    plain = "".join(_visible_character(character) for character in text)
    return " ".join(plain.split()).replace("<", "&lt;")


def _visible_character(character: str) -> str:
    """Control characters (Cc) and separators (Z*) become a space; format marks (Cf) and surrogates (Cs) are dropped."""
    category = unicodedata.category(character)
    if category == "Cc" or category.startswith("Z"):
        return " "
    return "" if category in {"Cf", "Cs"} and character not in _JOINERS else character


def _line(file: VisibleFile, *, writable: bool) -> str:
    card, description = file.card, one_line(file.card.description)
    size = f"RW, {card.size_bytes}B of {card.max_size_bytes}B" if writable else f"R, {card.size_bytes}B"
    head = f"- {one_line(card.name)} ({size})"
    return f"{head}: {description}" if description else head
