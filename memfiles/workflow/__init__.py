"""Workflow: strict YAML, checked into typed models.

Other rooms use ``declared``, ``fields``, ``older_workflow``, ``problems``, ``specs``, ``workflow``, ``yaml_source`` and
``yaml_text``.
"""
