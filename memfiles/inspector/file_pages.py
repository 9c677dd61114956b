"""The pages of one memory file, its history and changes; and of conflicts, which a person settles side by side."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.responses import Response

from memfiles.errors import InvalidArgument
from memfiles.inspector.view import PAGE_ROWS, PageView, Route, difference, edited_of, pager, rows_before
from memfiles.records.file_changes import Receipt, share_of
from memfiles.records.keys import is_file_path, uid_of
from memfiles.sync.conflicts import Conflict

CONFLICTS = "/conflicts"


def file_page(view: PageView) -> Response:
    """The content, the history, and the difference between two revisions."""
    inspected, uid, user = view.inspected, view.path["uid"], view.user or ""
    record = inspected.file(uid, user)
    to = view.number("to")
    base = view.number("from", to - 1 if to is not None else None)
    diff = partial(inspected.memory.manager.diff, uid, user=user or None)
    return view.render(
        "file.html",
        record=record,
        user=user,
        share=share_of(record.max_size_bytes, used=record.size_bytes),
        changes=record.history[::-1],
        **difference(diff, base, to),
        conflicts=[it for it in inspected.conflicts() if it.user == user and _is_of(it, uid)],
        url=view.url(f"/files/{uid}", user=user),
    )


def _is_of(conflict: Conflict, uid: str) -> bool:
    """Whether a conflict is about the memory file, as every user or one of them has it."""
    return is_file_path(conflict.record) and uid in (uid_of(conflict.record), conflict.name)


def download(view: PageView) -> Response:
    """The content as a file."""
    record = view.inspected.file(view.path["uid"], view.user or "")
    headers = {"Content-Disposition": f'attachment; filename="{record.name}.md"'}
    return Response(record.content, media_type="text/markdown; charset=utf-8", headers=headers)


def edit(view: PageView) -> Response:
    """Replace the content, unless somebody changed it since the page was loaded."""

    def replaced(uid: str, given: dict[str, Any]) -> Receipt:
        edited = edited_of(view.inspected.file(uid, view.user or "").content, view.form.get("content", ""))
        return view.inspected.memory.manager.replace(uid, edited, **given)

    return _changed(view, replaced)


def append(view: PageView) -> Response:
    """Add text at the end; what others did meanwhile stays."""
    text = view.form.get("text", "")

    def added(uid: str, given: dict[str, Any]) -> Receipt:
        given.pop("expected_revision")
        return view.inspected.memory.manager.append(uid, text if text.endswith("\n") else text + "\n", **given)

    return _changed(view, added)


def undo(view: PageView) -> Response:
    """Undo the last change, or go back to a revision."""
    to = view.number("to_revision")
    return _changed(view, lambda uid, given: view.inspected.memory.manager.undo(uid, to_revision=to, **given))


def redact(view: PageView) -> Response:
    """Remove a text from the content and everything kept of it, once the name of the file was typed."""
    inspected, uid, user = view.inspected, view.path["uid"], view.user

    def done() -> str:
        record = inspected.file(uid, user or "")
        if not view.typed(record.name):
            raise InvalidArgument(f"type {record.name} to confirm; nothing was changed")
        found = inspected.memory.manager.redact(uid, view.form.get("text", ""), by=inspected.by, user=user)
        return f"Removed from the content and the history, as revision {found.receipt.revision}."

    return view.act(done, then=view.url(f"/files/{uid}", user=user), page=file_page)


def conflicts(view: PageView) -> Response:
    """The conflicts, newest first, and the chosen one next to its record."""
    found, begin = view.inspected.conflicts(), rows_before(view)
    return view.render(
        "conflicts.html",
        conflicts=found[begin : begin + PAGE_ROWS],
        chosen=next((it for it in found if it.path == view.chosen("path")), None),
        **pager(view, CONFLICTS, is_more=len(found) > begin + PAGE_ROWS),
    )


def resolve(view: PageView) -> Response:
    """Settle a conflict: keep the record, take the copy, or take a text that the operator made of both."""
    inspected, path, take = view.inspected, view.chosen("path") or "", view.chosen("take")

    def done() -> str:
        chosen = next((it for it in inspected.conflicts() if it.path == path), None)
        if chosen is None:
            raise InvalidArgument("this conflict no longer exists; it may have been settled in the meantime")
        edited = edited_of(chosen.current or "", view.form.get("text", ""))
        given: dict[str, Any] = {"text": edited} if take == "text" else {"take": take}
        settled = inspected.memory.sync.resolve(
            path, **given, expected_revision=view.number("revision"), by=inspected.by
        )
        after = "the record stays as it is" if settled.revision is None else f"it is revision {settled.revision} now"
        return f"The conflict of {settled.name} is settled: {after}."

    return view.act(done, then=view.url(CONFLICTS), page=conflicts)


def _changed(view: PageView, change: Callable[[str, dict[str, Any]], Receipt]) -> Response:
    """Change the file in the path as the operator, at the revision that the page showed."""
    uid, user = view.path["uid"], view.user
    given = {"by": view.inspected.by, "expected_revision": view.number("revision"), "user": user}

    def done() -> str:
        view.inspected.file(uid, user or "")  # refuses what is not shown
        receipt = change(uid, given)
        warned = f" {receipt.warning}." if receipt.warning else ""
        return f"Saved: {receipt.name} is revision {receipt.revision} now.{warned}"

    return view.act(done, then=view.url(f"/files/{uid}", user=user), page=file_page)


ROUTES: tuple[Route, ...] = (
    ("GET", "/files/{uid}", file_page),
    ("GET", "/files/{uid}/content", download),
    ("POST", "/files/{uid}/edit", edit),
    ("POST", "/files/{uid}/append", append),
    ("POST", "/files/{uid}/undo", undo),
    ("POST", "/files/{uid}/redact", redact),
    ("GET", CONFLICTS, conflicts),
    ("POST", CONFLICTS, resolve),
)
