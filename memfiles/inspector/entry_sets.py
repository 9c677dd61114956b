"""Pages for many entries at once: deleted and forgotten ones, forgetting a selection, and consolidation."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from memfiles.entries.drafts import MAX_GONE
from memfiles.errors import InvalidArgument
from memfiles.inspector.view import PAGE_ROWS, PageView, Route, pager, rows_before

SELECTORS = ("key", "tag", "kind", "category", "id")
PROVENANCE = ("run", "channel", "thread", "actor", "source")
SHARE = 80  # percent


def gone(view: PageView) -> Response:
    """Deleted entries, which can be restored, and the tombstones of forgotten ones."""
    viewed, begin = view.inspected.viewed(view.asked), rows_before(view)
    most = min(begin + PAGE_ROWS, MAX_GONE)
    with view.inspected.session(viewed) as session:
        deleted = view.inspected.memory.entries.deleted(session, limit=most)
        tombstones = view.inspected.memory.entries.tombstones(session, limit=most)
    is_more = (deleted.more or tombstones.more) and most < MAX_GONE
    return view.render(
        "gone.html",
        viewed=viewed,
        deleted=deleted.entries[begin:],
        tombstones=tombstones.tombstones[begin:],
        **pager(view, "/entries/gone", is_more=is_more, **viewed.fields),
    )


def forget_page(view: PageView) -> Response:
    """Select entries, see how many they are, and confirm that they go for good."""
    viewed, selected = view.inspected.viewed(view.asked), _selected(view)
    found = None
    if selected:
        with view.inspected.session(viewed) as session:
            found = view.inspected.memory.entries.forget(session, **_as_selector(selected), dry_run=True)
    return view.render(
        "forget.html", viewed=viewed, selected=selected, found=found, selectors=SELECTORS, provenance=PROVENANCE
    )


def forget(view: PageView) -> Response:
    """Forget the selection, if it is still as large as it was shown and the confirmation was typed."""
    viewed, selected = view.inspected.viewed(view.asked), _selected(view)

    def done() -> str:
        with view.inspected.session(viewed) as session:
            chosen = _as_selector(selected)
            counted = view.inspected.memory.entries.forget(session, **chosen, dry_run=True).count
            if counted != view.number("count"):
                raise InvalidArgument(
                    f"the selection has {counted} entries by now; nothing was forgotten, so check it again"
                )
            if not view.typed(f"forget {counted}"):
                raise InvalidArgument(f"type forget {counted} to confirm; nothing was forgotten")
            found = view.inspected.memory.entries.forget(session, **chosen, why=view.form.get("why", ""))
        return f"Forgotten for good: {found.count}."

    return view.act(done, then=view.url("/entries/gone", **viewed.fields), page=forget_page)


def plan_page(view: PageView) -> Response:
    """The plan of a consolidation, and the applied plans that can be undone."""
    inspected, viewed = view.inspected, view.inspected.viewed(view.asked)
    share, plan = view.number("share", SHARE) or SHARE, None
    with inspected.session(viewed) as session:
        if view.chosen("share"):
            if not 1 <= share <= 100:
                raise InvalidArgument("the share must be from 1 to 100 percent")
            plan = inspected.memory.entries.plan(session, share=share / 100)
            view.state.keep(view.state.plans, plan.id, plan)
        hidden = inspected.memory.entries.deleted(session, limit=MAX_GONE).entries
    applied = dict.fromkeys(it.cause for it in hidden if it.cause.startswith("plan-"))
    return view.render("plan.html", viewed=viewed, share=share, plan=plan, applied=list(applied), hidden=hidden)


def apply(view: PageView) -> Response:
    """Apply the plan as it was shown."""
    viewed, id = view.inspected.viewed(view.asked), view.chosen("plan") or ""

    def done() -> str:
        plan = view.state.plans.get(id)
        if plan is None:
            raise InvalidArgument("this plan is no longer kept: make a new one")
        with view.inspected.session(viewed) as session:
            applied = view.inspected.memory.entries.apply(session, plan)
        return f"Applied: {len(applied.hidden)} hidden, {len(applied.shown)} new. The plan can be undone below."

    return view.act(done, then=view.url("/entries/plan", **viewed.fields), page=_without_share)


def undo_plan(view: PageView) -> Response:
    """Undo a plan."""
    viewed, id = view.inspected.viewed(view.asked), view.chosen("plan") or ""

    def done() -> str:
        with view.inspected.session(viewed) as session:
            undone = view.inspected.memory.entries.undo_plan(session, id)
        return f"Undone: {len(undone.shown)} visible again."

    return view.act(done, then=view.url("/entries/plan", **viewed.fields), page=_without_share)


def _without_share(view: PageView) -> Response:
    view.asked.pop("share", None)
    return plan_page(view)


def _selected(view: PageView) -> dict[str, str]:
    """The selected fields; the run of a selection has another name than that of the viewed session."""
    fields = {name: "of_run" if name == "run" else name for name in (*SELECTORS, *PROVENANCE)}
    return {name: value for name, field in fields.items() if (value := view.chosen(field, as_sent=True))}


def _as_selector(selected: dict[str, str]) -> dict[str, Any]:
    chosen: dict[str, Any] = {name: value for name, value in selected.items() if name in SELECTORS}
    provenance = {name: value for name, value in selected.items() if name in PROVENANCE}
    return chosen | ({"provenance": provenance} if provenance else {})


ROUTES: tuple[Route, ...] = (
    ("GET", "/entries/gone", gone),
    ("GET", "/entries/forget", forget_page),
    ("POST", "/entries/forget", forget),
    ("GET", "/entries/plan", plan_page),
    ("POST", "/entries/plan/apply", apply),
    ("POST", "/entries/plan/undo", undo_plan),
)
