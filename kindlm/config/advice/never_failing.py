"""Checks of a test that hold whatever is said: what they look for is nothing."""

from __future__ import annotations

from collections.abc import Iterator

from kindlm.config.expect_schema import (
    CallCountConfig,
    ExpectConfig,
    GuardrailsConfig,
    ToolCallConfig,
    TrajectoryConfig,
)
from kindlm.config.places import Path

_EMPTY = "every text holds the empty one"
_NOTHING = "it looks for no pattern"
_ANY_NUMBER = "any number of calls will do"


def never_failing(expect: ExpectConfig) -> Iterator[tuple[Path, str]]:
    """Yield what can never fail, with the path below `expect`, and why."""
    for index, text in enumerate(expect.output.contains if expect.output else ()):
        if not text:
            yield ("output", "contains", index), _EMPTY
    if expect.guardrails is not None:
        for path, reason in _guardrails(expect.guardrails):
            yield ("guardrails", *path), reason
    for index, call in enumerate(expect.tool_calls):
        if _is_any_number(call.count) and not _has_a_time(call):
            yield ("toolCalls", index, "count"), _ANY_NUMBER
    if expect.trajectory is not None and holds_always(expect.trajectory):
        yield (
            ("trajectory",),
            (f"no call has to be made in the mode {expect.trajectory.mode}, and all may be"),
        )


def holds_always(trajectory: TrajectoryConfig) -> bool:
    """Tell whether a trajectory asks for nothing: other calls are allowed, and none is needed."""
    needed = [call for call in trajectory.calls if not _is_any_number(call.count)]
    return not needed and trajectory.mode in ("in-order", "superset")


def _guardrails(guardrails: GuardrailsConfig) -> Iterator[tuple[Path, str]]:
    pii, keywords = guardrails.pii, guardrails.keywords
    for index, text in enumerate(keywords.allow if keywords else ()):
        if not text:
            yield ("keywords", "allow", index), _EMPTY
    if pii is None or not pii.enabled:
        return
    if not pii.deny_patterns and not pii.custom_patterns:
        yield ("pii", "denyPatterns"), _NOTHING
    for index, pattern in enumerate(pii.deny_patterns):
        if not pattern:
            yield ("pii", "denyPatterns", index), _NOTHING
    for index, custom in enumerate(pii.custom_patterns):
        if not custom.pattern:
            yield ("pii", "customPatterns", index, "pattern"), _NOTHING


def _is_any_number(count: CallCountConfig | None) -> bool:
    return count is not None and count.min == 0 and count.max is None


def _has_a_time(call: ToolCallConfig) -> bool:
    """Tell whether a call has to come at some time, if it comes at all."""
    return any(value is not None for value in (call.order, call.before, call.after))
