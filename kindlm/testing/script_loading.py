"""Reads scripts: YAML to values, strictly.

A script is a file, the name of one that comes with the package (`support`), or a mapping. With
`extends` a script puts its rules before those of another one.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kindlm.testing.conversation import Usage
from kindlm.testing.node import Node, load_yaml
from kindlm.testing.script import (
    CallTemplate,
    Fault,
    FaultRule,
    JudgeCheck,
    JudgeRule,
    ModelSpec,
    ReplyTemplate,
    Rule,
    Script,
    ScriptError,
    TextTest,
    ValueTest,
    When,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_EXTENDS = 8
ASKS = ("agent", "judge", "drift")
_VALUE_TESTS = ("exists", "equals", "contains", "min", "max")
_FAULT_KINDS = (
    "latencyMs",
    "status",
    "cut",
    "malformed",
    "empty",
    "stallMs",
    "echoKey",
    "text",
    "toolCalls",
    "perMinute",
)
_FAULT_DETAILS = ("retryAfter", "retryAfterDate", "encoding", "burst", "tells")
_FAULT_SELECTORS = ("next", "every", "path", "model", "contains", "asks")


def load_script(source: str | Path | Mapping[str, Any]) -> Script:
    """Loads a script from a file, a built-in name, or plain data.

    Raises:
        ScriptError: naming the file, the place in it and what is wrong.
    """
    return _load(source, Path.cwd(), MAX_EXTENDS)


def builtin_scripts() -> tuple[str, ...]:
    """Names of the scripts that come with the package."""
    folder = resources.files("kindlm.testing") / "scripts"
    names = (entry.name for entry in folder.iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml")))


def _load(source: str | Path | Mapping[str, Any], folder: Path, depth: int) -> Script:
    if depth == 0:
        raise ScriptError("too many scripts extend one another; is there a circle?")
    if not isinstance(source, str | Path):
        return read_script(dict(source), "script", partial(_load, folder=folder, depth=depth - 1))
    name, text, base = _read_text(source, folder)
    try:
        return read_script(load_yaml(text), name, partial(_load, folder=base, depth=depth - 1))
    except ScriptError as error:
        raise ScriptError(f"{name}: {error}") from error


def _read_text(source: str | Path, folder: Path) -> tuple[str, str, Path]:
    """A script's name, its text, and the folder its `extends` is relative to."""
    if isinstance(source, str) and source in builtin_scripts():
        packaged = resources.files("kindlm.testing") / "scripts" / f"{source}.yaml"
        return source, packaged.read_text(encoding="utf-8"), folder
    path = folder / source
    try:
        return str(source), path.read_text(encoding="utf-8"), path.parent
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        known = ", ".join(builtin_scripts())
        raise ScriptError(f"{source}: {reason} (built-in scripts: {known})") from error


def read_script(data: Any, name: str, load: Any) -> Script:
    """Reads a script from plain data; `load` fetches the script that it extends.

    Raises:
        ScriptError: naming the place and what is wrong.
    """
    root = Node(data, "script")
    root.mapping("description", "extends", "models", "keys", "rules", "judge", "faults")
    root.optional("description", Node.text)
    base = root.optional("extends", lambda node: load(node.text()), Script(name))
    judge = root.optional("judge", _judge, ((), base.judge_default))
    return Script(
        name=name,
        models=root.optional("models", _models, base.models),
        keys=root.optional("keys", Node.texts, base.keys),
        rules=root.optional("rules", _rules, ()) + base.rules,
        judge_rules=judge[0] + base.judge_rules,
        judge_default=judge[1],
        faults=root.optional("faults", fault_rules, ()) + base.faults,
    )


def fault_rules(node: Node) -> tuple[FaultRule, ...]:
    """Reads a list of faults with the requests they are for."""
    return tuple(fault_rule(item) for item in node.items())


def fault_rule(node: Node) -> FaultRule:
    """Reads one fault with the requests it is for."""
    node.mapping(*_FAULT_KINDS, *_FAULT_DETAILS, *_FAULT_SELECTORS)
    return FaultRule(
        fault=_fault(node),
        next=node.optional("next", partial(Node.integer, minimum=1)),
        every=node.optional("every", partial(Node.integer, minimum=1)),
        path=node.optional("path", Node.text),
        model=node.optional("model", Node.text),
        contains=node.optional("contains", Node.text),
        asks=node.optional("asks", lambda value: value.choice(*ASKS)),
    )


def _fault(node: Node) -> Fault:
    kinds = [kind for kind in _FAULT_KINDS if kind in node.entries()]
    if len(kinds) != 1:
        node.fail(f"expected exactly one of {', '.join(_FAULT_KINDS)}; got {len(kinds)}")
    if kinds != ["perMinute"]:
        for key in ("burst", "tells"):
            if key in node.entries():
                node.fail(f"{key!r} is for perMinute")
    return Fault(
        latency_ms=node.optional("latencyMs", Node.number),
        status=node.optional("status", lambda value: value.integer(400, 599)),
        retry_after_s=node.optional("retryAfter", lambda value: value.number(maximum=1e300)),
        retry_after_date=node.optional("retryAfterDate", Node.flag, default=False),
        cut=node.optional("cut", lambda value: value.choice("before", "headers", "body")),
        malformed=node.optional("malformed", Node.flag, default=False),
        empty=node.optional("empty", Node.flag, default=False),
        stall_ms=node.optional("stallMs", Node.number),
        echo_key=node.optional(
            "echoKey", lambda value: value.choice("error", "header", "url", "text", "toolArgument")
        ),
        encoding=node.optional(
            "encoding", lambda value: value.choice("plain", "base64", "percent"), "plain"
        ),
        odd_text=node.optional(
            "text", lambda value: value.choice("control", "surrogate", "nul", "ansi", "huge")
        ),
        tool_calls=node.optional("toolCalls", partial(Node.integer, minimum=1, maximum=10_000)),
        per_minute=node.optional("perMinute", Node.integer),
        burst=node.optional("burst", partial(Node.integer, minimum=1)),
        tells=node.optional(
            "tells",
            lambda value: value.choice("retryAfter", "quotas", "both", "nothing"),
            "retryAfter",
        ),
    )


def _models(node: Node) -> tuple[ModelSpec, ...]:
    return tuple(_model(item) for item in node.items())


def _model(node: Node) -> ModelSpec:
    if isinstance(node.value, str):
        return ModelSpec(node.value, node.value)
    entries = node.mapping("name", "reportedAs", "reasoning")
    if "name" not in entries:
        node.fail("'name' is missing")
    name = entries["name"].text()
    return ModelSpec(
        name,
        node.optional("reportedAs", Node.text, name),
        node.optional("reasoning", Node.flag, default=False),
    )


def _rules(node: Node) -> tuple[Rule, ...]:
    return tuple(_rule(item, number) for number, item in enumerate(node.items(), 1))


def _rule(node: Node, number: int) -> Rule:
    entries = node.mapping("name", "when", "reply")
    if "reply" not in entries:
        node.fail("'reply' is missing")
    return Rule(
        node.optional("name", Node.text, f"rule {number}"),
        node.optional("when", _when, When()),
        _reply(entries["reply"]),
    )


def _when(node: Node) -> When:
    tools = {
        "called": "called",
        "notCalled": "not_called",
        "calledThisTurn": "called_this_turn",
        "notCalledThisTurn": "not_called_this_turn",
        "offered": "offered",
        "notOffered": "not_offered",
    }
    texts = ("system", "user", "said")
    node.mapping(*tools, *texts, "asks", "wire", "model", "userTurns", "results", "structured")
    return replace(
        When(
            asks=node.optional("asks", lambda value: value.choice(*ASKS), "agent"),
            wire=node.optional("wire", lambda value: value.choice("openai", "anthropic")),
            models=node.optional("model", Node.texts, ()),
            user_turns=node.optional("userTurns", Node.integer),
            results=node.optional("results", _results, ()),
            structured=node.optional("structured", Node.text),
        ),
        **{text: node.optional(text, _text_test) for text in texts},
        **{field: node.optional(key, Node.texts, ()) for key, field in tools.items()},
    )


def _text_test(node: Node) -> TextTest:
    if not isinstance(node.value, dict):
        return TextTest(any_of=_folded(node))
    node.mapping("any", "all", "none", "matches")
    return TextTest(
        any_of=node.optional("any", _folded, ()),
        all_of=node.optional("all", _folded, ()),
        none_of=node.optional("none", _folded, ()),
        matches=node.optional("matches", Node.pattern),
    )


def _folded(node: Node) -> tuple[str, ...]:
    texts = tuple(text.casefold() for text in node.texts())
    if not texts or "" in texts:
        node.fail("expected at least one text, none of them empty")
    return texts


def _results(node: Node) -> tuple[tuple[str, ValueTest], ...]:
    return tuple((path, _value_test(value)) for path, value in node.entries().items())


def _value_test(node: Node) -> ValueTest:
    if not isinstance(node.value, dict):
        return ValueTest(equals=(node.value,))
    entries = node.mapping(*_VALUE_TESTS)
    return ValueTest(
        exists=node.optional("exists", Node.flag),
        equals=(entries["equals"].value,) if "equals" in entries else (),
        contains=node.optional("contains", Node.text),
        minimum=node.optional("min", partial(Node.number, minimum=-1e12)),
        maximum=node.optional("max", partial(Node.number, minimum=-1e12)),
    )


def _reply(node: Node) -> ReplyTemplate:
    entries = node.mapping("text", "json", "toolCalls", "finish", "usage", "fault", "delayMs")
    if not entries.keys() & {"text", "json", "toolCalls", "fault"}:
        node.fail("expected one of text, json, toolCalls, fault")
    if {"text", "json"} <= entries.keys():
        node.fail("text and json exclude one another")
    usage = entries.get("usage")
    missing = usage is not None and usage.value == "missing"
    return ReplyTemplate(
        text=node.optional("text", Node.text),
        json=node.optional("json", _plain_mapping),
        calls=node.optional("toolCalls", _calls, ()),
        finish=node.optional(
            "finish", lambda value: value.choice("stop", "length", "content_filter")
        ),
        usage=None if missing else node.optional("usage", _usage),
        reports_usage=not missing,
        fault=node.optional("fault", _reply_fault),
        delay_ms=node.optional("delayMs", Node.number, 0.0),
    )


def _reply_fault(node: Node) -> Fault:
    node.mapping(*(kind for kind in _FAULT_KINDS if kind != "perMinute"), *_FAULT_DETAILS)
    return _fault(node)


def _plain_mapping(node: Node) -> dict[str, Any]:
    return {key: entry.value for key, entry in node.entries().items()}


def _usage(node: Node) -> Usage:
    entries = node.mapping("inputTokens", "outputTokens")
    if len(entries) != 2:
        node.fail("expected inputTokens and outputTokens, or the word missing")
    return Usage(entries["inputTokens"].integer(), entries["outputTokens"].integer())


def _calls(node: Node) -> tuple[CallTemplate, ...]:
    return tuple(_call(item) for item in node.items())


def _call(node: Node) -> CallTemplate:
    entries = node.mapping("name", "arguments", "rawArguments")
    if "name" not in entries:
        node.fail("'name' is missing")
    return CallTemplate(
        entries["name"].text(),
        node.optional("arguments", _plain_mapping, {}),
        node.optional("rawArguments", Node.text),
    )


def _judge(node: Node) -> tuple[tuple[JudgeRule, ...], float]:
    node.mapping("default", "rules")
    rules = node.optional("rules", lambda rules: tuple(map(_judge_rule, rules.items())), ())
    return rules, node.optional("default", partial(Node.number, maximum=1), 0.5)


def _judge_rule(node: Node) -> JudgeRule:
    entries = node.mapping("criteria", "checks")
    if len(entries) != 2:
        node.fail("expected criteria and checks")
    checks = tuple(_judge_check(item) for item in entries["checks"].items())
    if not checks:
        node.fail("expected at least one check")
    return JudgeRule(_text_test(entries["criteria"]), checks)


def _judge_check(node: Node) -> JudgeCheck:
    kinds = ("says", "called", "notCalled", "inOrder")
    entries = node.mapping(*kinds, "arguments", "weight", "note")
    used = [kind for kind in kinds if kind in entries]
    if len(used) != 1:
        node.fail(f"expected exactly one of {', '.join(kinds)}")
    if "arguments" in entries and "called" not in entries:
        node.fail("arguments belong to called")
    return JudgeCheck(
        note=node.optional("note", Node.text, _default_note(used[0], entries[used[0]].value)),
        weight=node.optional("weight", Node.number, 1.0),
        says=node.optional("says", _text_test),
        called=node.optional("called", Node.text),
        not_called=node.optional("notCalled", Node.text),
        in_order=node.optional("inOrder", Node.texts, ()),
        arguments=tuple(node.optional("arguments", _plain_mapping, {}).items()),
    )


def _default_note(kind: str, value: Any) -> str:
    words = {"says": "says", "called": "calls", "notCalled": "does not call", "inOrder": "in order"}
    return f"{words[kind]} {value}"
