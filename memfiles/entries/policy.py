"""The rules that a workflow gives for entries, in one value that every operation is handed."""

from __future__ import annotations

from dataclasses import dataclass

from memfiles.entries.budgets import Budget, budget_of
from memfiles.entries.categories import Categories, Category, later
from memfiles.records.levels import Levels
from memfiles.secrets.gate import Policy, Scanner
from memfiles.workflow.workflow import EntriesSpec, Workflow

DEFAULT_HYDRATE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class EntryRules:
    """Levels, what happens to credentials, budgets and categories. Sizes are UTF-8 bytes."""

    levels: Levels = Levels()
    secrets: Policy = "block"
    allow: tuple[str, ...] = ()
    scan: Scanner | None = None
    budget: Budget = Budget()
    hydrate_bytes: int = DEFAULT_HYDRATE_BYTES
    categories: Categories = Categories()

    def category(self, name: str) -> Category:
        """How entries of the category are treated."""
        return self.categories.of(name)

    def expiry(self, category: str, since: str, ttl: int | None = None) -> str | None:
        """When an entry of the category expires whose content last changed at ``since``; its own ``ttl`` goes first."""
        return later(since, ttl) if ttl is not None else self.categories.expiry(category, since)


def rules_of(workflow: Workflow, declared: EntriesSpec, *, scan: Scanner | None = None) -> EntryRules:
    """The rules that a workflow's declaration makes; ``scan`` is the second scanner that it asks for."""
    return EntryRules(
        levels=workflow.levels,
        secrets=workflow.memory.secrets,
        allow=declared.secrets_allow,
        scan=scan,
        budget=budget_of(declared),
        hydrate_bytes=declared.hydrate_bytes,
        categories=Categories(declared.categories),
    )
