"""A workflow in each shape, that more than one test reads."""

EXAMPLE = """\
# yaml-language-server: $schema=schemas/workflow.schema.json
name: support-desk
memory:
  directory: .memory                     # relative to this file
  mirror: {url: "s3://acme-agents/support-desk?region=eu-central-1", pull: cold-start, on_conflict: local}
  durability: fsync
  levels: [PUBLIC, INTERNAL, CONFIDENTIAL, RESTRICTED]
  secrets: block
  files:
    - uid: customer-notes-7f3a
      name: customer-notes
      description: What we know about each customer, one bullet a fact.
      max_size_bytes: 16384
      level: INTERNAL
      content: |
        # Customers
    - {uid: playbook, name: playbook}
  entries: {max_entries: 1000, max_bytes: 1048576, hydrate_bytes: 262144, categories: {daily: {ttl: 72h}}}
agents:
  support: {level: INTERNAL, memory: [{id: customer-notes-7f3a, mode: rw}, {id: playbook, mode: r}]}
triggers: {email: {on: received}}
"""

OLDER = """\
name: support
memory:
  - type: MemoryFile
    id: 7c9e6679-7425-40de-944b-e07fc1f90ae7
    label: customer-notes
    description: What we know about each customer.
    content: |
      # Customers
    maxSizeBytes: 4096
    position: {x: 1, y: 2}
  - {type: VectorStore, id: docs, dimensions: 1536}
  - {type: MemoryFile, id: playbook, label: How we answer, description: null, content: null}
nodes:
  - id: start
    type: Trigger
  - id: support
    type: Agent
    label: Support agent
    arguments:
      model: any
      memoryRefs:
        - {id: docs, mode: r}
        - {id: 7c9e6679-7425-40de-944b-e07fc1f90ae7, mode: RW, pinned: true}
        - {id: playbook, mode: r}
edges: [[start, support]]
"""
