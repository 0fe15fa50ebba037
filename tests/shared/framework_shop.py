"""An agent of a shop in each framework: the real package, and a stand-in for its model."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from kindlm.agents import make_agent
from kindlm.errors import Err, KindlmError, Ok
from kindlm.ports import AgentReply, AgentRequest
from kindlm.suite import AgentTarget
from kindlm.transcript import Message, Role

_ORDER = {"matches": r"(?P<order>A\d|LOST)"}
SCRIPT = {
    "rules": [
        {
            "when": {"user": _ORDER, "notCalledThisTurn": "lookup_order"},
            "reply": {"toolCalls": [{"name": "lookup_order", "arguments": {"order": "{{order}}"}}]},
        },
        {
            "when": {"user": _ORDER, "said": {"all": ["A1", "A2"]}},
            "reply": {"text": "{{order}} too: {{results.lookup_order.state}}."},
        },
        {
            "when": {"user": _ORDER},
            "reply": {"text": "{{order}} is {{results.lookup_order.state|lost}}."},
        },
        {"reply": {"text": "How can I help?"}},
    ]
}


def lookup_order(order: str) -> dict[str, str]:
    """Return the state of an order."""
    if order == "LOST":
        raise KeyError(order)
    return {"order": order, "state": "shipped"}


def line_of(text: str) -> int:
    """Return the line of this file that holds a text."""
    lines = Path(__file__).read_text("utf-8").splitlines()
    return next(number for number, line in enumerate(lines, start=1) if line.strip() == text)


LOOP = asyncio.Runner()
"""One event loop, as in a run: clients that are kept by frameworks can be used in it alone."""


class Talk:
    """A conversation with an object."""

    def __init__(self, agent: Any, system: str | None = None) -> None:
        self._target = AgentTarget("shop", "python", "", instance=agent)
        self._before = [] if system is None else [Message(Role.SYSTEM, system)]

    _timeout_s = 60.0

    def say(self, *texts: str) -> list[AgentReply]:
        """Send messages one after the other, and return the answers."""
        results = self._say(texts)
        errors = [result.error for result in results if isinstance(result, Err)]
        assert not errors, [(error.message, error.trace) for error in errors]
        return [result.value for result in results if isinstance(result, Ok)]

    def fail(self, text: str, timeout_s: float = 60.0) -> KindlmError:
        """Send a message that is not answered, and return why."""
        self._timeout_s = timeout_s
        (result,) = self._say([text])
        assert isinstance(result, Err), result.value.text
        return result.error

    async def answers(self, *texts: str) -> list[AgentReply]:
        """Say messages in the event loop that runs."""
        return [result.value for result in await self._results(texts) if isinstance(result, Ok)]

    def _say(self, texts: Any) -> list[Any]:
        return LOOP.run(self._results(texts))

    async def _results(self, texts: Any) -> list[Any]:
        made = make_agent(self._target, environ={}, root=Path(__file__).parent)
        assert isinstance(made, Ok), made
        said = list(self._before)
        results = []
        async with made.value as agent:
            for text in texts:
                said.append(Message(Role.USER, text))
                results.append(await agent.send(AgentRequest("c-1", tuple(said), self._timeout_s)))
                if isinstance(results[-1], Ok):
                    said.append(Message(Role.ASSISTANT, results[-1].value.text))
        return results


def check_lookup(reply: AgentReply, order: str, *, has_usage: bool = True) -> None:
    """Check an answer about an order: the call, its result, the tokens."""
    (use,) = reply.tool_uses
    assert (use.call.name, use.call.arguments) == ("lookup_order", {"order": order})
    assert "shipped" in str(use.response), use.response
    assert reply.reports_tools
    assert reply.latency_ms > 0
    if has_usage:
        assert (reply.usage.input_tokens or 0) > 0
        assert (reply.usage.output_tokens or 0) > 0
