"""The `crewai` adapter: crews behind an HTTP server of the user's.

A message is one POST with `{"inputs": {"query"}}`; beside the query are the keys of its context,
and what was said before as `conversation_history`.

The server reports tasks in its own form, or returns CrewAI's `CrewOutput` unchanged. The section
"crewai" of docs/how-to/agents.md has what kindlm reads.

Calls in the `messages` of a task count, too. A task that names no tool and has no `messages` is
the tool `crew_task`, as in EvalView.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from kindlm.agents.chat_messages import read_messages, spoken
from kindlm.agents.drafts import Heard
from kindlm.agents.http_request import context_with_history, last_user_text
from kindlm.agents.reply_parts import AGENT_RULE, UnreadableReply, error_text, first_text
from kindlm.agents.reply_reading import (
    FailedReply,
    agent_reply,
    doubts,
    read_cost,
    read_counts,
    read_model,
)
from kindlm.agents.served import HttpReply, Served
from kindlm.agents.tool_entries import hidden_calls, reported_calls, tool_answer
from kindlm.ports import AgentReply, AgentRequest
from kindlm.same_calls import Told, uses_together
from kindlm.strict_json import as_text
from kindlm.transcript import ToolCall, ToolUse, Usage
from kindlm.wires import Spent, parse_object

_TEXTS = ("result", "output", "final_output", "raw")
_TASKS = ("tasks", "tasks_output")
_USAGES = ("usage_metrics", "token_usage", "usage")
_RESULTS = ("output", "raw", "result")
_ARGUMENTS = ("inputs", "input", "arguments", "parameters")
_STRUCTURED = ("pydantic", "json_dict")
"""The answer once more, as an object of the user's own form."""
_DONE = frozenset({"completed", "complete", "success", "succeeded", "done"})
_TASK = "crew_task"
_EXECUTION = "agent_execution"
_EXECUTIONS = "agent_executions"
_NO_ANSWER = f"it has no text under {', '.join(_TEXTS)}"
_NO_PARTS = (
    "the crew reports only its total number of tokens: input and output tokens are "
    "unknown, and so is what they cost"
)


def read_crew(text: str) -> AgentReply:
    """Read the JSON of a crew; raise `FailedReply` or `UnreadableReply` if it is not an answer."""
    value = parse_object(text)
    answer = _text(value)
    if not answer and value.get("error"):
        raise FailedReply(error_text({"error": value["error"]}))
    tasks = _entries(value, _TASKS)
    executions = _entries(value, (_EXECUTIONS,))
    if answer is None and not tasks and not executions:
        raise UnreadableReply(_NO_ANSWER)
    uses = uses_together(_uses(tasks, executions), reported_calls(value, None), by_id=False)
    counts: Mapping[str, Any] = next(
        (value[key] for key in _USAGES if isinstance(value.get(key), dict)), {}
    )
    usage = read_counts(counts)
    if not (usage.input_tokens or usage.output_tokens):
        usage = Usage()  # a crew that counted no tokens says 0
    is_total = usage == Usage() and bool(counts.get("total_tokens"))
    cost = read_cost({"cost": counts.get("total_cost")})
    return agent_reply(
        answer or "",
        uses,
        Spent(usage, read_cost(value, tasks) if cost is None else cost, read_model(value)),
        warnings=(*((_NO_PARTS,) if is_total else ()), *doubts(value)),
        hidden=_hidden(value, uses),
        hint="report them as `tasks` with a `tool`",
        # Agents that call tools in ReAct text list no calls in their messages.
        reports_tools="Action Input:" not in text
        and (
            any("tool" in task or isinstance(task.get("messages"), list) for task in tasks)
            or any("tool_used" in execution for execution in executions)
        ),
    )


def _hidden(value: Mapping[str, Any], uses: Sequence[ToolUse]) -> str | None:
    """Return where there may be calls that are not read."""
    unread = {key: said for key, said in value.items() if key not in _STRUCTURED}
    tasks = next((key for key in _TASKS if isinstance(value.get(key), list)), None)
    for key, tool in ((tasks, "tool"), (_EXECUTIONS, "tool_used")):
        if key is not None and isinstance(value.get(key), list):
            unread[key] = [_unread(entry, tool) for entry in value[key]]
    known = Told(use.call for use in uses)
    return hidden_calls(unread, known)


def _unread(entry: Any, tool: str) -> Any:
    """Return the unread part of a task or an execution that names its tool under a key."""
    if not isinstance(entry, dict):
        return entry
    read = {tool, *_ARGUMENTS, *_STRUCTURED}
    if first_text(entry.get(tool)) is not None:
        read.update(_RESULTS)
    if tool == "tool" and isinstance(entry.get("messages"), list):
        read.add("messages")
    return {key: said for key, said in entry.items() if key not in read}


def _text(value: Mapping[str, Any]) -> str | None:
    """Return the first text that is not empty, None if there is none at all."""
    texts = [_said(value[key]) for key in _TEXTS if value.get(key) is not None]
    return next(filter(None, texts), "") if texts else None


def _said(value: Any) -> str:
    if isinstance(value, dict):
        inner = (value[key] for key in ("output", "raw") if value.get(key) is not None)
        value = next(inner, value)
    return as_text(value)


def _entries(value: Mapping[str, Any], keys: tuple[str, ...]) -> list[Mapping[str, Any]]:
    lists = (value[key] for key in keys if isinstance(value.get(key), list))
    return [entry for entry in next(lists, []) if isinstance(entry, dict)]


def _uses(tasks: list[Mapping[str, Any]], executions: list[Mapping[str, Any]]) -> list[ToolUse]:
    uses = list[ToolUse]()
    for index, task in enumerate(tasks):
        name, messages = first_text(task.get("tool")), task.get("messages")
        is_silent = name is None and isinstance(messages, list)
        own = [] if is_silent else [_use(task, name or _TASK, f"task-{index}")]
        said = spoken(read_messages(messages if isinstance(messages, list) else []))
        uses += uses_together(own, said.tool_uses, by_id=False)
    told = {use.call.name for use in uses}
    executed = list[ToolUse]()
    for index, execution in enumerate(executions):
        name = first_text(execution.get("tool_used"))
        if name is None and tasks:
            continue  # it repeats less than the tasks report
        use = _use(execution, name or _EXECUTION, f"exec-{index}")
        # Without inputs, it adds nothing either, if the tasks have its tool.
        if use.call.name not in told or use.call.arguments or use.call.malformed is not None:
            executed.append(use)
    # Ids here are those of tasks and executions.
    return uses_together(uses, executed, by_id=False)


def _use(entry: Mapping[str, Any], name: str, default_id: str) -> ToolUse:
    arguments = next((entry[key] for key in _ARGUMENTS if key in entry), None)
    status = entry.get("status")
    if isinstance(status, str) and status.lower() not in _DONE and not entry.get("error"):
        entry = {**entry, "error": f"the crew says that its status is {status}"}
    output = tool_answer(entry, _RESULTS)
    call = ToolCall.told(first_text(entry.get("id")) or default_id, name, arguments)
    return ToolUse(call, output, AGENT_RULE)


class Crew(Served):
    """Crews behind an HTTP server of the user's."""

    hint: ClassVar[str] = "Check the agent's URL, and what its server answers"

    def body_for(self, request: AgentRequest, _carried: Any) -> Any:
        """Return the inputs of the crew."""
        return {"inputs": {"query": last_user_text(request), **context_with_history(request)}}

    def heard(self, answer: HttpReply, _request: AgentRequest) -> Heard:
        """Return what an answer says; see `Served.heard`."""
        return Heard(read_crew(answer.text))
