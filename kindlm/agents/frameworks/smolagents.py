"""smolagents: agents, and what their runs return.

An agent stores its conversation, so each conversation of kindlm has a copy of the agent. The copy
observes its tools, and those of its managed agents: a result of smolagents shows neither their
calls, nor the calls from the code of a `CodeAgent`.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from kindlm.agents.drafts import ReportedCalls
from kindlm.agents.frameworks import as_json, is_a, total
from kindlm.agents.http_request import last_user_text, system_text
from kindlm.agents.reply_parts import compact_json
from kindlm.agents.reply_usage import read_counts
from kindlm.agents.user_code import in_thread
from kindlm.dataclass import replace
from kindlm.plugins import AgentReply, AgentRequest, Framework, ToolUse, Usage
from kindlm.same_calls import merged_uses
from kindlm.strict_json import as_text

_PACKAGE = "smolagents"
_ANSWER = "final_answer"
_INSIDE_CODE = (
    "the agent calls tools from code, and results of smolagents do not show which. Give kindlm "
    "the agent itself, with the executor `local`"
)
_MANAGED = (
    "a call with a `task` may be a call of a managed agent, and results of smolagents do not show "
    "which tools it called. Give kindlm the agent itself"
)
_LIMIT = "the agent reached its step limit (`max_steps`)"


class Smolagents(Framework):
    """Talks to agents, and reads results and the steps of streamed runs."""

    takes_system: ClassVar[bool] = True

    def __init__(self) -> None:
        self._own: Any = None
        self._seen = ReportedCalls()

    def is_agent(self, value: Any) -> bool:
        return is_a(value, _PACKAGE, "MultiStepAgent")

    async def send(self, agent: Any, request: AgentRequest) -> Any:
        first = self._own is None
        if first:
            self._own = _copy(agent, self)
            system = system_text(request)
            self._own.instructions = "\n\n".join(filter(None, [agent.instructions, system]))
        self._seen = ReportedCalls()
        text = last_user_text(request)
        try:
            return await in_thread(
                lambda: self._own.run(text, reset=first, return_full_result=True)
            )
        except asyncio.CancelledError:
            self._own.interrupt()  # nothing can end the thread, but the agent stops after its step
            raise

    async def read(self, result: Any, _sent: str) -> AgentReply | None:
        if self._own is not None:
            return _of_run(self._own, result, self._seen.uses)
        if is_a(result, _PACKAGE, "RunResult"):
            return _of_result(result)
        if isinstance(result, list) and result and is_a(result[-1], _PACKAGE, "FinalAnswerStep"):
            # smolagents yields the last allowed step twice.
            steps = {
                id(it): it for it in result if is_a(it, _PACKAGE, "ActionStep", "PlanningStep")
            }
            return _reply([step.dict() for step in steps.values()], result[-1].output)
        return None

    def watch(self, name: str, arguments: Any) -> Any:
        """Record the start of a tool call; returns the call, which gets its result later."""
        return self._seen.add(name, None, arguments)


class _Watched:
    """Wraps a tool or managed agent to observe its calls."""

    def __init__(self, tool: Any, watcher: Smolagents) -> None:
        self._tool = tool
        self._watcher = watcher

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tool, name)

    def __call__(self, *values: Any, **named: Any) -> Any:
        arguments = {key: value for key, value in named.items() if key != "sanitize_inputs_outputs"}
        arguments |= dict(zip(self._tool.inputs, values, strict=False))
        call = self._watcher.watch(self._tool.name, as_json(arguments))
        try:
            result = self._tool(*values, **named)
        except Exception as error:
            call.answer(f"{type(error).__name__}: {error}", failed=True)
            raise
        call.answer(as_json(result))
        return result


def _copy(agent: Any, watcher: Smolagents) -> Any:
    """Return a copy of an agent with a new memory and observed tools.

    A remote executor gets its tools as source text, which cannot be observed.
    """
    own = copy.copy(agent)
    own.memory = type(agent.memory)(agent.system_prompt)
    own.state = dict(agent.state)
    managed = {name: _copy(each, watcher) for name, each in agent.managed_agents.items()}
    own.managed_agents = {name: _Watched(each, watcher) for name, each in managed.items()}
    if not _runs_elsewhere(agent):
        own.tools = {
            name: tool if name == _ANSWER else _Watched(tool, watcher)
            for name, tool in agent.tools.items()
        }
    if hasattr(agent, "python_executor"):
        own.python_executor = own.create_python_executor()
    return own


def _runs_elsewhere(agent: Any) -> bool:
    return getattr(agent, "executor_type", "local") != "local"


def _hides(agent: Any) -> bool:
    return _runs_elsewhere(agent) or any(map(_hides, agent.managed_agents.values()))


def _of_run(agent: Any, result: Any, seen: Sequence[ToolUse]) -> AgentReply:
    reply = _of_result(result)
    # A failed call to an unknown tool or with bad arguments is only in a step.
    failed = [step for step in result.steps if step.get("error")]
    uses = merged_uses(seen, _calls(_new(failed)).uses)
    return replace(
        reply,
        tool_uses=tuple(uses),
        # Managed agents count their own tokens.
        usage=Usage() if agent.managed_agents else reply.usage,
        model=getattr(agent.model, "model_id", None),
        unseen=_INSIDE_CODE if _hides(agent) else None,
    )


def _of_result(result: Any) -> AgentReply:
    reply = _reply(_new(result.steps), result.output)
    return replace(reply, warnings=(_LIMIT,)) if result.state == "max_steps_error" else reply


def _new(steps: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the steps after the last task."""
    tasks = [index for index, step in enumerate(steps) if "task" in step]
    return list(steps[tasks[-1] + 1 if tasks else 0 :])


def _reply(steps: Sequence[Mapping[str, Any]], output: Any) -> AgentReply:
    counts = [step["token_usage"] or {} for step in steps if "token_usage" in step]
    uses, unseen = _calls(steps).uses, None
    if any(step.get("code_action") is not None for step in steps):
        unseen = _INSIDE_CODE
    elif any("task" in use.call.arguments for use in uses):
        unseen = _MANAGED
    # The model's input in a step contains all steps before it.
    short = [
        {key: value for key, value in step.items() if key != "model_input_messages"}
        for step in steps
    ]
    return AgentReply(
        text=as_text(as_json(output)),
        raw=compact_json(list(map(as_json, short))),
        tool_uses=uses,
        usage=total([read_counts(each) for each in counts]),
        # A function may leave out the steps of a streamed run.
        reports_tools=True if steps else None,
        unseen=unseen,
    )


def _calls(steps: Sequence[Mapping[str, Any]]) -> ReportedCalls:
    """Return the calls of steps. A step has one result for all its calls together."""
    calls = ReportedCalls()
    for step in steps:
        of_step = list(_calls_of_step(step))
        for raw in of_step:
            call = calls.add(raw["function"]["name"], raw["id"], raw["function"]["arguments"])
            if step["error"]:
                call.answer(step["error"].get("message"), failed=True)
            elif len(of_step) == 1:
                call.answer(step["observations"])
    return calls


def _calls_of_step(step: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the calls of a step; those of a failed step are only in the model's message.

    Neither the final answer nor the code of a `CodeAgent` is a call.
    """
    if step.get("code_action") is None and "error" in step:
        message = step["model_output_message"] or {}
        for call in step["tool_calls"] or message.get("tool_calls") or ():
            if call["function"]["name"] != _ANSWER:
                yield call
