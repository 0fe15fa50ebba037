"""Simulated tools: that each answer says something, in the place where it may, and does not lie."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kindlm.config.diagnostics import Reporter
from kindlm.config.document import Path, dotted
from kindlm.config.files import ReferencedFiles, report_schema
from kindlm.config.json_schemas import schema_fault, warn_of_misspelt
from kindlm.config.raw import Raw, expectations, items, texts, walk
from kindlm.errors import Ok
from kindlm.json_schema import UndecidableSchemaError, schema_issues
from kindlm.suite import TOOL_PLACEHOLDER

_ABSENT = {"$absent": True}
# What both OpenAI and Anthropic take.
_USUAL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MAX_LISTED = 3


def check_tools(raw: Raw, reporter: Reporter, files: ReferencedFiles) -> None:
    """Report answers of simulated tools that cannot be meant, and those that break their schema."""
    for path, test in items(raw, "tests"):
        for place, tool in items(test, "tools"):
            _check_tool((*path, *place), tool, reporter, files)
        for place, expect in expectations(test):
            for inner, call in (
                *items(expect, "toolCalls"),
                *items(expect, "trajectory", "calls"),
            ):
                matcher = (*path, *place, *inner, "argsMatch")
                _check_constant(matcher, call.get("argsMatch"), reporter)


def _check_tool(path: Path, tool: Raw, reporter: Reporter, files: ReferencedFiles) -> None:
    _check_name((*path, "name"), tool.get("name"), reporter)
    _check_parameters((*path, "parameters"), tool, reporter)
    _check_constant((*path, "defaultResponse"), tool.get("defaultResponse"), reporter)
    for place, answer in items(tool, "responses"):
        _check_answer((*path, *place), answer, reporter)
    file = tool.get("resultSchema")
    if isinstance(file, str) and file:
        schema = report_schema((*path, "resultSchema"), file, files, reporter)
        if isinstance(schema, Ok):
            _check_results(path, tool, file, schema.value, reporter)


def _check_name(path: Path, name: Any, reporter: Reporter) -> None:
    if isinstance(name, str) and name and not _USUAL_NAME.fullmatch(name):
        reporter.warning(
            path,
            "Most providers refuse this name of a tool",
            "Use at most 64 letters, digits, _ and -",
            reason="tool_name",
            value=name,
        )


def _check_parameters(path: Path, tool: Raw, reporter: Reporter) -> None:
    parameters = tool.get("parameters")
    if not isinstance(parameters, dict):
        return
    fault = schema_fault(parameters)
    if fault is None and parameters.get("type", "object") != "object":
        fault = "arguments are an object, so its `type` can only be `object`"
    if fault is not None:
        reporter.error(
            path,
            f'The parameters of the tool "{tool.get("name")}" are not a valid JSON Schema: {fault}',
            "Providers refuse such a tool",
            reason="invalid_schema",
        )
    else:
        name = f'the parameters of the tool "{tool.get("name")}"'
        warn_of_misspelt(path, parameters, name, reporter)


def _check_answer(path: Path, answer: Raw, reporter: Reporter) -> None:
    _check_one_of(path, answer, ("then", "fault", "sequence"), reporter)
    if answer.get("sequence") == []:
        reporter.error(
            (*path, "sequence"),
            f"The sequence of {dotted(path)} has no answers",
            "Add one, or write `then:` instead",
            reason="schema",
        )
    _check_constant((*path, "when"), answer.get("when"), reporter)
    _check_state((*path, "whenState"), answer.get("whenState"), reporter)
    replies = list(items(answer, "sequence"))
    for place, reply in replies:
        _check_one_of((*path, *place), reply, ("then", "fault"), reporter)
    for place, reply in (((), answer), *replies):
        for key in ("then", "setState"):
            _check_no_absent((*path, *place, key), reply.get(key), reporter)


def _check_one_of(path: Path, answer: Raw, keys: tuple[str, ...], reporter: Reporter) -> None:
    found = [key for key in keys if key in answer]
    if not found:
        reporter.error(
            (*path, "then"),
            f'The key "then" is missing in {dotted(path)}',
            "Add " + " or ".join(f"`{key}:`" for key in keys),
            reason="schema",
        )
    elif len(found) > 1:
        reporter.error(
            (*path, found[1]),
            f"{dotted(path)} has both `{found[0]}` and `{found[1]}`",
            "Remove one of them",
            reason="schema",
            at_key=True,
        )


def _check_constant(path: Path, value: Any, reporter: Reporter) -> None:
    """Report placeholders and `$absent` where a value is compared, or given, as it stands."""
    _check_no_absent(path, value, reporter)
    _check_no_placeholder(path, value, reporter)


def _check_state(path: Path, value: Any, reporter: Reporter) -> None:
    _check_no_placeholder(path, value, reporter)
    for place, item in walk(value, path):
        if isinstance(item, dict) and "$absent" in item and (item != _ABSENT or place == path):
            reporter.error(
                (*place, "$absent"),
                f"{dotted(place)} cannot be matched",
                "Write what must not be there as `NAME: { $absent: true }`",
                reason="absent",
                at_key=True,
            )


def _check_no_absent(path: Path, value: Any, reporter: Reporter) -> None:
    for place, item in walk(value, path):
        if isinstance(item, dict) and "$absent" in item:
            reporter.error(
                (*place, "$absent"),
                f"$absent has no meaning in {dotted(path)}",
                "It can stand in `whenState` only",
                reason="absent",
                at_key=True,
            )


def _check_no_placeholder(path: Path, value: Any, reporter: Reporter) -> None:
    for place, text in texts(value, path):
        found = TOOL_PLACEHOLDER.search(text)
        if found:
            reporter.error(
                place,
                f"{found[0]} has no value in {dotted(path)}",
                "Arguments and state can stand in `then` and `setState` of responses only",
                reason="unknown_placeholder",
                value=found[0],
            )


def _check_results(path: Path, tool: Raw, file: str, schema: Any, reporter: Reporter) -> None:
    """Check what the tool answers, as far as it is known before it is called."""
    for place, value in _results(tool):
        if any(TOOL_PLACEHOLDER.search(text) for _, text in texts(value, place)):
            continue
        try:
            issues = schema_issues(schema, value)
        except UndecidableSchemaError as error:
            reporter.error(
                (*path, *place),
                f'It cannot be checked whether this answer fits "{file}": {error}',
                "Correct the schema",
                reason="result_schema",
            )
            return
        if issues:
            listed = "; ".join(f"{issue.path}: {issue.message}" for issue in issues[:_MAX_LISTED])
            reporter.error(
                (*path, *place),
                f'This answer of the tool "{tool.get("name")}" breaks "{file}": {listed}',
                "The real tool would never answer so: correct the answer, or the schema",
                reason="result_schema",
                value=file,
            )


def _results(tool: Raw) -> Iterator[tuple[Path, Any]]:
    for path, answer in items(tool, "responses"):
        for place, reply in (((), answer), *items(answer, "sequence")):
            if "then" in reply and "fault" not in reply:
                yield (*path, *place, "then"), reply["then"]
    if "defaultResponse" in tool:
        yield ("defaultResponse",), tool["defaultResponse"]
