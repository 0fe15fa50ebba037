"""Reads a graph's answer: one JSON value, or server-sent events.

The events of a graph's own server say with their names what they are. Those of other servers say it
with their `type`: see the table under "langgraph" in docs/how-to/agents.md. An event without a type
is a state, or objects of nodes with what changed in it.

Tool calls are the reported `steps`, and what `intermediate_steps` and the messages tell beside
these. The text is that of the last message that is not the user's, else what stands under a usual
name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from kindlm.agents.chat_messages import (
    ChatMessage,
    Merging,
    last_text,
    new_messages,
    read_messages,
    spoken,
)
from kindlm.agents.drafts import Draft, Frame, Heard, hear
from kindlm.agents.reply_parts import NotJson, UnreadableReply, error_text
from kindlm.agents.reply_reading import FailedReply, agent_reply, read_spent
from kindlm.agents.tool_entries import (
    hidden_calls,
    looks_like_a_call,
    may_list_calls,
    read_tool_use,
    reported_calls,
    tool_answer,
)
from kindlm.dataclass import dataclass, replace
from kindlm.ports import AgentReply
from kindlm.same_calls import Told, uses_together
from kindlm.strict_json import as_text
from kindlm.transcript import ToolUse, Usage
from kindlm.wires import Spent, objects

_TEXTS = ("output", "result", "answer", "response", "text", "content")
_STATE_TEXTS = (*_TEXTS, "running_summary")
_NODE_TEXTS = ("running_summary", *_TEXTS)
_MESSAGES = frozenset({"ai", "human", "tool", "assistant", "user"})
_PAIRS = "intermediate_steps"
_STEPS = ("steps", _PAIRS)
"""Where a state reports tool calls beside its messages."""
_RESULTS = ("output", "result", "response", "observation", "content")
_NO_ANSWER = "it has no message of the agent, and no text under " + ", ".join(_STATE_TEXTS[:-1])
_SEVERAL_MODELS = "several models answered, so the cost is unknown"
_INTERRUPTED = "the graph was interrupted and waits for input: the answer is incomplete"


@dataclass(frozen=True, slots=True)
class Sent:
    """What the graph was sent: the message, the values beside it, whether any was sent before.

    A state repeats its input, which is no answer. `seen` are tool calls that were seen elsewhere.
    """

    text: str
    values: Mapping[str, Any] = field(default_factory=dict)
    has_history: bool = False
    seen: Sequence[ToolUse] = ()


@dataclass(slots=True)
class GraphDraft(Draft):
    """An answer in the making, told in one state or in many.

    `updates` is what nodes changed, each with the name of its node. `shows_calls` is whether there
    were messages, or a list of steps, which would show calls.
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

    def take(self, frame: Frame, number: int) -> None:
        """Take an event; its name says no more than that it is an error. Lists say nothing."""
        match frame.value:
            case NotJson() as broken:
                raise broken
            case said if frame.type == "error":
                raise FailedReply(error_text(frame.data if said is None else said))
            case dict() as event:
                self.add(event, number)
            case other if frame.text and not isinstance(other, list):
                self.add_text(frame.text, number)

    def add(self, event: Mapping[str, Any], _number: int) -> None:
        """Take an event of a server of the user's, or what a stream of a graph yields."""
        match event.get("type"):
            case "step":
                if event.get("tool") or event.get("action"):
                    self.steps.append(_step(event))
                    self.priced.append(event)
            case "message":
                (message,) = read_messages({**event, "type": "ai"})
                self.pieces.append(message.text)
                self.add_messages({**event, "type": "ai"})
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
        """Take a piece of the text."""
        self.pieces.append(text)

    def add_state(self, state: Mapping[str, Any]) -> None:
        """Take a whole state; raise `FailedReply` if it says that the graph failed."""
        self._check(state)
        self.shows_calls = self.shows_calls or any(map(may_list_calls, map(state.get, _STEPS)))
        messages = self._new(state, has_history=self.sent.has_history)
        self.merging.add_all(messages)
        self._hear(last_text(messages), _text(state, _STATE_TEXTS, self.sent.values))
        self.about.update(state)

    def add_update(self, nodes: Mapping[str, Any]) -> None:
        """Take what some nodes changed: an object for each of them, or a list of objects."""
        self._check(nodes)
        for name, said in nodes.items():
            for node in objects(said if isinstance(said, list) else [said]):
                self.updates.append((name, node))
                messages = self._new(node, has_history=False)
                self.merging.add_new(messages)
                text = _text(node, _NODE_TEXTS, self.sent.values) if node is said else None
                self._hear(last_text(messages), text)

    def add_messages(self, value: Any) -> None:
        """Take messages that are all new."""
        messages = self._read(value)
        self.merging.add_new(messages)
        self._hear(last_text(messages), None)

    def add_steps(self, state: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> None:
        """Take the steps of a state, without those that another list has told.

        A state may repeat the steps of the one before this answer.
        """
        for key in _STEPS:
            steps, earlier = _listed(state, key), _listed(before or {}, key)
            if earlier == steps[: len(earlier)]:
                del steps[: len(earlier)]
            self.steps = uses_together(self.steps, [_step(step) for step in steps])

    def finished(self) -> Heard:
        """Return the whole, with the steps of the last state."""
        self.add_steps(self.about)
        return Heard(self.reply())

    def reply(self) -> AgentReply:
        """Return the whole; raise `FailedReply` or `UnreadableReply` if there is no answer."""
        said = spoken(self.merging.messages)
        own = self._beside_messages(self.about)
        told = uses_together(self.steps, said.tool_uses)
        uses = uses_together(told, reported_calls(own, None))
        text = self.last_message or (self.last_message if self.text is None else self.text)
        text = "".join(self.pieces).strip() if self.pieces else text
        if not text and self.about.get("error"):
            raise FailedReply(error_text(self.about))
        if text is None and not uses:
            raise UnreadableReply(_NO_ANSWER)
        spent = self.spent()
        warnings = list[str]()
        if self.is_interrupted:
            warnings.append(_INTERRUPTED)
        if spent.model is None and said.models:
            warnings.append(f"{_SEVERAL_MODELS}: {', '.join(said.models)}")
        return agent_reply(
            text or "",
            uses,
            spent,
            warnings=warnings,
            hidden=self._hidden(own, uses),
            hint="report them as `steps`",
            reports_tools=self.shows_calls or None,
        )

    def spent(self) -> Spent:
        """Return what was reported so far, by the states or else by the messages."""
        said, about = spoken(self.merging.messages), read_spent(self.about, self.priced)
        usage = said.usage if about.usage == Usage() else about.usage
        model = said.models[0] if len(said.models) == 1 else None
        return Spent(usage, about.cost_usd, about.model or model)

    def _new(self, state: Mapping[str, Any], *, has_history: bool) -> Sequence[ChatMessage]:
        messages = self._read(state.get("messages", []))
        return new_messages(messages, self.sent.text, has_history=has_history)

    def _read(self, value: Any) -> Sequence[ChatMessage]:
        messages = read_messages(value)
        self.shows_calls = self.shows_calls or bool(messages)
        return messages

    def _hear(self, message: str | None, text: str | None) -> None:
        """Keep the last report."""
        self.last_message = self.last_message if message is None else message
        self.text = self.text if text is None else text

    def _hidden(self, own: Mapping[str, Any], uses: Sequence[ToolUse]) -> str | None:
        """Return where there may be calls that are not read, in `own` or in what nodes changed."""
        told = spoken(read_messages(self.about.get("messages", []))).tool_uses
        here = (use.call for use in (*uses, *self.sent.seen))
        known = Told(here, (use.call for use in told))
        for name, node in self.updates:
            beside = self._beside_messages(node)
            calls = [_step(step) for key in _STEPS for step in _listed(node, key)]
            calls += reported_calls(beside, None)
            if not all(known.has(use.call) for use in calls):
                return name or "."
            if (place := hidden_calls(beside, known)) is not None:
                return f"{name}.{place}".strip(".") or "."
        return hidden_calls(own, known)

    def _beside_messages(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a state says itself beside its messages and steps, which are read."""
        return {
            key: value
            for key, value in state.items()
            if key not in ("messages", *_STEPS) and value != self.sent.values.get(key)
        }

    def _check(self, state: Mapping[str, Any]) -> None:
        error = state.get("__error__")
        if error:
            raise FailedReply(error_text(error if isinstance(error, dict) else {"error": error}))
        self.is_interrupted = self.is_interrupted or bool(state.get("__interrupt__"))


def _text(values: Mapping[str, Any], keys: Iterable[str], sent: Mapping[str, Any]) -> str | None:
    """Return the first text under some keys that is not empty, without what was sent there."""
    told = [(key, values[key]) for key in keys if values.get(key) is not None]
    texts = [as_text(value) for key, value in told if value != sent.get(key)]
    return next(filter(None, texts), "") if texts else None


def _listed(state: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Return the steps under a key of a state; some are pairs of an action and its result."""
    found = state.get(key)
    steps = list[Mapping[str, Any]]()
    for entry in found if isinstance(found, list) else [found]:
        if isinstance(entry, dict):
            steps.append(entry)
        elif key == _PAIRS and isinstance(entry, list) and len(entry) == 2:
            steps.append({"action": entry[0], "output": entry[1]})
    return steps


def _step(step: Mapping[str, Any]) -> ToolUse:
    """Return the tool call of a step; its action may be an object of its own."""
    action = step.get("action")
    if isinstance(action, dict):
        step = {**action, **step}
    elif isinstance(action, str) and not step.get("tool"):
        step = {**step, "tool": action}
    use = read_tool_use(step)
    text = use.call.malformed
    if text is not None and not text.lstrip().startswith("{"):
        use = replace(use, call=replace(use.call, arguments={"tool_input": text}, malformed=None))
    return replace(use, response=tool_answer(step, _RESULTS))


_AROUND = ("output", "result", "values", "state")
"""Where a state is inside of an object."""


def read_value(value: Any, sent: Sent) -> AgentReply:
    """Read a state that is a JSON object, or is inside one; raise as `GraphDraft.reply`."""
    if isinstance(value, list):
        value = {"messages": value}
    if not isinstance(value, dict):
        raise UnreadableReply("it is not a JSON object")
    reply = GraphDraft(sent)
    inner = None
    if "messages" not in value:
        inner = next((key for key in _AROUND if _is_state(value.get(key))), None)
    states = [value]
    if inner is not None:
        states.append(value[inner])
        about = {key: said for key, said in value.items() if key != inner}
        value = {**about, **value[inner]}
    reply.add_state(value)
    for state in states:
        reply.add_steps(state)
        reply.priced += _listed(state, "steps")
    return reply.reply()


def _is_state(value: Any) -> bool:
    return isinstance(value, dict) and "messages" in value


def read_pieces(pieces: Iterable[Any], sent: Sent) -> AgentReply:
    """Read what a stream of a graph yields in Python; raise as `GraphDraft.reply`."""
    return hear(GraphDraft(sent), (Frame("message", "", piece) for piece in pieces)).reply


@dataclass(slots=True)
class RunDraft(GraphDraft):
    """An answer of LangGraph's own server, whose events say by their names what they are.

    `first` is the state that the thread had before, with the new input: the server tells it first.
    """

    first: Mapping[str, Any] | None = None
    states: int = 0

    def take(self, frame: Frame, number: int) -> None:
        """Take a `values` or `updates` event, or an error; ignore all others."""
        value = frame.value
        if frame.type not in ("values", "updates") or not isinstance(value, dict):
            if isinstance(value, NotJson) or frame.type == "error":
                GraphDraft.take(self, frame, number)
        elif frame.type == "values":
            self.first = value if self.first is None else self.first
            self.states += 1
            self.add_state(value)
        else:
            self.add_update({"": value} if "messages" in value else value)

    def finished(self) -> Heard:
        """Return the whole, without the steps of earlier answers."""
        is_told = self.sent.has_history and self.states > 1
        self.add_steps(self.about, self.first if is_told else None)
        return Heard(self.reply())
