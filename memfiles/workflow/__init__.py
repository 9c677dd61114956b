"""Workflow: strict YAML, checked into typed models.

Other rooms use ``fields``, ``older_workflow``, ``problems``, ``workflow``, ``yaml_source`` and ``yaml_text``.
"""
