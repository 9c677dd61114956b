"""The commands of ``entries`` that change entries; ``entries_read`` has the group and the others."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from memfiles.cli import opening, output
from memfiles.cli.commands.entries_read import entries_command
from memfiles.cli.commands.write import CALL_ID, TextCommand, expected_revision, fail_until_pushed, given_text
from memfiles.cli.options import argument, command, current, filled, option, options, usage_error
from memfiles.errors import EntryNotFound
from memfiles.memory import look
from memfiles.records.entry import DEFAULT_CONFIDENCE, KINDS
from memfiles.records.graphemes import as_word, first_few
from memfiles.records.keys import ENTRIES
from memfiles.sync.status import pending_records
from memfiles.workflow.fields import seconds_in

if TYPE_CHECKING:
    from memfiles.entries.consolidation.plan import Plan, Step
    from memfiles.entries.drafts import Saved
    from memfiles.entries.purge import Purged
    from memfiles.entries.results import Forgotten
    from memfiles.workflow.workflow import Workflow

SHOWN = 20  # keys that a message lists
ORIGINS = ("agent", "user", "session", "run", "channel", "thread", "call", "source")


def _in_seconds(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    """The seconds of a time span such as 90s, 5m, 72h or 30d."""
    try:
        return None if value is None else seconds_in(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


_share = click.FloatRange(0, 1)
_entry_fields = options(
    option("--tag", "tags", multiple=True, metavar="TAG", help="Tag; repeatable."),
    option("--category", help="core, daily, workspace, or your own.  [default: general]"),
    option("--kind", type=click.Choice(KINDS), help="Kind of entry.  [default: note]"),
    option("--importance", type=_share, metavar="0..1", help="How much losing it would matter.  [default: 0.5]"),
    option("--confidence", type=_share, metavar="0..1", help="How certain it is.  [default: 1]"),
    option("--pinned/--not-pinned", default=None, help="Show it to agents at the start of every run."),
    option("--link", "links", multiple=True, metavar="KEY", help="Related entry; repeatable."),
    option(
        "--said-at", callback=filled, metavar="TIME", help="When it was said, e.g. 2026-11-21.  [default: when saved]"
    ),
    option("--ttl", callback=_in_seconds, metavar="TIME", help="Time to live after the last change, e.g. 72h."),
    expected_revision("Fail unless the entry is at this revision (0: must not exist).", least=0),
    CALL_ID,
)
_selector = options(
    option("--key", help="The entry with this key."),
    option("--id", help="The entry with this id, whatever its key."),
    option("--uid", help="The entry whose record has this uid."),
    option("--tag", help="Entries with this tag."),
    option("--kind", type=click.Choice(KINDS), help="Entries of this kind."),
    option("--category", help="Entries of this category."),
    *(option(f"--from-{name}", metavar="ID", help=f"Entries that came from this {name}.") for name in ORIGINS),
)


@command(
    "save",
    'memfiles entries save customers/ada/plan "Ada is on Pro" --agent support --tag ada',
    "memfiles entries save how-to/refund - --agent support --kind procedure < refund.md",
    cls=TextCommand,
    of=entries_command,
)
@argument("key")
@argument("text", required=False)
@_entry_fields
@opening.as_session
def save_command(key: str, text: str | None, who: opening.SessionOptions, **given: Any) -> None:
    """Save TEXT under KEY, at the session's level.

    An existing entry is replaced; fields without an option keep their values. With - for TEXT, or with a pipe and no
    TEXT, it is read from stdin (UTF-8).
    """
    content = given_text(text, what="save")
    fields = {name: value for name, value in given.items() if value is not None and value != ()}
    with opening.changing_entries(who) as (memory, session):
        confirm_saved(memory.entries.save(session, key, content, source=opening.AUTHOR, **fields), done="saved")


@command(
    "update",
    "memfiles entries update customers/ada/plan --agent support --tag ada --pinned",
    "memfiles entries update how-to/refund --agent support --outcome success",
    of=entries_command,
)
@argument("key")
@option("--content", metavar="TEXT", help="New text; - reads it from stdin.")
@option("--outcome", type=click.Choice(["success", "failure"]), help="Result of following the entry; counted.")
@_entry_fields
@opening.as_session
def update_command(key: str, content: str | None, who: opening.SessionOptions, **given: Any) -> None:
    """Change parts of the entry under KEY, at the session's level.

    What no option names stays as it is.
    """
    fields = {name: value for name, value in given.items() if value is not None and value != ()}
    text = None if content is None else given_text(content, what="save")
    with opening.changing_entries(who) as (memory, session):
        confirm_saved(memory.entries.update(session, key, content=text, **fields), done="updated")


@command(
    "undo",
    "memfiles entries undo customers/ada/plan --agent support",
    "memfiles entries undo customers/ada/plan --to 3 --agent support",
    of=entries_command,
)
@argument("key")
@option("--to", "to_revision", type=click.IntRange(min=1), metavar="REVISION", help="Revision to go back to.")
@CALL_ID
@opening.as_session
def undo_command(key: str, to_revision: int | None, call_id: str | None, who: opening.SessionOptions) -> None:
    """Undo the last change of an entry's content, or go back to a revision.

    An undo is a new revision: nothing is lost, and it can be undone itself. To undo a consolidation, use `memfiles
    entries consolidate --undo`.
    """
    with opening.changing_entries(who) as (memory, session):
        confirm_saved(memory.entries.undo(session, key, to_revision, call_id=call_id), done="undone")


@command("delete", "memfiles entries delete customers/ada/plan --agent support", of=entries_command)
@argument("key")
@opening.as_session
def delete_command(key: str, who: opening.SessionOptions) -> None:
    """Hide an entry; it can be restored.

    To remove its text for good, everywhere, use `memfiles entries forget`.
    """
    with opening.changing_entries(who) as (memory, session):
        deleted = memory.entries.delete(session, key)
    if not output.as_json(deleted.to_dict()):
        again = f"; the entry at level {deleted.revealed.level} is visible again" if deleted.revealed else ""
        undo = "undo with `memfiles entries restore`"
        output.note(output.one_line(f"{as_word(key)}: deleted at level {deleted.level}{again}; {undo}"))


@command("restore", "memfiles entries restore customers/ada/plan --agent support", of=entries_command)
@argument("key")
@opening.as_session
def restore_command(key: str, who: opening.SessionOptions) -> None:
    """Restore a deleted, evicted or expired entry."""
    with opening.changing_entries(who) as (memory, session):
        confirm_saved(memory.entries.restore(session, key), done="restored")


def confirm_saved(saved: Saved, *, done: str) -> None:
    """Print the result of a save or a restore."""
    if output.as_json(saved.to_dict()):
        return
    now = f"revision {saved.revision}, {output.count(saved.size_bytes, 'byte')}"
    result = f"already done, as {now}; nothing changed" if saved.replayed else f"{done} at level {saved.level}, {now}"
    output.note(output.one_line(f"{as_word(saved.key)}: {result}"))
    if saved.kept_tags:
        output.note(output.one_line(f"its tags stay: {', '.join(saved.kept_tags)}"))
    if saved.confidence_was is not None:
        output.note(
            f"its confidence is {DEFAULT_CONFIDENCE:g} again; it was {saved.confidence_was:g} for the earlier text"
        )
    if saved.merged or saved.folded:
        hidden = ", ".join(map(as_word, (*saved.merged, *saved.folded)))
        output.note(output.one_line(f"hidden to stay within the budget, as others say the same: {hidden}"))
        output.note(f"to undo this: memfiles entries consolidate --undo {saved.plan}")
    if saved.evicted:
        output.warn(output.one_line(f"evicted to stay within the budget: {', '.join(map(as_word, saved.evicted))}"))
    for warning in saved.warnings:
        output.warn(output.one_line(warning))


@command(
    "forget",
    "memfiles entries forget --key customers/ada/plan --agent support",
    "memfiles entries forget --from-thread T-17 --agent support --dry-run",
    of=entries_command,
)
@_selector
@option("--why", default="", metavar="TEXT", help="Reason; it stays when the entry is gone.")
@option("--dry-run", is_flag=True, help="Show what would be forgotten.")
@option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@opening.as_session
def forget_command(dry_run: bool, yes: bool, why: str, who: opening.SessionOptions, **given: Any) -> None:
    """Forget entries for good.

    This selects the entries at the session's own level that match every given option. Their text is removed from the
    record, its history, the index, every kept copy, and the mirror; only who forgot it, when and why remains. This
    cannot be undone.

    The exit code is 3 if there is no such entry, such as one that is already forgotten, and 7 until the mirror's copies
    are gone as well. A bucket with versioning keeps its old versions: delete them there.
    """
    selector = selector_of(given)
    if dry_run or not yes:
        with opening.reading_entries(who) as (memory, session):
            found = memory.entries.forget(session, **selector, dry_run=True)
        if dry_run or not found.count:
            end_with_forgotten(found)
        ask(found)
    with opening.changing_entries(who) as (memory, session):
        forgotten = memory.entries.forget(session, **selector, why=why)
    end_with_forgotten(forgotten, mirror_is_clean=has_every_entry(memory.workflow))


def selector_of(given: dict[str, Any]) -> dict[str, Any]:
    """The selector for the library; a usage error without any option."""
    provenance = {name: value for name in ORIGINS if (value := given.pop(f"from_{name}")) is not None}
    selector = {name: value for name, value in given.items() if value is not None}
    if provenance:
        selector["provenance"] = provenance
    if not selector:
        raise usage_error(
            "choose what to forget: --key, --tag, --kind, --category, --id, --uid or an option that begins with --from"
        )
    return selector


def ask(found: Forgotten, *, counted: Callable[[int], str] = output.entries) -> None:
    """Ask for confirmation; a usage error without a terminal to ask on."""
    if current().json or not sys.stdin.isatty():
        raise usage_error(f"this forgets {counted(found.count)} for good; confirm with --yes, or use --dry-run")
    list_keys(found)
    output.ask(f"Forget {counted(found.count)} for good?")


def end_with_forgotten(
    forgotten: Forgotten,
    *,
    mirror_is_clean: bool | None = None,
    counted: Callable[[int], str] = output.entries,
    nothing: str = "no such entry at this session's level",
) -> None:
    """Print the result of a forget or of its dry run, and end the command."""
    if current().json:
        mirror = {} if mirror_is_clean is None else {"mirror_is_clean": mirror_is_clean}
        output.data(forgotten.to_dict() | mirror)
    elif not forgotten.count:
        output.note(nothing)
    elif forgotten.dry_run:
        output.note(f"{counted(forgotten.count)} would be forgotten")
        list_keys(forgotten)
    else:
        output.note(f"forgot {counted(forgotten.count)}")
    if mirror_is_clean is False:
        fail_until_pushed("the mirror's copies are not gone yet")
    click.get_current_context().exit(0 if forgotten.count else EntryNotFound.exit_code)


def list_keys(found: Forgotten) -> None:
    """Print the first keys."""
    for key in found.keys[:SHOWN]:
        output.note(f"  {output.one_line(key)}")
    if found.count > SHOWN:
        output.note(f"  and {found.count - SHOWN} more")


@command("purge", "memfiles purge --dry-run", "memfiles purge --json")
@option("--dry-run", is_flag=True, help="Count what would be erased.")
def purge_command(dry_run: bool) -> None:
    """Erase what expired or was deleted and was kept long enough.

    `retention` in the workflow says how long expired, deleted and evicted entries are kept, and how long the audit is
    kept. The text of an entry is removed from the record, its history, the index, every kept copy, and the mirror.
    Agents at work do this as well, a portion at a time; this command does all of it now.

    The exit code is 7 until the mirror's copies are gone as well.
    """
    workflow = opening.load_workflow()
    with look(workflow, warn=output.warn) as memory:
        found = memory.purge(dry_run=True)
    if dry_run:
        _show_purged(found, {})
        return
    with opening.mirrored(workflow) as memory, output.progress("Erasing") as shown:  # its opening erases a portion
        memory.purge(progress=shown)
    is_clean = has_every_entry(workflow)
    _show_purged(replace(found, dry_run=False), {"mirror_is_clean": is_clean})
    if not is_clean:
        fail_until_pushed("the mirror's copies are not gone yet")


def has_every_entry(workflow: Workflow) -> bool:
    """Whether the mirror, if one is declared, has every change of entries."""
    return not any(path.startswith(f"{ENTRIES}/") for path in pending_records(workflow))


def _show_purged(purged: Purged, mirror: dict[str, bool]) -> None:
    if not output.as_json(purged.to_dict() | mirror):
        done = "would be erased" if purged.dry_run else "erased"
        months = output.count(len(purged.audit_months), "month")
        output.note(f"{done}: {purged.expired} expired and {purged.deleted} deleted or evicted entries, {months} of "
                    f"the audit")  # fmt: skip


@command(
    "consolidate",
    "memfiles entries consolidate --agent support",
    "memfiles entries consolidate --agent support --apply",
    of=entries_command,
)
@option("--apply", "apply_it", is_flag=True, help="Apply the plan.")
@option("--undo", metavar="ID", help="Undo an applied plan.")
@opening.as_session
def consolidate_command(apply_it: bool, undo: str | None, who: opening.SessionOptions) -> None:
    """Show or apply a consolidation at the session's level.

    Duplicates are merged first, then episodes are folded into notes, and only then are entries over a budget evicted.
    Without --apply nothing changes; --undo takes the ID that --apply printed.
    """
    if apply_it and undo is not None:
        raise usage_error("use either --apply or --undo")
    if not apply_it and undo is None:
        with opening.reading_entries(who) as (memory, session), output.progress("Planning") as planned:
            plan = memory.entries.plan(session, progress=planned)
        if not output.as_json(plan.to_dict()):
            _show_plan(plan)
        return
    with opening.changing_entries(who) as (memory, session):
        entries = memory.entries
        change = partial(entries.undo_plan, session, undo or "")
        if undo is None:
            with output.progress("Planning") as planned:
                change = partial(entries.apply, session, entries.plan(session, progress=planned))
        with output.waiting("changing the entries ..."):
            applied = change()
    if output.as_json(applied.to_dict()):
        return
    hidden, shown = (output.entries(len(keys)) for keys in (applied.hidden, applied.shown))
    how = f"; undo with --undo {applied.plan}" if undo is None and applied.hidden else ""
    output.note(f"{'applied' if undo is None else 'undone'}: {hidden} hidden, {shown} shown again{how}")


def _keys(step: Step) -> str:
    """The keys that a step hides, the first of many."""
    return first_few([as_word(each.key) for each in step.retired], 3)


def _show_plan(plan: Plan) -> None:
    sums = ((output.entries(it.entries), output.count(it.size_bytes, "byte")) for it in (plan.before, plan.after))
    before, after = map(", ".join, sums)
    if not plan.steps:
        output.note(f"nothing to do at level {plan.level}: {before}, within the budget")
        return
    rows = ((it.action.replace("_", " "), _keys(it), it.freed.size_bytes, it.why) for it in plan.steps)
    output.table(("STEP", "HIDES", "FREES", "WHY"), rows, numeric=("FREES",))
    output.note(f"{before} would become {after}; use --apply to do it")
    if not plan.is_enough:
        output.warn("that is still over the budget")
