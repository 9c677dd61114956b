"""Pages across agents: the users, the audit, and exports."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from starlette.responses import Response

from memfiles.entries.transfer.exchange import ExportFormat
from memfiles.errors import EntryNotFound, InvalidArgument, MemfilesError
from memfiles.inspector.view import PAGE_ROWS, PageView, Route
from memfiles.records.keys import entry_place, uid_of
from memfiles.storage.events import OUTCOMES, AuditEvent

USER = "/users/one"
FILTERS = ("since", "until", "agent", "user", "actor", "op", "record", "outcome")
AUDIT_ROWS = 100
PROOF_ROWS = 20
EXPORTS: dict[str, tuple[str, ExportFormat, str, str]] = {
    "zip": ("Zip of Markdown files", "zip", ".zip", "application/zip"),
    "jsonl": ("JSON Lines", "jsonl", ".jsonl", "application/x-ndjson"),
    "markdown": ("One Markdown document, to read", "markdown", ".md", "text/markdown; charset=utf-8"),
}
"""What can be exported: its name, the library's format, the end of the file's name and its media type."""


def users(view: PageView) -> Response:
    """Who is there, the last changed first, and how much is kept of each."""
    desk, page, name = view.desk, view.number("page", 1) or 1, view.chosen("user")
    begin = (page - 1) * PAGE_ROWS
    found = desk.memory.users.list(user=name, level=desk.ceiling, order="updated", limit=PAGE_ROWS + 1, skip=begin)
    forgotten = desk.memory.users.tombstones(limit=PAGE_ROWS)
    return view.render(
        "users.html",
        users=found[:PAGE_ROWS],
        more=len(found) > PAGE_ROWS,
        page=page,
        begin=begin,
        name=name or "",
        forgotten=forgotten,
    )


def user_page(view: PageView) -> Response:
    """One user: what is kept, what a forget would take, and the proof that it was done."""
    desk, name = view.desk, view.asked.get("user", "")
    kept = desk.memory.users.list(user=name, level=desk.ceiling)
    events = desk.memory.audit(user=name, level=desk.ceiling, limit=PROOF_ROWS).events
    return view.render(
        "user.html",
        name=name,
        kept=kept[0] if kept else None,
        counted=desk.memory.users.forget(name, dry_run=True) if desk.ceiling is None else None,
        tombstones=desk.memory.users.tombstones(name),
        events=events,
        per_user=[file for file in desk.files() if file.per is not None],
        named=named(view),
    )


def forget_user(view: PageView) -> Response:
    """Forget a user for good, once the name was typed."""
    name, memory = view.form.get("user", ""), view.desk.memory

    def done() -> str:
        view.desk.check_all_levels()
        if view.form.get("typed", "").strip() != name.strip():
            raise InvalidArgument(f"type the name of the user, {name}, to confirm; nothing was forgotten")
        counted = memory.users.forget(name, dry_run=True).count
        if counted != view.number("count"):
            raise InvalidArgument(f"there are {counted} records by now: look at them again; nothing was forgotten")
        found = memory.users.forget(name, why=view.form.get("why", ""), actor=view.desk.operator)
        return f"Forgotten for good: {found.count} records of this user. The tombstone below proves it."

    return view.act(done, then=view.url(USER, user=name), page=user_page)


def export_user(view: PageView) -> Response:
    """All that is kept of a user, as an archive."""
    name, desk = view.form.get("user", ""), view.desk

    def written(path: Path) -> None:
        desk.check_all_levels()
        if not desk.memory.users.export(name, path, actor=desk.operator).count:
            raise EntryNotFound("nothing is kept for this user")

    return _download(view, written, name=f"user-{name}", suffix=".zip", media="application/zip", page=user_page)


def audit(view: PageView) -> Response:
    """Who did what to which record, newest first."""
    desk, asked = view.desk, {name: view.chosen(name) for name in FILTERS}
    try:
        trail = desk.memory.audit(**asked, level=desk.ceiling, limit=AUDIT_ROWS)
    except InvalidArgument as error:
        view.error = error
        trail = desk.memory.audit(level=desk.ceiling, limit=1)
    older = None
    if trail.more and trail.events and view.error is None:
        older = view.url("/audit", **{**asked, "until": trail.events[-1].at})
    chosen = {name: value or "" for name, value in asked.items()}
    return view.render("audit.html", trail=trail, asked=chosen, outcomes=OUTCOMES, older=older, named=named(view))


def export_page(view: PageView) -> Response:
    """Choose what to export, and how."""
    lens = view.desk.lens(view.asked)
    return view.render("export.html", lens=lens, formats=EXPORTS, chosen=view.chosen("format") or "zip")


def export(view: PageView) -> Response:
    """The entries that a session of the lens sees, as a file."""
    desk, lens = view.desk, view.desk.lens(view.asked)
    _, format, suffix, media = EXPORTS.get(view.chosen("format") or "zip", EXPORTS["zip"])

    def written(path: Path) -> None:
        target = path.with_suffix("") if format == "markdown" else path
        with desk.session(lens) as session:
            desk.memory.entries.export(session, target, format=format)
        if format == "markdown":
            path.write_bytes(b"\n".join(each.read_bytes() for each in sorted(target.iterdir())))

    name = "-".join(part for part in (lens.agent, lens.user, lens.level) if part)
    return _download(view, written, name=name, suffix=suffix, media=media, page=export_page)


def named(view: PageView) -> Callable[[AuditEvent], tuple[str, str | None]]:
    """A function from an event to the name of its record, and the address of a file's page."""
    files = {file.uid: file.name for file in view.desk.files()}

    def record(event: AuditEvent) -> tuple[str, str | None]:
        if event.path is None:
            return ("" if event.count is None else f"{event.count} records"), None
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
    """What ``write`` puts into a file, as a download; or the page with the error."""
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
