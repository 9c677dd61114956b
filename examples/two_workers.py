"""Two worker processes and one database: each sees what the other has just written, without a mirror in between.

Needs memfiles[postgres] and a database. Run it: python examples/two_workers.py 'postgresql://localhost/agents'
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import memfiles

WORKFLOW = """
name: support-desk
memory:
  store: {url}
  files: [{{uid: shift-log-2b7e, name: shift-log, description: What happened on this shift.}}]
  entries: {{}}
agents:
  support: {{memory: [{{id: shift-log-2b7e, mode: rw}}]}}
"""


def work(workflow: str, name: str) -> None:
    """One worker: for each line that it is told, it notes a case, and says which cases it finds."""
    with memfiles.open(workflow) as memory:
        session = memory.session("support", actor=name)
        for line in sys.stdin:
            case = line.strip()
            session.call("append_memory", {"file": "shift-log", "content": f"- {name}: {case}\n"})
            session.call("memory_save", {"key": f"case/{case}", "content": f"{name} looks into case {case}"})
            found = session.call("memory_search", {"query": "who looks into which case?"})
            print(len((found.data or {})["results"]), flush=True)


def ask(worker: subprocess.Popen[str], case: int) -> str:
    """Give a case to a worker, and hear how many it finds."""
    assert worker.stdin is not None and worker.stdout is not None
    print(case, file=worker.stdin, flush=True)
    return worker.stdout.readline().strip()


def run(url: str) -> None:
    """Give cases to two workers in turns, then show what is kept."""
    with tempfile.TemporaryDirectory() as folder:
        (workflow := Path(folder, "workflow.yaml")).write_text(WORKFLOW.format(url=json.dumps(url)))
        command = [sys.executable, __file__, "--work", str(workflow)]
        pipe = subprocess.PIPE
        workers = [subprocess.Popen([*command, each], stdin=pipe, stdout=pipe, text=True) for each in ("ada", "bob")]
        for number in range(4):
            print(f"case {number}: {ask(workers[number % 2], number)} cases are known")
        _ = [worker.communicate() for worker in workers]
        with memfiles.open(workflow) as memory:
            print(memory.manager.read("shift-log"), end="")


if __name__ == "__main__":
    work(*sys.argv[2:]) if sys.argv[1] == "--work" else run(sys.argv[1])
