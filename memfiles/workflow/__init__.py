"""Workflow: strict YAML, checked into typed models."""
