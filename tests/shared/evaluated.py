"""The result of one check of one transcript, whether it has to be awaited or not."""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from pydantic.alias_generators import to_camel

import kindlm.checks
from kindlm.checks.base import Check
from kindlm.checks.calls import CallCount
from kindlm.checks.pii import NamedPattern
from kindlm.checks.runner import CheckRunner
from kindlm.checks.safety import Safety
from kindlm.checks.tools import SequenceMode
from kindlm.checks.trajectory import TrajectoryCall, TrajectoryMode
from kindlm.checks.weighted_score import Scored, Weights
from kindlm.errors import Result
from kindlm.outcome import CheckResult
from kindlm.ports import Ask, CheckContext, Checker, ModelReply, Question
from kindlm.suite import Expectation
from kindlm.transcript import Transcript


@cache
def all_checks() -> frozenset[type[Any]]:
    """Return the classes of all checks of kindlm."""
    modules = [
        importlib.import_module(f"kindlm.checks.{module.name}")
        for module in pkgutil.iter_modules(kindlm.checks.__path__)
    ]
    values = [value for module in modules for value in vars(module).values()]
    checks = [each for each in values if isinstance(each, type) and issubclass(each, Check)]
    return frozenset(each for each in checks if hasattr(each, "kind"))


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
        values["weights"] = Weights(**(values.get("weights") or {}))
    if kind == "evalview_verdict":
        values["safety"] = _made(Safety, values.get("safety") or {})
        values["turns"] = [_made(Scored, each or {}) for each in values.get("turns") or ()]
        values["undeclared"] = {tuple(pair) for pair in values.get("undeclared") or ()}
    if kind == "trajectory":
        values["mode"] = TrajectoryMode(values["mode"])
        calls = [dict(call) for call in values["calls"]]
        values["calls"] = [
            TrajectoryCall(call["tool"], call.get("argsMatch"), _made(CallCount, call.get("count")))
            for call in calls
        ]
    if kind == "tool_called":
        values["count"] = _made(CallCount, values.get("count"))
    if kind == "tool_sequence":
        values["mode"] = SequenceMode(values.get("mode") or "subsequence")
    if kind == "pii":
        values["customPatterns"] = [
            NamedPattern(each["name"], each["pattern"])
            for each in values.get("customPatterns") or ()
        ]
    (check,) = [each for each in all_checks() if each.kind == kind]
    return _made(check, values)


def _made(kind: type[Any], written: Mapping[str, Any] | None) -> Any:
    """Return a value of a dataclass; None, as an absent key, is its default."""
    if written is None:
        return None
    names = {to_camel(field.name): field.name for field in fields(kind)}
    return kind(**{names[key]: value for key, value in written.items() if value is not None})


def _scored(written: Mapping[str, Any]) -> Scored:
    renamed = {"toolCategories": "categories", "sequenceMode": "mode"}
    renamed |= {"regexPatterns": "patterns", "jsonSchema": "schema"}
    values = {renamed.get(key, key): value for key, value in written.items() if value is not None}
    if "mode" in values:
        values["mode"] = SequenceMode(values["mode"])
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
    """Return what comes of an expectation."""
    seen = context if isinstance(context, CheckContext) else CheckContext(context)
    return asyncio.run(awaited(expectation, transcript, seen, runner))


async def awaited(
    expectation: Expectation,
    transcript: Transcript,
    context: CheckContext,
    runner: Checker | None = None,
) -> CheckResult:
    """Return what comes of an expectation; the same for those who have an event loop."""
    found = (runner or CheckRunner()).evaluate(expectation, transcript, context)
    return found if isinstance(found, CheckResult) else await found
