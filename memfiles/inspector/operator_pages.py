"""Pages across agents: the users, the audit, and exports."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from starlette.responses import Response

from memfiles.entries.transfer.exchange import ExportFormat
from memfiles.entries.users import UserOrder
from memfiles.errors import EntryNotFound, InvalidArgument, MemfilesError
from memfiles.inspector.view import PAGE_ROWS, PageView, Route, counted, pager, rows_before
from memfiles.records.keys import entry_place, uid_of
from memfiles.storage.audit_reader import AuditTrail
from memfiles.storage.events import OUTCOMES, AuditEvent

USER = "/users/one"
FILTERS = ("since", "until", "agent", "user", "actor", "op", "record", "outcome")
AUDIT_ROWS = 100
EXPORTS: dict[ExportFormat, tuple[str, str, str]] = {
    "zip": ("Zip of Markdown files", ".zip", "application/zip"),
    "jsonl": ("JSON Lines", ".jsonl", "application/x-ndjson"),
    "markdown": ("One Markdown document, to read", ".md", "text/markdown; charset=utf-8"),
}
"""The formats of an export: a title, the suffix of the file and its media type."""


def users(view: PageView) -> Response:
    """The users, the last changed or the fullest budget first, and how much is kept for each."""
    inspected = view.inspected
    order: UserOrder = "share" if view.chosen("order") == "share" else "updated"
    rows = min(view.number("rows") or PAGE_ROWS, PAGE_ROWS)
    found = inspected.memory.users.list(level=inspected.ceiling, order=order, limit=rows + 1, skip=rows_before(view))
    forgotten = inspected.memory.users.tombstones(limit=PAGE_ROWS + 1)
    return view.render(
        "users.html",
        users=found[:rows],
        order=order,
        **pager(view, "/users", is_more=len(found) > rows, order=order),
        forgotten=forgotten[:PAGE_ROWS],
        more_forgotten=len(forgotten) > PAGE_ROWS,
    )


def user_page(view: PageView) -> Response:
    """One user: the kept records, how many a forget would remove, and the tombstones that prove one."""
    inspected, name = view.inspected, view.user or ""
    kept = inspected.memory.users.list(user=name, level=inspected.ceiling)
    return view.render(
        "user.html",
        name=name,
        kept=kept[0] if kept else None,
        counted=inspected.memory.users.forget(name, dry_run=True) if inspected.ceiling is None else None,
        tombstones=inspected.memory.users.tombstones(name),
        per_user=[file for file in inspected.files() if file.per is not None],
    )


def forget_user(view: PageView) -> Response:
    """Forget a user for good, once the name was typed."""
    name, memory = view.user or "", view.inspected.memory

    def done() -> str:
        view.inspected.check_all_levels()
        if not view.typed(name):
            raise InvalidArgument(f"type the name of the user, {name}, to confirm; nothing was forgotten")
        count = memory.users.forget(name, dry_run=True).count
        if count != view.number("count"):
            raise InvalidArgument(f"the user has {count} records by now; nothing was forgotten, so check them again")
        found = memory.users.forget(name, why=view.form.get("why", ""), actor=view.inspected.operator)
        return f"Forgotten for good: {counted(found.count, 'record')} of this user. The tombstone below proves it."

    return view.act(done, then=view.url(USER, user=name), page=user_page)


def export_user(view: PageView) -> Response:
    """All that is kept of a user, as an archive."""
    name, inspected = view.user or "", view.inspected

    def written(path: Path) -> None:
        inspected.check_all_levels()
        if not inspected.memory.users.export(name, path, actor=inspected.operator).count:
            raise EntryNotFound("nothing is kept for this user")

    return _download(view, written, name=f"user-{name}", suffix=".zip", media="application/zip", page=user_page)


def audit(view: PageView) -> Response:
    """Who did what to which record, newest first."""
    inspected, asked = view.inspected, {name: view.chosen(name) for name in FILTERS} | {"user": view.user}
    rows = min(view.number("rows") or AUDIT_ROWS, AUDIT_ROWS)
    trail = AuditTrail(())
    try:
        page = asked | {"until": view.chosen("older") or asked["until"]}
        trail = inspected.memory.audit(**page, level=inspected.ceiling, limit=rows)
    except InvalidArgument as error:
        view.error = error
    return view.render(
        "audit.html",
        trail=trail,
        events=trail.events,
        asked={name: value or "" for name, value in asked.items()},
        outcomes=OUTCOMES,
        older=view.url("/audit", **asked, older=trail.older) if trail.more else None,  # no field of the form
        named=named(view),
    )


def export_page(view: PageView) -> Response:
    """Choose what to export, and how."""
    viewed = view.inspected.viewed(view.asked)
    return view.render("export.html", viewed=viewed, formats=EXPORTS, chosen=view.chosen("format") or "zip")


def export(view: PageView) -> Response:
    """The entries that the viewed session sees, as a file."""
    inspected, viewed = view.inspected, view.inspected.viewed(view.asked)
    format: ExportFormat = next((known for known in EXPORTS if known == view.chosen("format")), "zip")
    _, suffix, media = EXPORTS[format]

    def written(path: Path) -> None:
        target = path.with_suffix("") if format == "markdown" else path
        with inspected.session(viewed) as session:
            inspected.memory.entries.export(session, target, format=format)
        if format == "markdown":
            path.write_bytes(b"\n".join(each.read_bytes() for each in sorted(target.iterdir())))

    name = "-".join(part for part in (viewed.agent, viewed.user, viewed.level) if part)
    return _download(view, written, name=name, suffix=suffix, media=media, page=export_page)


def named(view: PageView) -> Callable[[AuditEvent], tuple[str, str | None]]:
    """A function from an event to the name of its record, and the address of a file's page."""
    files = {file.uid: file.name for file in view.inspected.files()}

    def record(event: AuditEvent) -> tuple[str, str | None]:
        if event.path is None:
            return ("" if event.count is None else counted(event.count, "record")), None
        uid = uid_of(event.path)
        if uid in files:
            return files[uid], view.url(f"/files/{uid}")
        place = entry_place(event.path)
        return (event.path if place is None else f"entry {place[1][:12]} of {place[0].partition('/')[0]}"), None

    return record


def _download(
    view: PageView,
    write: Callable[[Path], None],
    *,
    name: str,
    suffix: str,
    media: str,
    page: Callable[[PageView], Response],
) -> Response:
    """A download of the file that ``write`` fills, or the page with its error."""
    with TemporaryDirectory(prefix="memfiles-") as folder:
        try:
            write(path := Path(folder) / f"export{suffix}")
        except MemfilesError as error:
            view.error = error
            return page(view)
        content = path.read_bytes()
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.")[:80] or "export"
    headers: dict[str, Any] = {"Content-Disposition": f'attachment; filename="{plain}{suffix}"'}
    return Response(content, media_type=media, headers=headers)


ROUTES: tuple[Route, ...] = (
    ("GET", "/users", users),
    ("GET", USER, user_page),
    ("POST", "/users/forget", forget_user),
    ("POST", "/users/export", export_user),
    ("GET", "/audit", audit),
    ("GET", "/export", export_page),
    ("POST", "/export", export),
)
