"""The memory of one agent as an MCP server: its tools, its records as resources, and news of their changes.

What the files own: ``offer`` what is offered and as whom, ``addresses`` the URIs, ``tools``, ``resources`` and
``prompts`` each one kind of thing that MCP knows, ``changes`` and ``older_clients`` the news, ``crossing`` the way from
the event loop to the memory and back, ``server`` the whole, ``stdio`` and ``http`` the two ways to it; of the first,
``lines`` are the descriptors, ``messages`` what is on them, and ``due`` what must be answered before the end.

The rule this package guards: it translates. What the agent may see and do is decided by its session, for every call.
"""
