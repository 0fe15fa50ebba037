"""The result of one check of one transcript, whether it has to be awaited or not."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pydantic.alias_generators import to_camel

from kindlm.checks import CheckRunner
from kindlm.checks.base import all_checks
from kindlm.checks.call_matching import CallCount
from kindlm.checks.evalview.safety import Safety
from kindlm.checks.evalview.weighted_score import WEIGHTS, Scored, WeightedScore
from kindlm.checks.guardrails import NamedPattern
from kindlm.checks.output import Ban, Demand
from kindlm.checks.tool_calls import ToolCall
from kindlm.checks.trajectory import TrajectoryCall
from kindlm.errors import Result
from kindlm.outcome import CheckResult
from kindlm.ports import Ask, CheckContext, Checker, ModelReply, Question
from kindlm.section import Section
from kindlm.suite import Expectation
from kindlm.transcript import Transcript


def demand(kind: str, label: str, params: Mapping[str, Any], **more: Any) -> Any:
    """Return the expectation of a check by its kind, and its fields as a file has them."""
    return check_of(kind, params).expected(label, **more)


def check_of(kind: str, params: Mapping[str, Any]) -> Any:
    """Return a check by its kind, and its fields as a file has them."""
    values = dict(params)
    if kind == "guardrail":
        values = {
            "rule": values.get("must", values.get("mustNot", "")),
            "mustNot": "must" not in values,
        }
    if kind == "weighted_score":
        names = {"query", "tools", "toolCategories", "sequence", "sequenceMode", "contains"}
        names |= {"notContains", "regexPatterns", "jsonSchema"}
        own = {name: values.pop(name) for name in names & values.keys()}
        values["scored"] = _scored(own)
        values["turns"] = [_scored(turn) for turn in values.get("turns") or ()]
        values["weights"] = WEIGHTS | (values.get("weights") or {})
    if kind == "evalview_verdict":
        values["safety"] = _made(Safety, values.get("safety") or {})
        values["scored"] = WeightedScore(
            values.pop("minScore"),
            Scored(forbidden_tools=values.pop("forbiddenTools", ())),
            turns=[_made(Scored, each or {}) for each in values.pop("turns", ())],
        )
        values["undeclared"] = {tuple(pair) for pair in values.get("undeclared") or ()}
    if kind == "trajectory":
        values["calls"] = [_call(dict(call)) for call in values["calls"]]
    if kind == "tool_sequence":
        values["mode"] = values.get("mode") or "subsequence"
    if kind == "pii":
        patterns = values.get("customPatterns") or ()
        values["customPatterns"] = [NamedPattern.model_construct(**each) for each in patterns]
        values.setdefault("denyPatterns", [])
    if kind in ToolCall.kinds():
        return _tool_call(kind, values)
    scale = values.pop("scale", None) if kind == "judge" else None
    (check,) = [each for each in all_checks() if kind in each.kinds()]
    if check in (Ban, Demand):
        return check(kind, *values.values())
    made = _made(check, values)
    return made if scale is None else made.on_scale(scale)


def _tool_call(kind: str, values: dict[str, Any]) -> ToolCall:
    schema = values.pop("argsSchema", None)
    values["argsSchema"] = values.pop("argsSchemaFile", None)
    values["shouldNotCall"] = kind == "tool_not_called"
    call: ToolCall = _made(ToolCall, _counted(values))
    return call.with_schema(schema)


def _call(values: dict[str, Any]) -> Any:
    return _made(TrajectoryCall, _counted(values))


def _counted(values: dict[str, Any]) -> dict[str, Any]:
    return values | {"count": _made(CallCount, values.get("count"))}


def _made(kind: type[Any], written: Mapping[str, Any] | None) -> Any:
    """Return a value of a class; None, as an absent key, is its default.

    A section is not validated: tests have values that no file may hold.
    """
    if written is None:
        return None
    if issubclass(kind, Section):
        own = {field.alias or name: name for name, field in kind.model_fields.items()}
        named = {own[key]: value for key, value in written.items() if value is not None}
        return kind.model_construct(**named)
    names = {to_camel(field.name): field.name for field in fields(kind)}
    return kind(**{names[key]: value for key, value in written.items() if value is not None})


def _scored(written: Mapping[str, Any]) -> Scored:
    renamed = {"toolCategories": "categories", "sequenceMode": "mode"}
    renamed |= {"regexPatterns": "patterns", "jsonSchema": "schema"}
    values = {renamed.get(key, key): value for key, value in written.items() if value is not None}
    scored: Scored = _made(Scored, values)
    return scored


async def nobody(question: Question) -> Result[ModelReply]:
    """Stand for the judge of a check that must not ask one."""
    raise AssertionError("this check must not ask a model")


def evaluated(
    expectation: Expectation,
    transcript: Transcript,
    context: CheckContext | Ask = nobody,
    runner: Checker | None = None,
) -> CheckResult:
    """Return what comes of an expectation whose check does not crash."""
    seen = context if isinstance(context, CheckContext) else CheckContext(context)
    result = asyncio.run(awaited(expectation, transcript, seen, runner))
    assert not result.message.startswith("The check crashed"), result.trace
    return result


async def awaited(
    expectation: Expectation,
    transcript: Transcript,
    context: CheckContext,
    runner: Checker | None = None,
) -> CheckResult:
    """Return what comes of an expectation; the same for those who have an event loop."""
    found = (runner or CheckRunner()).evaluate(expectation, transcript, context)
    return found if isinstance(found, CheckResult) else await found
