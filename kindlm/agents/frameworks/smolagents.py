"""smolagents: agents, and what their runs return.

An agent keeps its conversation in itself. So each conversation has a copy of it, which goes on from
what was said. The copy watches its tools, and those of the agents that it manages: a result of
smolagents shows neither what these called, nor what the code of a `CodeAgent` did.
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
from kindlm.agents.reply_reading import read_counts
from kindlm.agents.user_code import in_thread
from kindlm.dataclass import dataclass, replace
from kindlm.plugins import AgentReply, AgentRequest, Framework, ToolUse, Usage
from kindlm.same_calls import uses_together, with_ids
from kindlm.strict_json import as_text

_PACKAGE = "smolagents"
_ANSWER = "final_answer"
_INSIDE_CODE = (
    "the agent calls tools from code, and results of smolagents do not show which. Give kindlm "
    "the agent itself, with the executor `local`"
)
_MANAGED = (
    "a call with a `task` may be of a managed agent, and results of smolagents do not show which "
    "tools it called. Give kindlm the agent itself"
)
_LIMIT = "the agent reached its step limit (`max_steps`)"


@dataclass(frozen=True, slots=True)
class _Run:
    """What a copy of an agent did for one message."""

    agent: Any
    result: Any
    seen: tuple[ToolUse, ...]


class Smolagents(Framework):
    """Talks to agents, and reads results and the steps of streamed runs."""

    takes_system: ClassVar[bool] = True

    def __init__(self) -> None:
        self._own: Any = None
        self._seen = ReportedCalls()

    def is_agent(self, value: Any) -> bool:
        """Tell whether it is an agent."""
        return is_a(value, _PACKAGE, "MultiStepAgent")

    async def send(self, agent: Any, request: AgentRequest) -> Any:
        """Run the copy of the agent in a thread; return what it did."""
        first = self._own is None
        if first:
            self._own = _copy(agent, self)
            system = system_text(request)
            self._own.instructions = "\n\n".join(filter(None, [agent.instructions, system]))
        self._seen = ReportedCalls()
        text = last_user_text(request)
        try:
            result = await in_thread(
                lambda: self._own.run(text, reset=first, return_full_result=True)
            )
        except asyncio.CancelledError:
            self._own.interrupt()  # a thread cannot be ended; the agent takes no further step
            raise
        return _Run(self._own, result, self._seen.uses_as_reported)

    async def read(self, result: Any, _sent: str) -> AgentReply | None:
        """Return the reply in a run, its result, or a streamed run: what follows the last task."""
        if isinstance(result, _Run):
            return _of_run(result)
        if is_a(result, _PACKAGE, "RunResult"):
            return _of_result(result)
        if isinstance(result, list) and result and is_a(result[-1], _PACKAGE, "FinalAnswerStep"):
            # The last step comes twice if it was the last allowed one.
            steps = {
                id(it): it for it in result if is_a(it, _PACKAGE, "ActionStep", "PlanningStep")
            }
            return _reply([step.dict() for step in steps.values()], result[-1].output)
        return None

    def watch(self, name: str, arguments: Any) -> Any:
        """Record the start of a tool call; return the call, to add its result."""
        return self._seen.add(name, None, arguments)


class _Watched:
    """A tool or managed agent whose calls are observed."""

    def __init__(self, tool: Any, watcher: Smolagents) -> None:
        self._tool = tool
        self._watcher = watcher

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tool, name)

    def __call__(self, *values: Any, **named: Any) -> Any:
        told = {key: value for key, value in named.items() if key != "sanitize_inputs_outputs"}
        told |= dict(zip(self._tool.inputs, values, strict=False))
        made = self._watcher.watch(self._tool.name, as_json(told))
        try:
            result = self._tool(*values, **named)
        except Exception as error:
            made.answer(f"{type(error).__name__}: {error}", failed=True)
            raise
        made.answer(as_json(result))
        return result


def _copy(agent: Any, watcher: Smolagents) -> Any:
    """Return a copy of an agent with its parts, a new memory, and observed tools.

    Tools of code that runs elsewhere are sent there as text, and cannot be observed.
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


def _of_run(run: _Run) -> AgentReply:
    reply = _of_result(run.result)
    # A failed call, of an unknown tool or with bad arguments, is only in a step.
    failed = [step for step in run.result.steps if step.get("error")]
    uses = uses_together(run.seen, _calls(_new(failed)).uses)
    return replace(
        reply,
        tool_uses=with_ids(uses),
        # Managed agents count their own.
        usage=Usage() if run.agent.managed_agents else reply.usage,
        model=getattr(run.agent.model, "model_id", None),
        unseen=_INSIDE_CODE if _hides(run.agent) else None,
    )


def _of_result(result: Any) -> AgentReply:
    reply = _reply(_new(result.steps), result.output)
    return replace(reply, warnings=(_LIMIT,)) if result.state == "max_steps_error" else reply


def _new(steps: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the steps after the last task."""
    tasks = [index for index, step in enumerate(steps) if "task" in step]
    return list(steps[tasks[-1] + 1 if tasks else 0 :])


def _reply(steps: Sequence[Mapping[str, Any]], output: Any) -> AgentReply:
    told = as_json(output)
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
        text=as_text(told),
        raw=compact_json(list(map(as_json, short))),
        tool_uses=uses,
        usage=total([read_counts(each) for each in counts]),
        reports_tools=True,
        unseen=unseen,
    )


def _calls(steps: Sequence[Mapping[str, Any]]) -> ReportedCalls:
    """Return the calls of steps. A step has one result for all its calls together."""
    calls = ReportedCalls()
    for step in steps:
        told = list(_told(step))
        for call in told:
            made = calls.add(call["function"]["name"], call["id"], call["function"]["arguments"])
            if step["error"]:
                made.answer(step["error"].get("message"), failed=True)
            elif len(told) == 1:
                made.answer(step["observations"])
    return calls


def _told(step: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the calls of a step; if it failed, they are only in the model's message.

    Neither the final answer nor the code of a `CodeAgent` is a call.
    """
    if step.get("code_action") is None and "error" in step:
        message = step["model_output_message"] or {}
        for call in step["tool_calls"] or message.get("tool_calls") or ():
            if call["function"]["name"] != _ANSWER:
                yield call
