"""The parts of a script, and how a script is read from YAML.

A script is an ordered list of rules. The first rule whose conditions all hold gives the reply to a
request. So the agent is deterministic: its replies depend only on its requests.

A script is a file, the name of a built-in script (`support`), or a mapping. With `extends`, a
script puts its rules before those of another script.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, field, fields
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args

import regex

from kindlm.dataclass import dataclass
from kindlm.matching import ABSENT
from kindlm.testing.http1 import Cut
from kindlm.testing.node import Node, ScriptError, load_yaml
from kindlm.testing.scripted_talk import Asks, Usage

MAX_EXTENDS = 8
MAX_MATCHED_CHARACTERS = 100_000
MATCH_TIMEOUT_S = 0.5


def _entry(key: str, read: Callable[[Node], Any], default: Any = None) -> Any:
    """Return a field with its key in a script, which is required if the default is `MISSING`."""
    metadata = {"key": key, "read": read}
    if default is dict:
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


def _keys(kind: type[Any]) -> tuple[str, ...]:
    return tuple(each.metadata["key"] for each in fields(kind) if each.metadata)


def _read(kind: type[Any], node: Node, /, *others: str, **given: Any) -> Any:
    """Return a value from a mapping, which may replace `given` fields and have `others` as keys."""
    entries = node.mapping(*_keys(kind), *others)
    for each in fields(kind):
        if each.metadata and (key := each.metadata["key"]) in entries:
            given[each.name] = each.metadata["read"](entries[key])
        elif each.metadata and each.default is each.default_factory is MISSING:
            node.entry(each.metadata["key"])
    return kind(**given)


def _only_one(node: Node, kinds: Collection[str], *others: str) -> str:
    """Return the only one of some keys that a mapping has; it may have `others`, too."""
    found = [key for key in node.mapping(*kinds, *others) if key in kinds]
    if len(found) != 1:
        node.fail(f"expected exactly one of {', '.join(kinds)}; got {len(found)}")
    return found[0]


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
    """A condition on a text in any case; named groups of `matches` become placeholders."""

    any_of: tuple[str, ...] = _entry("any", _folded, ())
    all_of: tuple[str, ...] = _entry("all", _folded, ())
    none_of: tuple[str, ...] = _entry("none", _folded, ())
    matches: regex.Pattern[str] | None = _entry("matches", Node.pattern)

    def captures(self, text: str) -> dict[str, str] | None:
        """Return the named groups if the condition holds, else None."""
        folded = text.casefold()
        holds = (
            (not self.any_of or any(part in folded for part in self.any_of))
            and all(part in folded for part in self.all_of)
            and not any(part in folded for part in self.none_of)
        )
        if not holds or self.matches is None:
            return {} if holds else None
        try:
            found = self.matches.search(text[:MAX_MATCHED_CHARACTERS], timeout=MATCH_TIMEOUT_S)
        except TimeoutError:
            message = f"the pattern {self.matches.pattern!r} takes too long"
            raise ScriptError(message) from None
        if found is None:
            return None
        return {name: value for name, value in found.groupdict().items() if value is not None}


def _text_test(node: Node) -> Any:
    return _read(TextTest, node) if isinstance(node.value, dict) else TextTest(_folded(node))


@dataclass(frozen=True, slots=True)
class ValueTest:
    """A condition on one value inside a tool result: that it exists or not, or equals a value."""

    exists: bool = _entry("exists", Node.flag)
    equals: Any = ABSENT


def _results(node: Node) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (path, _read(ValueTest, test))
        if isinstance(test.value, dict)
        else (path, ValueTest(exists=True, equals=test.value))
        for path, test in node.entries().items()
    )


@dataclass(frozen=True, slots=True)
class When:
    """The conditions of a rule, which must all hold; None or empty means no condition.

    `structured` replaces `asks`. `called` and `results` concern the whole conversation,
    `called_this_turn` only the calls after the last user message.
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
}
"""The kinds of faults, see README.md: the reader of the value of each, and its text in the log."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault: its kind, the value of this key, and conditions on requests; see README.md."""

    kind: str
    value: Any
    retry_after_s: float | None = _entry("retryAfter", partial(Node.number, maximum=1e300))
    next: int | None = _entry("next", partial(Node.integer, minimum=1))
    every: int | None = _entry("every", partial(Node.integer, minimum=1))
    path: str | None = _entry("path", Node.text)
    model: str | None = _entry("model", Node.text)
    contains: str | None = _entry("contains", Node.text)
    asks: Asks | None = _entry("asks", _one_of(Asks))

    def __str__(self) -> str:
        return _FAULTS[self.kind][1].format(self.value)


def _fault(node: Node) -> Any:
    kind = _only_one(node, _FAULTS, *_keys(Fault))
    return _read(Fault, node, *_FAULTS, kind=kind, value=_FAULTS[kind][0](node.entry(kind)))


read_faults: Callable[[Node], tuple[Fault, ...]] = _each(_fault)
"""Reads a list of faults."""


def _fault_of_reply(node: Node) -> Any:
    node.mapping(*_FAULTS, "retryAfter")  # its rule has the conditions
    return _fault(node)


@dataclass(frozen=True, slots=True)
class CallOut:
    """A tool call of a reply; in a script, its arguments may have placeholders."""

    name: str = _entry("name", Node.text, MISSING)
    arguments: Any = _entry("arguments", _plain_mapping, dict)

    @property
    def arguments_text(self) -> str:
        """The arguments as JSON text, as in Chat Completions."""
        return json.dumps(self.arguments)


def _usage(node: Node) -> Usage | Literal["missing"]:
    if node.value == "missing":
        return "missing"
    entries = node.mapping("inputTokens", "outputTokens")
    if len(entries) != 2:
        node.fail("expected inputTokens and outputTokens, or the word missing")
    return Usage(entries["inputTokens"].integer(), entries["outputTokens"].integer())


@dataclass(frozen=True, slots=True)
class Reply:
    """The next reply of the agent. In a script, its texts may have placeholders.

    `structured` is a JSON object in place of the text. Without `usage`, tokens are estimated. A
    `fault` replaces the reply. `finish` is why the reply ended early or by the stop text
    `stopped_at`; None for an ordinary end.
    """

    text: str | None = _entry("text", Node.text)
    structured: dict[str, Any] | None = _entry("json", _plain_mapping)
    calls: tuple[CallOut, ...] = _entry("toolCalls", _each(partial(_read, CallOut)), ())
    usage: Usage | Literal["missing"] | None = _entry("usage", _usage)
    fault: Fault | None = _entry("fault", _fault_of_reply)
    delay_ms: float = _entry("delayMs", Node.number, 0.0)
    finish: Literal["stop", "length"] | None = None
    stopped_at: str | None = None


def _reply(node: Node) -> Any:
    entries, reply = node.entries(), _read(Reply, node)
    if not entries.keys() & {"text", "json", "toolCalls", "fault"}:
        node.fail("expected one of text, json, toolCalls, fault")
    if {"text", "json"} <= entries.keys():
        node.fail("text and json exclude one another")
    return reply


@dataclass(frozen=True, slots=True)
class Rule:
    """A reply, and its conditions."""

    reply: Reply = _entry("reply", _reply, MISSING)
    name: str = _entry("name", Node.text)
    when: When = _entry("when", partial(_read, When), When())


def _rules(node: Node) -> tuple[Rule, ...]:
    numbered = enumerate(node.items(), 1)
    return tuple(_read(Rule, item, name=f"rule {number}") for number, item in numbered)


@dataclass(frozen=True, slots=True)
class JudgeCheck:
    """A check of a transcript, with its share of the score, and its name in the reasoning."""

    says: TextTest | None = _entry("says", _text_test)
    called: str | None = _entry("called", Node.text)
    not_called: str | None = _entry("notCalled", Node.text)
    in_order: tuple[str, ...] = _entry("inOrder", Node.texts, ())
    arguments: Mapping[str, Any] = _entry("arguments", _plain_mapping, dict)
    weight: float = _entry("weight", Node.number, 1.0)
    note: str = _entry("note", Node.text)


_DEFAULT_NOTES = {
    "says": "says",
    "called": "calls",
    "notCalled": "does not call",
    "inOrder": "in order",
}


def _judge_check(node: Node) -> Any:
    kind = _only_one(node, _DEFAULT_NOTES, *_keys(JudgeCheck))
    if "arguments" in node.value and kind != "called":
        node.fail("arguments belong to called")
    return _read(JudgeCheck, node, note=f"{_DEFAULT_NOTES[kind]} {node.value[kind]}")


def _judge_checks(node: Node) -> tuple[JudgeCheck, ...]:
    return _each(_judge_check)(node) or node.fail("expected at least one check")


@dataclass(frozen=True, slots=True)
class JudgeRule:
    """Scores one criterion by the weighted share of its passed checks."""

    criteria: TextTest = _entry("criteria", _text_test, MISSING)
    checks: tuple[JudgeCheck, ...] = _entry("checks", _judge_checks, MISSING)


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model that the server knows; a `reasoning` model refuses sampling parameters."""

    name: str = _entry("name", Node.text, MISSING)
    reasoning: bool = _entry("reasoning", Node.flag, False)


def _model(node: Node) -> Any:
    return ModelSpec(node.value) if isinstance(node.value, str) else _read(ModelSpec, node)


@dataclass(frozen=True, slots=True)
class Script:
    """A whole script, named by its file or its built-in name.

    `models` and `keys` are the only accepted ones, unless empty. `judge_default` is the score of a
    criterion without a rule.
    """

    name: str
    models: tuple[ModelSpec, ...] = ()
    keys: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    judge_rules: tuple[JudgeRule, ...] = ()
    judge_default: float = 0.5
    faults: tuple[Fault, ...] = ()


Source = Script | str | Path | Mapping[str, Any]


def load_script(source: Source) -> Script:
    """Load a script from a file, a built-in name or data; raises `ScriptError` with the place."""
    return _load(source, Path.cwd(), MAX_EXTENDS)


def builtin_scripts() -> tuple[str, ...]:
    """Return the names of the built-in scripts."""
    folder = resources.files("kindlm.testing") / "scripts"
    names = (entry.name for entry in folder.iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml")))


def _load(source: Source, folder: Path, depth: int) -> Script:
    if isinstance(source, Script):
        return source
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
    """Return a script's name, its text, and the folder that its `extends` is relative to."""
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
    """Read a script from plain data; `load` loads the script that it extends."""
    root = Node(data, "script")
    root.mapping("description", "extends", "models", "keys", "rules", "judge", "faults")
    root.optional("description", Node.text)
    base = root.optional("extends", lambda node: load(node.text()), Script(name))
    judge = root.optional("judge", _judge, ((), base.judge_default))
    return Script(
        name=name,
        models=root.optional("models", _each(_model), base.models),
        keys=root.optional("keys", Node.texts, base.keys),
        rules=root.optional("rules", _rules, ()) + base.rules,
        judge_rules=judge[0] + base.judge_rules,
        judge_default=judge[1],
        faults=root.optional("faults", read_faults, ()) + base.faults,
    )


def _judge(node: Node) -> tuple[tuple[JudgeRule, ...], float]:
    node.mapping("default", "rules")
    rules = node.optional("rules", _each(partial(_read, JudgeRule)), ())
    return rules, node.optional("default", partial(Node.number, maximum=1), 0.5)
