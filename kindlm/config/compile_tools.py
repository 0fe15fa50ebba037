"""Simulated tools as values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kindlm.config.files import ReferencedFiles
from kindlm.config.tool_schema import ToolAnswerConfig, ToolConfig, ToolReplyConfig
from kindlm.errors import Ok
from kindlm.suite import Cassette, Fault, SimulatedTool, ToolAnswer


def compile_tool(config: ToolConfig, files: ReferencedFiles) -> SimulatedTool:
    """Return a tool; its file of a schema has been checked."""
    cassette = config.cassette
    return SimulatedTool(
        name=config.name,
        description=config.description,
        parameters=config.parameters,
        answers=tuple(_answer(item) for item in config.responses),
        default=config.default_response,
        has_default="default_response" in config.model_fields_set,
        result_schema=_schema(config.result_schema, files),
        cassette=None if cassette is None else Cassette(cassette.run, cassette.match),
    )


def _answer(config: ToolAnswerConfig) -> ToolAnswer:
    return ToolAnswer(
        when=config.when,
        when_state=config.when_state,
        sequence=tuple(_reply(item) for item in config.sequence),
        then=config.then,
        set_state=config.set_state,
        fault=_fault(config),
        delay_ms=config.delay_ms,
    )


def _reply(config: ToolReplyConfig) -> ToolAnswer:
    return ToolAnswer(
        then=config.then,
        set_state=config.set_state,
        fault=_fault(config),
        delay_ms=config.delay_ms,
    )


def _fault(config: ToolReplyConfig) -> Fault | None:
    return None if config.fault is None else Fault(config.fault)


def _schema(file: str | None, files: ReferencedFiles) -> Mapping[str, Any] | None:
    if file is None:
        return None
    found = files.schema(file)
    assert isinstance(found, Ok), "references are checked before a suite is compiled"
    schema = found.value
    if isinstance(schema, bool):
        # The schemas `true` and `false`, as objects.
        return {} if schema else {"not": {}}
    return dict(schema)
