"""The `crewai` adapter: crews behind the user's HTTP server.

The section "crewai" of docs/reference/agent-answers.md says what kindlm reads. A task without a
`tool` and without `messages` counts as a call to the tool `crew_task`, as in EvalView.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, ClassVar

from kindlm.agents.chat_messages import calls_of, read_messages
from kindlm.agents.drafts import ParsedAnswer
from kindlm.agents.hidden_calls import hidden_calls
from kindlm.agents.http_request import context_with_history, last_user_text
from kindlm.agents.reply_parts import AGENT_RULE, UnreadableReply, error_text, first_text
from kindlm.agents.reply_reading import FailedReply, agent_reply, failure_warnings
from kindlm.agents.reply_usage import read_cost, read_counts, read_model
from kindlm.agents.served import HttpReply, Served
from kindlm.agents.tool_entries import folded, reported_calls, tool_name, tool_result
from kindlm.ports import AgentReply, AgentRequest
from kindlm.same_calls import KnownCalls, merged_uses
from kindlm.strict_json import as_text
from kindlm.transcript import UNNAMED, ToolCall, ToolUse, Usage
from kindlm.wires import Spent, objects, parse_object

_TEXTS = ("result", "output", "final_output", "raw")
_EXECUTIONS = "agent_executions"
_USAGES = ("usage_metrics", "token_usage", "usage")
_RESULTS = ("output", "raw", "result")
_ARGUMENTS = ("inputs", "input", "arguments", "parameters")
_STRUCTURED = ("pydantic", "json_dict")
"""Keys that repeat the answer as an object in the user's form."""
_DELEGATION = frozenset({"delegateworktocoworker", "askquestiontocoworker"})
_DELEGATED = (
    "an agent of the crew delegates to another, and results of CrewAI do not show which tools that "
    "one called. Give kindlm the crew itself, or list all calls in `agent_executions`"
)
_DONE = frozenset({"completed", "complete", "success", "succeeded", "done"})
_NO_ANSWER = f"it has no text under {', '.join(_TEXTS)}"
_NO_PARTS = (
    "the crew reports only its total number of tokens: input and output tokens are "
    "unknown, and so is what they cost"
)


def read_crew(text: str) -> AgentReply:
    """Read the JSON of a crew; raises `FailedReply` or `UnreadableReply` without an answer."""
    value = parse_object(text)
    answer = _text(value)
    if not answer and value.get("error"):
        raise FailedReply(error_text({"error": value["error"]}))
    place = "tasks" if isinstance(value.get("tasks"), list) else "tasks_output"
    tasks, executions = objects(value.get(place)), objects(value.get(_EXECUTIONS))
    if answer is None and not tasks and not executions:
        raise UnreadableReply(_NO_ANSWER)
    uses = list[ToolUse]()
    for index, task in enumerate(tasks):
        uses += _calls_of_task(task, f"task-{index}")
    # An execution without a tool says less than the tasks. Ids are those of tasks, not of calls.
    named = list[ToolUse]()
    for index, execution in enumerate(executions):
        tool = _tool_of(execution, "tool_used")
        if tool or not tasks:
            named.append(_use(execution, tool or "agent_execution", f"exec-{index}"))
    uses = merged_uses(uses, named, by_id=False)
    uses = merged_uses(uses, reported_calls(value, None), by_id=False)
    counts: Mapping[str, Any] = next(
        (value[key] for key in _USAGES if isinstance(value.get(key), dict)), {}
    )
    usage = read_counts(counts)
    if not (usage.input_tokens or usage.output_tokens):
        usage = Usage()  # a crew that counted no tokens says 0
    is_total = usage == Usage() and bool(counts.get("total_tokens"))
    cost = read_cost({"cost": counts.get("total_cost")})
    delegates = any(folded(use.call.name.replace(" ", "")) in _DELEGATION for use in uses)
    return agent_reply(
        answer or "",
        uses,
        Spent(usage, read_cost(value, tasks) if cost is None else cost, read_model(value)),
        warnings=(*((_NO_PARTS,) if is_total else ()), *failure_warnings(value)),
        hidden=_hidden(value, place, uses),
        hint="report them as `tasks` with a `tool`",
        unseen=_DELEGATED if delegates and not named else None,
        # Agents that call tools in ReAct text list no calls in their messages.
        reports_tools="Action Input:" not in text
        and (
            any("tool" in task or isinstance(task.get("messages"), list) for task in tasks)
            or any("tool_used" in execution for execution in executions)
        ),
    )


def _hidden(value: Mapping[str, Any], tasks: str, uses: Iterable[ToolUse]) -> str | None:
    """Return where calls may be that kindlm did not read; `tasks` is the key of the tasks."""
    unread = {key: item for key, item in value.items() if key not in _STRUCTURED}
    for key, item in unread.items():
        is_read = key == _EXECUTIONS and objects(item) == item
        if folded(key) == folded(_EXECUTIONS) and item and not is_read:
            return key
    said = (read_messages(task.get("messages")) for task in objects(value.get(tasks)))
    for message in chain.from_iterable(said):
        if message.hidden is not None:
            return message.hidden
    for key, tool in ((tasks, "tool"), (_EXECUTIONS, "tool_used")):
        if isinstance(value.get(key), list):
            unread[key] = [_unread(entry, tool) for entry in value[key]]
    return hidden_calls(unread, KnownCalls(use.call for use in uses))


def _unread(entry: Any, tool: str) -> Any:
    """Return a task or an execution without the keys that kindlm reads."""
    if not isinstance(entry, dict):
        return entry
    read = {tool, *_ARGUMENTS, *_STRUCTURED}
    if first_text(entry.get(tool)) is not None:
        read.update(_RESULTS)
    if tool == "tool" and isinstance(entry.get("messages"), list):
        read.add("messages")
    return {key: item for key, item in entry.items() if key not in read}


def _text(value: Mapping[str, Any]) -> str | None:
    """Return the first text, preferably not empty; None if there is no text."""
    texts = list[str]()
    for key in _TEXTS:
        found = value.get(key)
        if isinstance(found, dict):
            inner = (found[name] for name in ("output", "raw") if found.get(name) is not None)
            found = next(inner, found)
        if found is not None:
            texts.append(as_text(found))
    return next(filter(None, texts), "") if texts else None


def _calls_of_task(task: Mapping[str, Any], default_id: str) -> list[ToolUse]:
    """Return the tool of a task, and the calls in its messages."""
    tool, messages = _tool_of(task, "tool"), task.get("messages")
    if not isinstance(messages, list):
        return [_use(task, tool or "crew_task", default_id)]
    own = [_use(task, tool, default_id)] if tool else []
    return merged_uses(own, calls_of(read_messages(messages)), by_id=False)


def _tool_of(entry: Mapping[str, Any], key: str) -> str | None:
    """Return the name of a tool; one that is not a text may be that of any tool."""
    found = entry.get(key)
    return tool_name(found) or (UNNAMED if found else None)


def _use(entry: Mapping[str, Any], name: str, default_id: str) -> ToolUse:
    arguments = next((entry[key] for key in _ARGUMENTS if key in entry), None)
    status = entry.get("status")
    if isinstance(status, str) and status.lower() not in _DONE and not entry.get("error"):
        entry = {**entry, "error": f"the crew says that its status is {status}"}
    call = ToolCall.parse(first_text(entry.get("id")) or default_id, name, arguments)
    return ToolUse(call, tool_result(entry, _RESULTS), AGENT_RULE)


class Crew(Served):
    """Options of crews behind the user's HTTP server."""

    hint: ClassVar[str] = "Check the agent's URL, and what its server answers"

    def body_for(self, request: AgentRequest, _carried: Any) -> Any:
        return {"inputs": {"query": last_user_text(request), **context_with_history(request)}}

    def parse(self, answer: HttpReply, _request: AgentRequest) -> ParsedAnswer:
        return ParsedAnswer(read_crew(answer.text))
