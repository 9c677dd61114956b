"""Declare memory files in YAML, change one from Python, and find it again at the next start.

No mirror and no network: workflow.yaml declares only a directory. Run it twice: python examples/declare_files.py
"""

from pathlib import Path

import memfiles

WORKFLOW = Path(__file__).with_name("workflow.yaml")
NOTES = "customer-notes-7f3a"


def main() -> None:
    """Append one line, take it back if it is the third, and show what is on disk."""
    with memfiles.open(WORKFLOW, watch=False) as memory:
        for file in memory.report.files:
            print(f"{file.name}: {file.status}")  # seeded at the first start, kept from then on

        receipt = memory.manager.append(NOTES, "- Bob is on Pro.\n")
        print(f"revision {receipt.revision}, {receipt.bytes_left} bytes left")

        try:
            memory.manager.edit(NOTES, "Carol", "Dora")
        except memfiles.EditNoMatch as error:
            print(f"refused: {error}")

        if memory.manager.read(NOTES).count("Bob") > 2:
            memory.manager.undo(NOTES)
        print(memory.manager.read(NOTES), end="")


if __name__ == "__main__":
    main()
