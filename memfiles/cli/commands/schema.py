"""``schema``: the JSON Schemas of what memfiles reads and writes."""

from __future__ import annotations

import click

from memfiles.cli import output
from memfiles.cli.help_text import example
from memfiles.cli.settings import shared_options
from memfiles.tools.json_schemas import record_schema, tools_schema, workflow_schema

SCHEMAS = {"workflow": workflow_schema, "record": record_schema, "tools": tools_schema}


@click.command("schema", epilog=example("memfiles schema workflow > schemas/workflow.schema.json"))
@click.argument("what", type=click.Choice(sorted(SCHEMAS)))
@shared_options
def schema_command(what: str) -> None:
    """Print a JSON Schema: of the workflow, of a record, of the tools."""
    output.data(SCHEMAS[what]())
