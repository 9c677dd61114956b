"""Search: candidates, ranking, association and vectors."""
