"""The workflow that ``memfiles init`` writes: small, commented, and working as it is."""

from __future__ import annotations

WORKFLOW = """\
# yaml-language-server: $schema=schemas/workflow.schema.json
#
# The memory of your agents. Try it:
#   memfiles read notes                          what an agent would read
#   memfiles append notes --line "- a fact"      what an agent would write
#   memfiles card assistant                      what stands in its system prompt
#   memfiles entries save plan "Ada is on Pro"   what it would save under a key
#   memfiles entries search ada                  what it would find again
name: my-workflow

memory:
  # Where the records are kept, relative to this file. Keep it out of version control.
  directory: .memory

  # A second home for the records: a bucket, or a directory such as file:///mnt/backup/my-workflow that exists already.
  # Credentials come from the environment or from boto3's configuration, never from here. `memfiles doctor` asks it.
  # mirror:
  #   url: s3://my-bucket/my-workflow?region=eu-central-1
  #   pull: cold-start             # or restore: at every start; or an interval such as 5m
  #   on_conflict: local           # whose text wins where two changes cannot be merged; the other one is kept

  # fsync: a change that was acknowledged survives a power cut. os: faster, for throwaway agents.
  durability: fsync

  # Text that looks like a credential: block, redact, warn, or off.
  secrets: block

  # From low to high. A session reads what is at or below its level and changes what is at its level.
  levels: [PUBLIC, INTERNAL, CONFIDENTIAL, RESTRICTED]

  files:
    - uid: notes-1                 # never changes: the record on disk is called after it
      name: notes                  # what the model sees; may be changed at any time
      description: What is worth remembering, one bullet a fact.
      max_size_bytes: 16384        # UTF-8 bytes; a change that would pass it is refused
      level: INTERNAL
      content: |                   # only the first content: afterwards what is on disk counts
        # Notes

    - uid: instructions-1
      name: instructions
      description: How to work; written by people, read by the agent.
      max_size_bytes: 4096
      level: PUBLIC
      content: |
        - Write down what the next run must know, and nothing that it can look up.
        - Correct what is wrong instead of adding to it.

  # What agents save themselves while they run, under keys, each at the level of its session. Without this part they
  # have no tools for it. The budgets hold for each agent at each level; over one, what matters least is evicted.
  entries:
    max_entries: 1000
    max_bytes: 1048576
    hydrate_bytes: 16384             # so much of it stands in the system prompt: what is pinned, then the newest
    categories:
      daily: {ttl: 72h}              # expires so long after its last change
    # tool_names: store-recall       # memory_store, recall, list, forget; or crud: memory_search, create, read, ...

agents:
  assistant:
    level: INTERNAL
    memory:
      - {id: notes-1, mode: rw}         # read, append and edit
      - {id: instructions-1, mode: r}   # read only
"""
