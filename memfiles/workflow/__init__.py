"""Workflow: strict YAML, checked into typed models.

Other rooms use ``fields``, ``older_workflow``, ``problems``, ``specs``, ``workflow``, ``yaml_source`` and
``yaml_text``.
"""
