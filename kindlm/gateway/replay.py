"""Answers an agent's model calls from the recording of one attempt, while the agent runs again.

Requests are equal if their normal forms are. The nth equal request gets the nth complete answer.
A request that was never recorded is a miss, and its error says what differs.

The normal form keeps what can change the answer: arguments, parameters, schemas, texts. It leaves
out nulls, ids of items, and settings for accounts, caches and logs. It numbers ids of calls by
appearance, puts adjacent tool results into the order of their calls, and sorts tools. It is
computed at replay, so it can change without new recordings.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

from kindlm.dataclass import dataclass, replace
from kindlm.errors import ErrorCode, KindlmError
from kindlm.ports import AnsweredThen, RecordedModelCall
from kindlm.strict_json import read_arguments
from kindlm.transcript import Cost, PaidBefore, Usage
from kindlm.wires.reading import ITEMS, WIRES, read_answer, sent_body
from kindlm.wording import count, nearest_differences
from kindlm_store.new_event import scrub


@dataclass(frozen=True, slots=True)
class _Question:
    """A recorded call; `form` is the normal form of its request."""

    call: RecordedModelCall
    form: Any
    fingerprint: str


@dataclass(eq=False)
class RecordedModels:
    """The answers that models gave to an agent in one attempt; implements `ports.ReplayedModels`.

    `messages` has what the answer to each message of the user cost and took. `missed` is the first
    miss.
    """

    source: str
    calls: Sequence[RecordedModelCall]
    masks_times: bool
    warnings: Sequence[str] = ()
    messages: Sequence[AnsweredThen] = ()
    missed: KindlmError | None = None
    _asked: Counter[str] = field(default_factory=Counter, init=False)
    _given: dict[str, str] = field(default_factory=dict, init=False)
    """Names of the ids in recorded answers: the question that was answered, and a number."""
    _requests: int = field(default=0, init=False)

    @cached_property
    def _questions(self) -> list[_Question]:
        questions = list[_Question]()
        for call in self.calls:
            body, wire = sent_body(call.path, call.body, call.items), WIRES.get(call.path)
            if body is None:
                continue  # not JSON, so no request can equal it
            form = normal_form(body, self._given, masks_times=self.masks_times)
            question = _Question(call, form, fingerprint(call.path, form))
            questions.append(question)
            if wire is not None and call.answer is not None:
                answer = read_answer(wire, call.content_type, call.answer)
                for place, ident in enumerate((answer.id, *(use.id for use in answer.tool_calls))):
                    self._given.setdefault(ident or "", f"{question.fingerprint}.{place:03}")
        return questions

    def then(self, message: int, failed: int) -> tuple[PaidBefore, float | None]:
        """Return what an answer cost and took; see `ports.ReplayedModels`."""
        if message >= len(self.messages):
            return PaidBefore(), None
        known = self.messages[message]
        return sum(known.tries[failed:], known.before), known.latency_ms

    def answer(self, path: str, body: Any) -> RecordedModelCall | str:
        """Return the recorded call with the answer, or why there is none; see the port."""
        self._requests += 1
        questions = self._questions  # fills `_given`, too
        if body is None:
            return self._miss(path, "it is not JSON, so kindlm cannot compare it")
        try:
            form = normal_form(body, self._given, masks_times=self.masks_times)
        except RecursionError:
            return self._miss(path, "it is nested too deeply")
        wanted = fingerprint(path, form)
        found = [each.call for each in questions if each.fingerprint == wanted]
        same, charged = list[RecordedModelCall](), tuple[tuple[Usage, Cost], ...]()
        for call in found:
            charged = (*charged, *call.failed)
            if call.failure is None:
                same.append(replace(call, failed=charged))
                charged = ()
        number = self._asked[wanted]
        self._asked[wanted] += 1
        if number < len(same):
            call = same[number]
            if call.answer is not None:
                return call
            why = f"the answer of {call.id} is no longer stored"
        elif same:
            why = f"it was recorded {count(len(same), 'time')}, and the agent sends it once more"
        elif found:
            return self._miss(
                path, f"it failed in the recording: {found[0].failure}", verb="answered"
            )
        else:
            of_path = [each.form for each in questions if each.call.path == path]
            as_long = [each for each in of_path if _length(path, each) == _length(path, form)]
            why = nearest_differences(as_long or of_path, form) or "no request was recorded there"
        hint = "Record it: kindlm test; or undo the change"
        if not same and not self.masks_times:
            hint += "; or, if only times or UUIDs differ: kindlm replay --mask-times"
        return self._miss(path, why, hint)

    def _miss(
        self,
        path: str,
        why: str,
        hint: str = "Record it: kindlm test",
        verb: str = "recorded",
    ) -> str:
        message = (
            f"Run {self.source.rpartition('-')[0]} never {verb} this request from the agent to "
            f"its model (call {self._requests}, {path}): {why.rstrip('.')}."
        )
        self.missed = self.missed or KindlmError(ErrorCode.PROVIDER_NOT_FOUND, message, hint)
        return message


def _length(path: str, form: Any) -> int:
    wire = WIRES.get(path)
    items = form.get(ITEMS[wire]) if wire is not None and isinstance(form, dict) else None
    return len(items) if isinstance(items, list) else 0


# Settings of a request that do not change the question, such as for accounts, caches and logs.
_ABOUT_THE_CALL = {
    "client_metadata", "logprobs", "metadata", "prompt_cache_key", "prompt_cache_options",
    "prompt_cache_retention", "safety_identifier", "service_tier", "store", "stream_options",
    "top_logprobs", "user",
}  # fmt: skip
# Keys that providers add to parts of their answers, and settings of parts for caches.
_ABOUT_THE_PART = {
    "annotations", "cache_control", "encrypted_content", "logprobs", "signature", "status",
}  # fmt: skip
# Keys whose values are messages, calls or parts. Values of other keys are kept whole.
_OF_REQUEST = {"input", "messages", "system"}
_OF_PART = {"content", "summary", "tool_calls"}
_FUNCTIONS = {"custom", "function", "function_call"}
_CALL_IDS = ("tool_call_id", "call_id", "tool_use_id", "approval_request_id")
_CALLS = ("mcp_approval_request", "mcp_tool_use", "server_tool_use", "tool_use")
_MARKS = {"role", "type", *_FUNCTIONS}
_TEXTS = ("input_text", "output_text", "text")

_MONTH = (
    "(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    "|sep(?:tember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_CLOCK = r"\d\d?:\d\d(?::\d\d(?:[.,]\d{1,9})?)?"
_MASKS = [
    (re.compile(pattern, re.IGNORECASE | re.ASCII), name)
    for pattern, name in (
        (r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b[0-9a-f]{32}\b", "<uuid>"),
        (rf"\b\d{{4}}-\d\d-\d\d(?:[T ]{_CLOCK}(?:Z| ?[+-]\d\d:?\d\d)?)?\b", "<time>"),
        (rf"\b{_MONTH}\.? \d\d?(?:,? \d{{4}})?\b|\b\d\d?\.? {_MONTH}\.?(?: \d{{4}})?\b", "<time>"),
        (rf"\b{_CLOCK}(?: ?[ap]m)?\b", "<time>"),
        (r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\b", "<time>"),
        (r"\b(?:mon|tue|wed|thu|fri|sat|sun)(?=,? <time>)", "<time>"),
    )
]


def normal_form(body: Any, given: Mapping[str, str], *, masks_times: bool = False) -> Any:
    """Return the part of a request that can change the answer, as a JSON value.

    Args:
        body: The request. A value that is not an object is its own normal form.
        given: The names of ids in recorded answers.
        masks_times: Whether all dates, times of day and UUIDs count as equal.
    """
    return _Form(given, masks_times).of(body)


def fingerprint(path: str, form: Any) -> str:
    """Return a hash of the path and the normal form of a request."""
    return hashlib.sha256(_canonical([path, form]).encode()).hexdigest()[:16]


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


class _Form:
    """Computes the normal form of one request; `_numbers` are the ids of calls seen so far."""

    def __init__(self, given: Mapping[str, str], masks_times: bool) -> None:
        self._given = given
        self._masks = _MASKS if masks_times else []
        self._numbers: dict[str, int] = {}

    def of(self, body: Any) -> Any:
        """Return the normal form of a request."""
        if not isinstance(body, dict):
            return self._whole(body)
        form: dict[str, Any] = {}
        for key, value in body.items():
            if value is None or key in _ABOUT_THE_CALL:
                continue
            if key == "previous_response_id":
                form[key] = self._named(value)
            elif key == "tools" and isinstance(value, list):
                # By their names, so that their order does not matter.
                tools = [self._tool(tool) for tool in value]
                named = {_tool_name(tool): tool for tool in tools}
                form[key] = named if len(named) == len(tools) else sorted(tools, key=_canonical)
            elif key == "input" and isinstance(value, str):
                form[key] = [{"role": "user", "content": self._whole(value)}]
            elif key in _OF_REQUEST:
                form[key] = self._part(value)
            else:
                form[key] = self._whole(value)
        if "system" in form:
            form["system"] = _text_alone(form["system"])
        return form

    def _part(self, value: Any) -> Any:
        """Return the form of a message, a call, a part of a message, or a list of these."""
        if isinstance(value, list):
            return self._parts(value)
        # An object with neither a role nor a type is the user's own data.
        if not isinstance(value, dict) or not (value.keys() & _MARKS):
            return self._whole(value)
        kind, answered, part = value.get("type"), _answered(value), dict[str, Any]()
        is_call = kind in _CALLS or bool(value.keys() & _FUNCTIONS)
        for key, child in value.items():
            if child is None or key in _ABOUT_THE_PART:
                continue
            if (key in _CALL_IDS or (key == "id" and is_call)) and isinstance(child, str):
                is_known = child == answered and child not in self._numbers
                named = self._given.get(child) if is_known else None
                part[key] = named or f"#{self._numbers.setdefault(child, len(self._numbers))}"
            elif key == "id":
                # An item is known by its content, unless it only refers to another by its id.
                if value.keys() <= {"id", "type", "status"}:
                    part[key] = self._named(child)
            elif key in _OF_PART:
                part[key] = self._part(child)
            elif key in _FUNCTIONS and isinstance(child, dict):
                part[key] = {name: self._of_call(name, each) for name, each in child.items()}
            else:
                part[key] = self._of_call(key, child)
        if "content" in part:
            part["content"] = _text_alone(part["content"])
        if part.keys() == {"type", "text"} and kind in _TEXTS and isinstance(part["text"], str):
            return part["text"]
        return part

    def _named(self, ident: Any) -> Any:
        """Return the name of an id in a recorded answer; any other value as it is."""
        return self._given.get(ident, ident) if isinstance(ident, str) else ident

    def _of_call(self, key: str, value: Any) -> Any:
        is_json = key == "arguments" and isinstance(value, str)
        return self._whole(read_arguments(value) if is_json else value)

    def _parts(self, values: list[Any]) -> list[Any]:
        """Return the forms of parts, with adjacent tool results in the order of their calls."""
        parts, results = list[Any](), list[Any]()
        for value in values:
            if _answered(value) is not None:
                results.append(value)
                continue
            parts += map(self._part, sorted(results, key=self._place))
            results.clear()
            parts.append(self._part(value))
        parts += map(self._part, sorted(results, key=self._place))
        return parts

    def _place(self, result: Any) -> tuple[int, str]:
        """Return the sort key of a result: calls in this request, in earlier answers, others."""
        ident = _answered(result) or ""
        if ident in self._numbers:
            return self._numbers[ident] - len(self._numbers), ""
        return (0, self._given[ident]) if ident in self._given else (1, "")

    def _tool(self, tool: Any) -> Any:
        if not isinstance(tool, dict):
            return self._whole(tool)
        return {
            key: self._tool(value) if key in ("function", "custom") else self._whole(value)
            for key, value in tool.items()
            if value is not None and key != "cache_control"
        }

    def _whole(self, value: Any) -> Any:
        """Return a value with nothing left out: arguments, parameters, schemas, texts."""
        if isinstance(value, str):
            value = scrub(value)  # as it is recorded
            for pattern, name in self._masks:
                value = pattern.sub(name, value)
            return value
        if isinstance(value, dict):
            return {key: self._whole(child) for key, child in value.items()}
        if isinstance(value, list):
            return [self._whole(child) for child in value]
        # 1 and 1.0 are the same number in JSON.
        return int(value) if isinstance(value, float) and value.is_integer() else value


def _answered(value: Any) -> str | None:
    """Return the id of the call that a tool result answers; None for anything else."""
    if not isinstance(value, dict):
        return None
    kind = value.get("type")
    is_result = value.get("role") == "tool" or (
        isinstance(kind, str) and kind.endswith(("tool_result", "call_output", "approval_response"))
    )
    found = next((value[key] for key in _CALL_IDS if key in value), None) if is_result else None
    return found if isinstance(found, str) else None


def _tool_name(tool: Any) -> str:
    if not isinstance(tool, dict):
        return _canonical(tool)
    inner = tool.get("function", tool.get("custom"))
    named = inner if isinstance(inner, dict) else tool
    return str(named.get("name") or tool.get("server_label") or tool.get("type"))


def _text_alone(content: Any) -> Any:
    """Return the text of a content with a single text part; providers take either form."""
    is_text = isinstance(content, list) and len(content) == 1 and isinstance(content[0], str)
    return content[0] if is_text else content
