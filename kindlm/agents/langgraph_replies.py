"""Reads a graph's answer: one JSON value, or server-sent events.

LangGraph's server names its events. Other servers give them a `type`: see the table under
"langgraph" in docs/reference/agent-answers.md. An event without a type is a whole state, or an
object with the changes that nodes made to the state.

Tool calls come from `steps`, `intermediate_steps` and the messages. The text is that of the last
message that is not the user's, else the text under a usual key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from kindlm.agents.chat_messages import ChatMessage, Merging, calls_of, new_messages, read_messages
from kindlm.agents.drafts import Draft, Frame, ParsedAnswer, assemble
from kindlm.agents.hidden_calls import calls_anywhere, hidden_calls, looks_like_a_call
from kindlm.agents.reply_parts import NotJson, UnreadableReply, error_text
from kindlm.agents.reply_reading import FailedReply, agent_reply
from kindlm.agents.reply_usage import read_spent, spent_together
from kindlm.agents.tool_entries import may_list_calls, read_tool_use, reported_calls, tool_result
from kindlm.dataclass import dataclass, replace
from kindlm.ports import AgentReply
from kindlm.same_calls import KnownCalls, merged_uses
from kindlm.strict_json import as_text, read_arguments, read_json
from kindlm.transcript import Role, ToolUse, Usage
from kindlm.wires import Spent, objects

_TEXTS = ("output", "result", "answer", "response", "text", "content")
_STATE_TEXTS = (*_TEXTS, "running_summary")
_NODE_TEXTS = ("running_summary", *_TEXTS)
_MESSAGES = frozenset({"ai", "human", "tool", "assistant", "user"})
_PAIRS = "intermediate_steps"
_STEPS = ("steps", _PAIRS)
"""Where a state reports tool calls beside its messages."""
_RESULTS = ("output", "result", "response", "observation", "content")
_NO_ANSWER = f"it has no message of the agent, and no text under {', '.join(_TEXTS)}"
_INTERRUPTED = "the graph was interrupted and waits for input: the answer is incomplete"


@dataclass(frozen=True, slots=True)
class Sent:
    """The message, which states repeat: kindlm does not read it as an answer.

    With `has_history`, earlier messages were sent. `seen` are tool calls that kindlm observed
    elsewhere.
    """

    text: str
    has_history: bool = False
    seen: Sequence[ToolUse] = ()


@dataclass(slots=True)
class GraphDraft(Draft):
    """An answer under construction, from one state or many.

    `updates` are the changes to the state, each with the name of its node. `shows_calls` is true
    once there are messages or a list of steps, since these would show tool calls. `has_inner` is
    true once there are changes in subgraphs.
    """

    sent: Sent
    merging: Merging = field(default_factory=Merging)
    pieces: list[str] = field(default_factory=list)
    steps: list[ToolUse] = field(default_factory=list)
    priced: list[Mapping[str, Any]] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)
    updates: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    last_message: str | None = None
    text: str | None = None
    is_interrupted: bool = False
    shows_calls: bool = False
    has_inner: bool = False

    def take(self, frame: Frame, number: int) -> None:
        """Add an event; only the name `error` has a meaning. Calls in a list are hidden."""
        match frame.value:
            case NotJson() as broken:
                raise broken
            case error if frame.type == "error":
                raise FailedReply(error_text(frame.data if error is None else error))
            case dict() as event:
                self.add(event, number)
            case list() as data:
                self.updates.append(("", {frame.type: data}))
            case str() as data if calls_anywhere(data):
                self.updates.append(("", {frame.type: read_json(data)}))
            case _ if frame.text:
                self.add_text(frame.text, number)

    def add(self, event: Mapping[str, Any], _number: int) -> None:
        """Add an event of the user's own server, or an item of a graph's stream in Python."""
        match event.get("type"):
            case "step":
                is_call = bool(event.get("tool") or event.get("action"))
                if is_call:
                    self.steps.append(_step(event))
                else:
                    self.updates.append(("", event))
                if is_call or "cost" in event:
                    self.priced.append(event)
            case "message":
                message = {**event, "type": "ai"}
                pieces = read_messages(message)
                self.pieces += [each.text for each in pieces if each.speaker is Role.ASSISTANT]
                self.add_messages(message)
            case "metadata":
                self.about.update(event)
            case "error":
                raise FailedReply(error_text(event))
            case str(kind) if kind in _MESSAGES:
                self.add_messages(event)
            case _ if "messages" in event:
                self.add_state(event)
            case _ if looks_like_a_call(event):
                self.updates.append(("", event))
            case _:
                self.add_update(event)

    def add_text(self, text: str, _number: int) -> None:
        self.pieces.append(text)

    def add_state(self, state: Mapping[str, Any]) -> None:
        """Add a whole state; raises `FailedReply` if it reports a failure of the graph."""
        self._check(state)
        self.shows_calls = self.shows_calls or any(map(may_list_calls, map(state.get, _STEPS)))
        messages = self._new(state, has_history=self.sent.has_history)
        self.merging.add(messages, are_all=True)
        self._keep_last(messages, _text(state, _STATE_TEXTS, self.sent.text))
        self.about.update(state)

    def add_update(self, nodes: Mapping[str, Any], *, is_inner: bool = False) -> None:
        """Add the changes of nodes: an object or a list of objects under the name of each node.

        Nodes of a subgraph (`is_inner`) add calls and tokens, but neither a text nor a failure, and
        do not show that the whole graph reports its calls.
        """
        shown = self.shows_calls
        self.has_inner = self.has_inner or is_inner
        if not is_inner:
            self._check(nodes)
        for name, written in nodes.items():
            changes = read_json(written)
            for change in objects(changes if isinstance(changes, list) else [changes]):
                self.updates.append((name, change))
                messages = self._new(change, has_history=False)
                self.merging.add(messages, are_all=False)
                if not is_inner:
                    self._keep_last(messages, _text(change, _NODE_TEXTS, self.sent.text))
        self.shows_calls = shown if is_inner else self.shows_calls

    def add_messages(self, value: Any) -> None:
        """Add messages that are all new."""
        messages = self._read(value)
        self.merging.add(messages, are_all=False)
        self._keep_last(messages, None)

    def add_steps(self, state: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> None:
        """Add the steps of a state, without those of the state `before` and of other lists."""
        for key in _STEPS:
            steps, earlier = _listed(state, key), _listed(before or {}, key)
            if earlier == steps[: len(earlier)]:
                del steps[: len(earlier)]
            self.steps = merged_uses(self.steps, [_step(step) for step in steps])

    def finished(self) -> ParsedAnswer:
        """Return the whole answer, with the steps of the last state."""
        self.add_steps(self.about)
        return ParsedAnswer(self.reply())

    def reply(self) -> AgentReply:
        """Return the whole reply; raises `FailedReply` or `UnreadableReply` without an answer."""
        rest = _beside_messages(self.about)
        uses = merged_uses(self.steps, calls_of(self.merging.messages))
        uses = merged_uses(uses, reported_calls(rest, None))
        text = self.last_message
        if self.pieces:
            text = "".join(self.pieces).strip()
        elif not text and self.text is not None:
            text = self.text
        if not text and self.about.get("error"):
            raise FailedReply(error_text(self.about))
        if text is None and not uses:
            raise UnreadableReply(_NO_ANSWER)
        said = [it for it in self.merging.messages if it.speaker is Role.ASSISTANT]
        return agent_reply(
            text or "",
            uses,
            self.spent(),
            warnings=(_INTERRUPTED,) if self.is_interrupted else (),
            reasons=said[-1].reasons if said else (),
            hidden=self._hidden(rest, uses),
            hint="report them as `steps`",
            reports_tools=self.shows_calls or None,
        )

    def spent(self) -> Spent:
        of_messages = spent_together([message.spent for message in self.merging.messages])
        about = read_spent(self.about, self.priced)
        usage = about.usage
        if usage == Usage() and self._left_out() is None:
            usage = of_messages.usage
        return Spent(usage, about.cost_usd, about.model or of_messages.model)

    def _new(self, state: Mapping[str, Any], *, has_history: bool) -> Sequence[ChatMessage]:
        messages = self._read(state.get("messages", []))
        return new_messages(messages, self.sent.text, has_history=has_history)

    def _read(self, value: Any) -> Sequence[ChatMessage]:
        messages = read_messages(value)
        self.shows_calls = self.shows_calls or bool(messages)
        return messages

    def _keep_last(self, messages: Sequence[ChatMessage], text: str | None) -> None:
        said = [message.text for message in messages if message.speaker is not Role.USER]
        self.last_message = said[-1] if said else self.last_message
        self.text = self.text if text is None else text

    def _hidden(self, rest: Mapping[str, Any], uses: Sequence[ToolUse]) -> str | None:
        """Return where calls may be that kindlm did not read: in messages, `rest` or changes."""
        for message in self.merging.messages:
            if message.hidden is not None:
                return message.hidden
        if (agent := self._left_out()) is not None:
            return f"the agent {agent}"
        earlier = calls_of(read_messages(self.about.get("messages", [])))
        here = (use.call for use in (*uses, *self.sent.seen))
        known = KnownCalls(here, (use.call for use in earlier))
        for name, change in self.updates:
            beside = _beside_messages(change)
            calls = [_step(step) for key in _STEPS for step in _listed(change, key)]
            calls += reported_calls(beside, None)
            if not all(known.has(use.call) for use in calls):
                return name or "."
            if (place := hidden_calls(beside, known)) is not None:
                return f"{name}.{place}".strip(".") or "."
        return hidden_calls(rest, known)

    def _left_out(self) -> str | None:
        """Return an agent that a supervisor handed over to, if the answer has no call of it.

        By default, a supervisor of LangGraph keeps only the last message of such an agent.
        """
        if self.has_inner or self.sent.seen:
            return None
        messages = self.merging.messages
        shown = {each.agent for each in messages if each.speaker is Role.ASSISTANT}
        agents = (each.agent for each in messages if each.speaker is Role.TOOL)
        return next((agent for agent in agents if agent and agent not in shown), None)

    def _check(self, state: Mapping[str, Any]) -> None:
        error = state.get("__error__")
        if error:
            raise FailedReply(error_text(error if isinstance(error, dict) else {"error": error}))
        self.is_interrupted = self.is_interrupted or bool(state.get("__interrupt__"))


def _beside_messages(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state without its messages and steps."""
    return {key: value for key, value in state.items() if key not in ("messages", *_STEPS)}


def _text(values: Mapping[str, Any], keys: Iterable[str], sent: str) -> str | None:
    """Return the first text that was not sent, preferably not empty; None without a text."""
    texts = [as_text(values[key]) for key in keys if values.get(key) not in (None, sent)]
    return next(filter(None, texts), "") if texts else None


def _listed(state: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Return the steps under a key of a state; a step may be a pair of an action and its result."""
    found = state.get(key)
    steps = list[Mapping[str, Any]]()
    waiting: list[Any] = found[::-1] if isinstance(found, list) else [found]
    while waiting:  # without recursion: lists may be nested deeply
        entry = read_json(waiting.pop())  # some databases give JSON
        if isinstance(entry, dict):
            steps.append(entry)
        elif key == _PAIRS and isinstance(entry, list) and len(entry) == 2:
            steps.append({"action": entry[0], "output": entry[1]})
        elif isinstance(entry, list):
            waiting.extend(reversed(entry))
    return steps


def _step(step: Mapping[str, Any]) -> ToolUse:
    """Return the tool call of a step, whose action may be an object or a name."""
    action = read_arguments(step.get("action"))
    if isinstance(action, dict):
        step = {**action, **step}
    elif isinstance(action, str) and not step.get("tool"):
        step = {**step, "tool": action}
    use = read_tool_use(step)
    text = use.call.malformed
    if text is not None and not text.lstrip().startswith("{"):
        use = replace(use, call=replace(use.call, arguments={"tool_input": text}, malformed=None))
    return replace(use, response=tool_result(step, _RESULTS))


_STATE_KEYS = ("output", "result", "values", "state")
"""Keys under which an answer may hold the state."""


def read_value(value: Any, sent: Sent) -> AgentReply:
    """Read a state that is a JSON object, or is inside one; raises like `GraphDraft.reply`."""
    if isinstance(value, list):
        value = {"messages": value}
    if not isinstance(value, dict):
        raise UnreadableReply("it is not a JSON object")
    draft = GraphDraft(sent)
    inner = None
    if "messages" not in value:
        dicts = [key for key in _STATE_KEYS if isinstance(value.get(key), dict)]
        inner = next((key for key in dicts if "messages" in value[key]), None)
        if alone := [key for key in dicts if "additional_kwargs" in value[key]]:
            # LangServe's answer of a model.
            about = {key: item for key, item in value.items() if key not in alone}
            value = {**about, "messages": [value[key] for key in alone]}
    states = [value]
    if inner is not None:
        states.append(value[inner])
        about = {key: item for key, item in value.items() if key != inner}
        value = {**about, **value[inner]}
    draft.add_state(value)
    for state in states:
        draft.add_steps(state)
        draft.priced += _listed(state, "steps")
    return draft.reply()


_OF_OTHERS = ("values|", "messages", "metadata")
"""Events with calls of others, in pieces, or without calls."""


@dataclass(slots=True)
class RunDraft(GraphDraft):
    """An answer of LangGraph's server, which names its events.

    `first` is the first state that the server sends: the earlier state of the thread, with the new
    input.
    """

    first: Mapping[str, Any] | None = None
    states: int = 0

    def take(self, frame: Frame, number: int) -> None:
        """Add a `values` or `updates` event, or an error; others may only have hidden calls."""
        match frame.type, frame.value:
            case "values", dict() as state:
                self.first = state if self.first is None else self.first
                self.states += 1
                self.add_state(state)
            case str(kind), dict() as nodes if kind.partition("|")[0] == "updates":
                # The path of a subgraph follows the name of the event.
                nodes = {"": nodes} if "messages" in nodes else nodes
                self.add_update(nodes, is_inner="|" in kind)
            case ("error" | "message", _) | (_, NotJson()) | ("values" | "updates", list()):
                GraphDraft.take(self, frame, number)
            case str(kind), data if not kind.startswith(_OF_OTHERS):
                self.updates.append(("", {kind: read_json(data)}))

    def finished(self) -> ParsedAnswer:
        """Return the whole answer, without the steps of earlier answers."""
        has_earlier = self.sent.has_history and self.states > 1
        self.add_steps(self.about, self.first if has_earlier else None)
        return ParsedAnswer(self.reply())


def read_parts(parts: Iterable[tuple[str, Any]], sent: Sent) -> AgentReply:
    """Read the parts of a graph's stream in Python: the name of an event, or `message`, and data.

    Raises like `GraphDraft.reply`.
    """
    return assemble(RunDraft(sent), (Frame(name, "", data) for name, data in parts)).reply
