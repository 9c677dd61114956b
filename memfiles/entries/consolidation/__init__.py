"""Consolidation: plans that merge duplicates and fold episodes, applied and undone."""
