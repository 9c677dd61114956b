"""Let an agent keep what it learns: save entries at two levels, find them, see them in a prompt, and forget one.

No network and nothing left behind: the memory is in a temporary folder. Run it: python examples/keep_entries.py
"""

import tempfile
from pathlib import Path

import memfiles

WORKFLOW = """
memory:
  directory: .memory
  entries: {max_entries: 100, categories: {daily: {ttl: 72h}}}
agents:
  support: {level: INTERNAL}
"""


def main() -> None:
    """Run two sessions of one agent, the second at a higher level."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "workflow.yaml")
        path.write_text(WORKFLOW)
        with memfiles.open(path, watch=False) as memory:
            session = memory.session("support", run="email-1", channel="email")
            plan = {"key": "bob:plan", "content": "Bob moved to the Pro plan in May.", "tags": ["bob"]}
            print(session.call("memory_save", plan, call_id="toolu_01").text)

            trusted = memory.session("support", level="CONFIDENTIAL", run="call-7")
            memory.entries.save(trusted, "bob:debt", "Bob owes us for three months.", tags=["bob"], importance=0.9)

            for who in (session, trusted):
                found = memory.entries.search(who, "what do we know about Bob?")
                print(who.level, [match.found.key for match in found.matches])

            print(memory.entries.hydrate(session).text)
            print(memory.entries.forget(trusted, key="bob:debt", why="paid, and he asked"))


if __name__ == "__main__":
    main()
