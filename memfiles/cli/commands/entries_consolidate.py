"""``entries consolidate``: what could be merged, folded or evicted, shown first and done only when asked."""

from __future__ import annotations

import click

from memfiles.cli import output
from memfiles.cli.commands.entries_opening import As, as_session, changing_entries, looking_at_entries
from memfiles.cli.help_text import example
from memfiles.cli.settings import current, shared_options
from memfiles.entries.budgets import Tally
from memfiles.entries.consolidation.consolidator import Applied
from memfiles.entries.consolidation.plan import Plan, Step

_EXAMPLE = example(
    "memfiles entries consolidate --agent support",
    "memfiles entries consolidate --agent support --apply",
)


@click.command("consolidate", epilog=_EXAMPLE)
@click.option("--apply", "apply_it", is_flag=True, help="Do what the plan says.")
@click.option("--undo", metavar="ID", help="Take back an applied plan.")
@as_session
@shared_options
def consolidate_command(apply_it: bool, undo: str | None, **who: str | None) -> None:
    """Show what consolidation would do at the session's level.

    Repetitions are merged first, then episodes are folded into notes, and only then entries over a budget
    evicted. With --apply it is done; --undo takes it back by the id that --apply printed.
    """
    if apply_it and undo is not None:
        raise click.UsageError("--apply and --undo exclude each other", click.get_current_context())
    if not apply_it and undo is None:
        with looking_at_entries(As(**who)) as opened:
            show_plan(opened.entries.plan(opened.session))
        return
    with changing_entries(As(**who)) as opened:
        entries, session = opened.entries, opened.session
        applied = entries.apply(session, entries.plan(session)) if undo is None else entries.undo(session, undo)
    show_applied(applied, done="applied" if undo is None else "undone")


def show_plan(plan: Plan) -> None:
    """Print the steps of a plan, least destructive first."""
    if current().json:
        output.data(plan.to_dict())
        return
    if not plan.steps:
        output.note(f"nothing to do: {_tally(plan.before)} at level {plan.level} are within the budget")
        return
    output.table(("STEP", "HIDES", "FREES", "WHY"), map(_step_row, plan.steps), numeric=("HIDES", "FREES"))
    output.note(f"{_tally(plan.before)} would become {_tally(plan.after)}; --apply does it")
    if not plan.is_enough:
        output.warn("that is still over the budget")


def show_applied(applied: Applied, *, done: str) -> None:
    """Print what was done, and how to take it back."""
    if current().json:
        output.data(applied.to_dict())
        return
    hidden, shown = (output.count(len(keys), "entry", "entries") for keys in (applied.hidden, applied.shown))
    back = f"; --undo {applied.plan} takes it back" if done == "applied" and applied.hidden else ""
    output.note(f"{done}: {hidden} hidden, {shown} shown again{back}")


def _step_row(step: Step) -> tuple[object, ...]:
    return step.action.replace("_", " "), len(step.retired), step.freed.size_bytes, step.why


def _tally(tally: Tally) -> str:
    return f"{output.count(tally.entries, 'entry', 'entries')}, {tally.size_bytes} bytes"
