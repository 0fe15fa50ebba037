"""The parts of a script, and how a script is read from YAML.

A script is an ordered list of rules. The first rule whose conditions all hold gives the reply to a
request. So the agent is deterministic: its replies depend only on its requests.

A script is a file, the name of one that comes with the package (`support`), or a mapping. With
`extends`, a script puts its rules before those of another one.
"""

from __future__ import annotations

import json
from dataclasses import field, fields
from functools import partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import regex

from kindlm.dataclass import dataclass, replace
from kindlm.testing.http1 import Cut
from kindlm.testing.node import Node, ScriptError, load_yaml
from kindlm.testing.scripted_talk import Asks, Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

EchoPlace = Literal["error", "header", "url", "text", "toolArgument"]
Encoding = Literal["plain", "base64", "percent"]
OddText = Literal["control", "surrogate", "nul", "ansi", "huge"]

MAX_EXTENDS = 8
MAX_MATCHED_CHARACTERS = 100_000
MATCH_TIMEOUT_S = 0.5


def _entry(
    key: str, read: Callable[[Node], Any], default: Any = None, *, needed: bool = False
) -> Any:
    """A field with its key in a script, how its value is read, and whether it has to be there."""
    return field(default=default, metadata={"key": key, "read": read, "needed": needed})


def _keys(kind: type[Any]) -> tuple[str, ...]:
    """The keys of a kind of value in a script."""
    return tuple(each.metadata["key"] for each in fields(kind) if each.metadata)


def _fields(kind: type[Any], node: Node, /, **others: Any) -> Any:
    """A value from the entries of a mapping that are its own; their keys have been checked."""
    return kind(
        **others
        | {
            each.name: each.metadata["read"](Node(node.value[key], f"{node.where}.{key}"))
            for each in fields(kind)
            if each.metadata and (key := each.metadata["key"]) in node.value
        }
    )


def _mapping(kind: type[Any], node: Node) -> Any:
    node.mapping(*_keys(kind))
    for each in fields(kind):
        if each.metadata.get("needed"):
            node.entry(each.metadata["key"])
    return _fields(kind, node)


def _one_of(words: Any) -> Callable[[Node], Any]:
    return lambda node: node.choice(*get_args(words))


def _each(read: Callable[[Node], Any]) -> Callable[[Node], tuple[Any, ...]]:
    return lambda node: tuple(map(read, node.items()))


def _folded(node: Node) -> tuple[str, ...]:
    texts = tuple(text.casefold() for text in node.texts())
    if not texts or "" in texts:
        node.fail("expected at least one text, none of them empty")
    return texts


def _plain_mapping(node: Node) -> dict[str, Any]:
    return {key: entry.value for key, entry in node.entries().items()}


@dataclass(frozen=True, slots=True)
class TextTest:
    """A condition on a text. Texts are compared without regard to case.

    Attributes:
        any_of: At least one must occur; empty for no such condition.
        all_of: All must occur.
        none_of: None may occur.
        matches: Must be found; its named groups become placeholders.
    """

    any_of: tuple[str, ...] = _entry("any", _folded, ())
    all_of: tuple[str, ...] = _entry("all", _folded, ())
    none_of: tuple[str, ...] = _entry("none", _folded, ())
    matches: regex.Pattern[str] | None = _entry("matches", Node.pattern)

    def captures(self, text: str) -> dict[str, str] | None:
        """The named groups if the condition holds, else None.

        Raises:
            ScriptError: when the pattern takes too long.
        """
        folded = text.casefold()
        if self.any_of and not any(part in folded for part in self.any_of):
            return None
        if not all(part in folded for part in self.all_of):
            return None
        if any(part in folded for part in self.none_of):
            return None
        if self.matches is None:
            return {}
        try:
            found = self.matches.search(text[:MAX_MATCHED_CHARACTERS], timeout=MATCH_TIMEOUT_S)
        except TimeoutError:
            message = f"the pattern {self.matches.pattern!r} takes too long"
            raise ScriptError(message) from None
        if found is None:
            return None
        return {name: value for name, value in found.groupdict().items() if value is not None}


def _text_test(node: Node) -> Any:
    return _mapping(TextTest, node) if isinstance(node.value, dict) else TextTest(_folded(node))


@dataclass(frozen=True, slots=True)
class ValueTest:
    """A condition on one value inside a tool result: that it exists or not, or what it is."""

    exists: bool = _entry("exists", Node.flag)
    equals: Any = None


def _results(node: Node) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (path, _mapping(ValueTest, test))
        if isinstance(test.value, dict)
        else (path, ValueTest(exists=True, equals=test.value))
        for path, test in node.entries().items()
    )


@dataclass(frozen=True, slots=True)
class When:
    """The conditions of a rule; all must hold. `None` and empty mean "does not matter".

    `asks` does not matter beside `structured`, which says more.

    `called` and `results` look at the whole conversation, `called_this_turn` only at what followed
    the last user message.
    """

    called: tuple[str, ...] = _entry("called", Node.texts, ())
    not_called: tuple[str, ...] = _entry("notCalled", Node.texts, ())
    called_this_turn: tuple[str, ...] = _entry("calledThisTurn", Node.texts, ())
    not_called_this_turn: tuple[str, ...] = _entry("notCalledThisTurn", Node.texts, ())
    offered: tuple[str, ...] = _entry("offered", Node.texts, ())
    not_offered: tuple[str, ...] = _entry("notOffered", Node.texts, ())
    system: TextTest | None = _entry("system", _text_test)
    user: TextTest | None = _entry("user", _text_test)
    said: TextTest | None = _entry("said", _text_test)
    asks: Asks = _entry("asks", _one_of(Asks), "agent")
    models: tuple[str, ...] = _entry("model", Node.texts, ())
    results: tuple[tuple[str, ValueTest], ...] = _entry("results", _results, ())
    structured: str | None = _entry("structured", Node.text)


_FAULTS: dict[str, tuple[Callable[[Node], Any], str]] = {
    "latencyMs": (Node.number, "latency"),
    "status": (partial(Node.integer, minimum=400, maximum=599), "status {}"),
    "cut": (_one_of(Cut), "cut {}"),
    "malformed": (Node.flag, "malformed"),
    "empty": (Node.flag, "empty"),
    "stallMs": (Node.number, "stall"),
    "echoKey": (_one_of(EchoPlace), "echo key in {}"),
    "text": (_one_of(OddText), "{} text"),
    "toolCalls": (partial(Node.integer, minimum=1, maximum=10_000), "tool calls"),
}
"""The ways to misbehave: how the value of each is read, and what the request log says of it.

`latencyMs` answers late; `status` answers with an error; `cut` closes the connection before or
inside the answer; `malformed` answers 200 with a body that is not JSON; `empty` answers without
content and without tool calls; `stallMs` waits in the middle of the body; `echoKey` repeats the
client's key; `text` answers with text that is hard to store or to show; `toolCalls` answers with so
many parallel tool calls.
"""


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to misbehave.

    Attributes:
        kind: Which of the ways.
        value: What it says in the script.
        retry_after_s: Send Retry-After with the status.
        encoding: How the key is written when repeated.
    """

    kind: str
    value: Any
    retry_after_s: float | None = _entry("retryAfter", partial(Node.number, maximum=1e300))
    encoding: Encoding = _entry("encoding", _one_of(Encoding), "plain")

    def __str__(self) -> str:
        """What it does, in a word for the request log."""
        return _FAULTS[self.kind][1].format(self.value)


def _fault(node: Node) -> Any:
    kinds = [kind for kind in _FAULTS if kind in node.entries()]
    if len(kinds) != 1:
        node.fail(f"expected exactly one of {', '.join(_FAULTS)}; got {len(kinds)}")
    read, _ = _FAULTS[kinds[0]]
    return _fields(Fault, node, kind=kinds[0], value=read(node.entry(kinds[0])))


@dataclass(frozen=True, slots=True)
class FaultRule:
    """A fault and the requests it is for.

    Attributes:
        fault: What to do.
        next: Only the next n matching requests; None for no limit.
        every: Only every k-th matching request.
        path: Only paths that end so (`chat/completions`, `messages`, `embeddings`).
        model: Only this model; `*` stands for any characters.
        contains: Only requests whose JSON holds this text, without regard to case.
        asks: Only requests of this purpose.
    """

    fault: Fault
    next: int | None = _entry("next", partial(Node.integer, minimum=1))
    every: int | None = _entry("every", partial(Node.integer, minimum=1))
    path: str | None = _entry("path", Node.text)
    model: str | None = _entry("model", Node.text)
    contains: str | None = _entry("contains", Node.text)
    asks: Asks | None = _entry("asks", _one_of(Asks))


def fault_rules(node: Node) -> tuple[FaultRule, ...]:
    """Reads a list of faults with the requests they are for."""
    rules = []
    for item in node.items():
        item.mapping(*_FAULTS, *_keys(Fault), *_keys(FaultRule))
        rules.append(_fields(FaultRule, item, fault=_fault(item)))
    return tuple(rules)


@dataclass(frozen=True, slots=True)
class CallOut:
    """A tool call to make; in a script its arguments may hold placeholders."""

    name: str = _entry("name", Node.text, needed=True)
    arguments: Any = _entry("arguments", _plain_mapping)

    @property
    def arguments_text(self) -> str:
        """The arguments as the Chat Completions format carries them."""
        return json.dumps(self.arguments)


def _call(node: Node) -> Any:
    call = _mapping(CallOut, node)
    return call if "arguments" in node.value else replace(call, arguments={})


def _usage(node: Node) -> Usage | None:
    if node.value == "missing":
        return None
    entries = node.mapping("inputTokens", "outputTokens")
    if len(entries) != 2:
        node.fail("expected inputTokens and outputTokens, or the word missing")
    return Usage(entries["inputTokens"].integer(), entries["outputTokens"].integer())


def _reply_fault(node: Node) -> Any:
    node.mapping(*_FAULTS, *_keys(Fault))
    return _fault(node)


@dataclass(frozen=True, slots=True)
class ReplyTemplate:
    """The reply of a rule; texts, JSON and arguments may hold placeholders."""

    text: str | None = _entry("text", Node.text)
    json: dict[str, Any] | None = _entry("json", _plain_mapping)
    calls: tuple[CallOut, ...] = _entry("toolCalls", _each(_call), ())
    usage: Usage | None = _entry("usage", _usage)
    fault: Fault | None = _entry("fault", _reply_fault)
    delay_ms: float = _entry("delayMs", Node.number, 0.0)
    reports_usage: bool = True


def _reply(node: Node) -> Any:
    entries = node.mapping(*_keys(ReplyTemplate))
    if not entries.keys() & {"text", "json", "toolCalls", "fault"}:
        node.fail("expected one of text, json, toolCalls, fault")
    if {"text", "json"} <= entries.keys():
        node.fail("text and json exclude one another")
    missing = "usage" in entries and entries["usage"].value == "missing"
    return replace(_fields(ReplyTemplate, node), reports_usage=not missing)


@dataclass(frozen=True, slots=True)
class Rule:
    """If the conditions hold, this is the reply."""

    name: str = _entry("name", Node.text)
    when: When = _entry("when", partial(_mapping, When), When())
    reply: ReplyTemplate = _entry("reply", _reply, needed=True)


def _rules(node: Node) -> tuple[Rule, ...]:
    rules = list[Rule]()
    for number, item in enumerate(node.items(), 1):
        rule = _mapping(Rule, item)
        rules.append(rule if "name" in item.value else replace(rule, name=f"rule {number}"))
    return tuple(rules)


@dataclass(frozen=True, slots=True)
class JudgeCheck:
    """One thing a judge looks for in a transcript; exactly one of the kinds is set.

    Attributes:
        note: What it is called in the reasoning.
        weight: Its share of the score.
        says: Condition on the final text.
        called: A tool that must have been called, with `arguments` if given.
        not_called: A tool that must not have been called.
        in_order: Tools that must have been called in this order.
        arguments: Arguments, by name, that some call of `called` must have.
    """

    says: TextTest | None = _entry("says", _text_test)
    called: str | None = _entry("called", Node.text)
    not_called: str | None = _entry("notCalled", Node.text)
    in_order: tuple[str, ...] = _entry("inOrder", Node.texts, ())
    arguments: tuple[tuple[str, Any], ...] = _entry(
        "arguments", lambda node: tuple(_plain_mapping(node).items()), ()
    )
    weight: float = _entry("weight", Node.number, 1.0)
    note: str = _entry("note", Node.text)


_DEFAULT_NOTES = {
    "says": "says",
    "called": "calls",
    "notCalled": "does not call",
    "inOrder": "in order",
}


def _judge_check(node: Node) -> Any:
    entries = node.mapping(*_keys(JudgeCheck))
    used = [kind for kind in _DEFAULT_NOTES if kind in entries]
    if len(used) != 1:
        node.fail(f"expected exactly one of {', '.join(_DEFAULT_NOTES)}")
    if "arguments" in entries and "called" not in entries:
        node.fail("arguments belong to called")
    check = _fields(JudgeCheck, node)
    note = f"{_DEFAULT_NOTES[used[0]]} {entries[used[0]].value}"
    return check if "note" in entries else replace(check, note=note)


@dataclass(frozen=True, slots=True)
class JudgeRule:
    """How one criterion is scored: the weighted share of its checks that hold."""

    criteria: TextTest = _entry("criteria", _text_test)
    checks: tuple[JudgeCheck, ...] = _entry("checks", _each(_judge_check))


def _judge_rule(node: Node) -> Any:
    if len(node.mapping(*_keys(JudgeRule))) != 2:
        node.fail("expected criteria and checks")
    rule = _fields(JudgeRule, node)
    if not rule.checks:
        node.fail("expected at least one check")
    return rule


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model that the server knows.

    Attributes:
        name: As requested.
        reasoning: Whether it refuses sampling parameters, as reasoning models do.
    """

    name: str = _entry("name", Node.text, needed=True)
    reasoning: bool = _entry("reasoning", Node.flag, default=False)


def _model(node: Node) -> Any:
    return ModelSpec(node.value) if isinstance(node.value, str) else _mapping(ModelSpec, node)


@dataclass(frozen=True, slots=True)
class Script:
    """A whole script.

    Attributes:
        name: Where it came from.
        models: The only models that exist; empty for any.
        keys: The only keys that are accepted; empty for any key that is not empty.
        rules: In order; the first that matches replies.
        judge_rules: In order; the first whose criteria match scores.
        judge_default: Score of a criterion that no rule knows.
        faults: Misbehaviour that is on from the start.
    """

    name: str
    models: tuple[ModelSpec, ...] = ()
    keys: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    judge_rules: tuple[JudgeRule, ...] = ()
    judge_default: float = 0.5
    faults: tuple[FaultRule, ...] = ()


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
        return _script(dict(source), "script", partial(_load, folder=folder, depth=depth - 1))
    name, text, base = _read_text(source, folder)
    try:
        return _script(load_yaml(text), name, partial(_load, folder=base, depth=depth - 1))
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


def _script(data: Any, name: str, load: Any) -> Script:
    """Reads a script from plain data; `load` fetches the script that it extends."""
    root = Node(data, "script")
    root.mapping("description", "extends", "models", "keys", "rules", "judge", "faults")
    root.given("description", Node.text)
    base = root.given("extends", lambda node: load(node.text()), Script(name))
    judge = root.given("judge", _judge, ((), base.judge_default))
    return Script(
        name=name,
        models=root.given("models", _each(_model), base.models),
        keys=root.given("keys", Node.texts, base.keys),
        rules=root.given("rules", _rules, ()) + base.rules,
        judge_rules=judge[0] + base.judge_rules,
        judge_default=judge[1],
        faults=root.given("faults", fault_rules, ()) + base.faults,
    )


def _judge(node: Node) -> tuple[tuple[JudgeRule, ...], float]:
    node.mapping("default", "rules")
    rules = node.given("rules", _each(_judge_rule), ())
    return rules, node.given("default", partial(Node.number, maximum=1), 0.5)
