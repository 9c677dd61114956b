"""MCP server for one agent's memory: its tools, its records as resources, and notifications of their changes.

``server`` answers requests, ``resources`` maps records to MCP resources, ``notifications`` reports changes. ``stdio``
and ``http`` are the two transports.

The rule this package enforces: it only translates. The session decides, at every call, what the agent may see and do.

Other rooms use ``http``, ``server`` and ``stdio``.
"""
