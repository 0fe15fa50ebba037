"""The `tools` of a test: their schema, their checks, and how they are compiled."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from kindlm.config.diagnostics import Reporter
from kindlm.config.files import ReferencedFiles, report_schema
from kindlm.config.json_schemas import schema_fault, warn_of_ignored
from kindlm.document import Path, Raw, expectations, items, section, texts, walk
from kindlm.errors import Err, checked
from kindlm.json_schema import schema_issues
from kindlm.json_schema_keywords import UndecidableSchemaError
from kindlm.section import Count, Extension, Maybe, Section, Text, Words, as_value
from kindlm.suggestions import hint_for
from kindlm.suite import TOOL_PLACEHOLDER, Fault, ServerTools, SimulatedTool, ToolAnswer
from kindlm.values import MAPPING, OTHER, refuse


class ToolReplyConfig(Section):
    """A result of a simulated tool: `then`, or a `fault`."""

    then: Any = Field(default=None, examples=[{"status": "delivered"}])
    """The result; null is one, too. May contain `{{args.NAME}}` and `{{state.NAME}}`."""
    fault: Extension[Maybe[Literal["timeout", "error", "malformed"]]] = Field(
        default=None, examples=["timeout"]
    )
    """A failure instead of a result: an error that says so, or a text that is not JSON."""
    set_state: Extension[dict[str, Any]] = Field(
        default={}, examples=[{"refunded": "{{args.order_id}}"}]
    )
    """Values to remember for the rest of the conversation. All tools of the test share them."""
    delay_ms: Extension[Count] = Field(default=0, examples=[200])
    """Delay of the result in milliseconds. Parallel calls wait at the same time. The delay counts
    for `executionTimeoutMs`, not as latency."""

    @model_validator(mode="after")
    def _is_one_result(self) -> ToolReplyConfig:
        kinds = [key for key in ("then", "fault", "sequence") if key in type(self).model_fields]
        written = self.model_fields_set.intersection(kinds)
        if len(written) != 1 or (written == {"sequence"} and not getattr(self, "sequence", ())):
            listed = " or ".join(f"`{key}`" for key in kinds)
            raise refuse(f"must have either {listed}", "Write one of them")
        return self


class ToolAnswerConfig(ToolReplyConfig):
    """A result, and the calls that get it."""

    when: Maybe[dict[str, Any]] = Field(default=None, examples=[{"order_id": "A1"}])
    """Arguments that the call must have. Additional ones are allowed. Without `when`, every call
    matches."""
    when_state: Extension[Maybe[dict[str, Any]]] = Field(
        default=None, examples=[{"refunded": {"$absent": True}}]
    )
    """Values that must have been remembered. `{ $absent: true }` stands for no value."""
    sequence: Extension[list[ToolReplyConfig]] = Field(
        default=[], examples=[[{"then": {"status": "pending"}}, {"then": {"status": "done"}}]]
    )
    """Results for one call after another. Further calls get the last one."""


class CassetteConfig(Section):
    """Results recorded in an earlier run, in the test of the same name."""

    main = "run"

    run: Text = Field(examples=["latest"])
    """Id or label of a run of this suite, or `latest` for the newest finished one. If several runs
    have the label, the newest counts."""
    match: Literal["arguments"] = Field(default="arguments", examples=["arguments"])
    """A call gets the recorded result of a call with equal arguments. If there are several, calls
    get them one after another, and further calls the last one."""


class ToolConfig(Section):
    """A simulated tool: results come from `responses`, the cassette or `defaultResponse`."""

    main = "name"

    name: Text = Field(examples=["lookup_order"])
    """The tool's name, as the model sees it."""
    description: Maybe[str] = Field(default=None, examples=["Finds an order by its number."])
    """Description sent to the model."""
    parameters: Maybe[dict[str, Any]] = Field(
        default=None, examples=[{"type": "object", "properties": {"order_id": {"type": "string"}}}]
    )
    """JSON Schema of the arguments. Reports show calls that violate it; with `strictTools`, they
    fail the test."""
    responses: list[ToolAnswerConfig] = Field(
        default=[], examples=[[{"when": {"order_id": "A1"}, "then": {"status": "delivered"}}]]
    )
    """Results for matching calls. The first match counts."""
    default_response: Any = Field(default=None, examples=[{"error": "Order not found"}])
    """The result if nothing matches. Null is a result, too."""
    result_schema: Extension[Maybe[Text]] = Field(default=None, examples=["schemas/order.json"])
    """JSON Schema file for all results, relative to this file."""
    cassette: Extension[Maybe[CassetteConfig]] = None
    """Results recorded in an earlier run, in the test of the same name."""


class McpToolsConfig(Section):
    """Tools of an MCP server, as it lists them when the run begins."""

    main = "server"

    server: Text = Field(examples=["shop"])
    """Id of an agent with `adapter: mcp`."""
    only: Maybe[Words] = Field(default=None, examples=[["lookup_order"]])
    """Names of the tools for the model. By default all."""
    simulate: bool = Field(default=False, examples=[True])
    """Never call the server. Calls get the results of the simulated tools with the same names."""


class ServerToolsConfig(Section):
    """Tools of an MCP server. A tool of the same name in this test is simulated."""

    mcp: McpToolsConfig
    """The server, and which of its tools."""


ToolsEntry = Annotated[
    Annotated[ToolConfig, Tag(MAPPING)] | Annotated[ServerToolsConfig, Tag(OTHER)],
    Discriminator(lambda value: OTHER if isinstance(value, dict) and "mcp" in value else MAPPING),
]
"""A simulated tool, or the tools of a server."""


_ABSENT = {"$absent": True}
_MAX_LISTED = 3


def check_tools(path: Path, test: Raw, reporter: Reporter, files: ReferencedFiles) -> None:
    """Report errors in simulated tools, and results that violate the schema of their tool."""
    parameters: dict[str, list[str]] = {}
    of_test: dict[Path, Raw] = {}
    for place, tool in items(test, "tools"):
        at = (*path, *place)
        replies = dict(_replies(at, tool))
        _check_parameters((*at, "parameters"), tool, reporter)
        for holder, held in {at: tool, **replies}.items():
            _check_values(holder, held, reporter)
        _check_results(at, tool, replies, reporter, files)
        schema = section(tool, "parameters")
        names = [*section(schema, "properties")]
        is_open = schema.get("additionalProperties") not in (None, False)
        if names and not is_open and schema.keys().isdisjoint(_MORE_PARAMETERS):
            parameters[str(tool.get("name"))] = names
            for holder, reply in replies.items():
                _warn_of_arguments((*holder, "when"), reply, names, reporter)
        of_test |= replies
    for place, expect in expectations(test):
        for inner, call in (*items(expect, "toolCalls"), *items(expect, "trajectory", "calls")):
            at = (*path, *place, *inner)
            _check_values(at, call, reporter)
            if (known := parameters.get(str(call.get("tool")))) is not None:
                _warn_of_arguments((*at, "argsMatch"), call, known, reporter)
    _warn_of_state(of_test, reporter)


def _replies(path: Path, tool: Raw) -> Iterator[tuple[Path, Raw]]:
    """Yield the responses of the tool at a path, and those in their sequences."""
    for at, answer in items(tool, "responses"):
        yield (*path, *at), answer
        for inner, reply in items(answer, "sequence"):
            yield (*path, *at, *inner), reply


def _warn_of_state(replies: Mapping[Path, Raw], reporter: Reporter) -> None:
    """Report names of the state that no response of the test sets."""
    known = [name for reply in replies.values() for name in section(reply, "setState")]
    for at, reply in replies.items():
        used = [((*at, "whenState", name), name) for name in section(reply, "whenState")]
        for key in _FILLED:
            for place, text in texts(reply.get(key), (*at, key)):
                named = (re.split(r"[.[]", it[1]) for it in TOOL_PLACEHOLDER.finditer(text))
                used += [(place, name) for kind, name, *_ in named if kind == "state"]
        for place, name in used:
            if name not in known:
                message = f'No response of this test sets the state "{name}"'
                hint = hint_for(name, known, "They set") if known else "Set it in `setState`"
                reporter.warning(place, message, hint, reason="unknown_state", value=name)


_MORE_PARAMETERS = ("$ref", "allOf", "anyOf", "oneOf", "if", "patternProperties")
"""Keywords of a schema that may allow parameters besides its `properties`."""


def _warn_of_arguments(path: Path, holder: Raw, known: Iterable[str], reporter: Reporter) -> None:
    """Report arguments in the last key of `path` that the tool has no parameter for."""
    for name in section(holder, str(path[-1])):
        if name not in known:
            message = f'The tool has no parameter "{name}", so this matches hardly any call'
            hint = hint_for(name, known, "Its parameters")
            reporter.warning((*path, name), message, hint, reason="unknown_argument", value=name)


def _check_parameters(path: Path, tool: Raw, reporter: Reporter) -> None:
    parameters = tool.get("parameters")
    if not isinstance(parameters, dict):
        return
    name, fault = f'the parameters of the tool "{tool.get("name")}"', schema_fault(parameters)
    if fault is None and parameters.get("type", "object") != "object":
        fault = "arguments are an object, so its `type` can only be `object`"
    if fault is not None:
        message = f"{name[0].upper()}{name[1:]} are not a valid JSON Schema: {fault}"
        reporter.error(path, message, "Providers reject such a tool", reason="invalid_schema")
        return
    warn_of_ignored(path, parameters, name, reporter)


_FILLED = ("then", "setState")
"""The keys whose values may have placeholders."""


def _check_values(path: Path, holder: Raw, reporter: Reporter) -> None:
    """Report `$absent` and placeholders of tools where they have no meaning.

    `holder` is a tool, a response or an expected call.
    """
    for key in ("defaultResponse", "when", "whenState", *_FILLED, "argsMatch"):
        where = (*path, key)
        for place, item in walk(holder.get(key), where):
            is_absence = key == "whenState" and item == _ABSENT and place != where
            if isinstance(item, dict) and "$absent" in item and not is_absence:
                message = f"$absent has no meaning in {reporter.place(place)}"
                hint = "It is allowed only in `whenState`, as `NAME: { $absent: true }`"
                reporter.error((*place, "$absent"), message, hint, reason="absent", at_key=True)
            found = TOOL_PLACEHOLDER.search(item) if isinstance(item, str) else None
            if found is not None and key not in _FILLED:
                message = f"{found[0]} has no value in {reporter.place(where)}"
                hint = "Arguments and state are allowed only in `then` and `setState` of responses"
                reporter.error(place, message, hint, reason="unknown_placeholder", value=found[0])


def _check_results(
    path: Path, tool: Raw, replies: Mapping[Path, Raw], reporter: Reporter, files: ReferencedFiles
) -> None:
    file = tool.get("resultSchema")
    if not isinstance(file, str) or not file:
        return
    schema = report_schema((*path, "resultSchema"), file, files, reporter)
    if isinstance(schema, Err):
        return
    results: dict[Path, Any] = {}
    if "defaultResponse" in tool:
        results[*path, "defaultResponse"] = tool["defaultResponse"]
    for place, reply in replies.items():
        if "then" in reply and "fault" not in reply:
            results[*place, "then"] = reply["then"]
    for at, value in results.items():
        if any(TOOL_PLACEHOLDER.search(text) for _, text in texts(value, at)):
            continue
        try:
            issues = schema_issues(schema.value, value)
        except UndecidableSchemaError as error:
            message = f'kindlm cannot check this response against "{file}": {error}'
            reporter.error(at, message, "Correct the schema", reason="result_schema")
            return
        if issues:
            listed = "; ".join(f"{issue.path}: {issue.message}" for issue in issues[:_MAX_LISTED])
            message = f'This response of the tool "{tool.get("name")}" breaks "{file}": {listed}'
            hint = "The real tool would never return this: fix the response or the schema"
            reporter.error(at, message, hint, reason="result_schema", value=file)


def compile_server_tools(config: McpToolsConfig) -> ServerTools:
    """Return a server's tools of a test, each name once."""
    only = None if config.only is None else tuple(dict.fromkeys(config.only))
    return ServerTools(config.server, only, config.simulate)


def compile_tool(config: ToolConfig, files: ReferencedFiles) -> SimulatedTool:
    """Return a simulated tool, whose schema file was checked before."""
    file = config.result_schema
    schema = None if file is None else checked(files.schema(file))
    return as_value(
        SimulatedTool,
        config,
        answers=tuple(map(_answer, config.responses)),
        default=config.default_response,
        has_default="default_response" in config.model_fields_set,
        # The schemas `true` and `false` are {} and {"not": {}} as objects.
        result_schema={} if schema is True else {"not": {}} if schema is False else schema,
        cassette=None if config.cassette is None else config.cassette.run,
    )


def _answer(config: ToolReplyConfig) -> ToolAnswer:
    fault = None if config.fault is None else Fault(config.fault)
    sequence = config.sequence if isinstance(config, ToolAnswerConfig) else ()
    return as_value(ToolAnswer, config, fault=fault, sequence=tuple(map(_answer, sequence)))
