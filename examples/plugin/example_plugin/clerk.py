"""An agent adapter: `agents: [{ id: desk, adapter: clerk, orders: { A1: delivered } }]`."""

from collections.abc import Mapping
from typing import Self

from kindlm import plugins


class Clerk(plugins.Adapter):
    """Looks orders up in a list. A real adapter would call a service at `target.endpoint`."""

    orders: dict[str, str]
    """The state of each order."""

    def open(self, target: plugins.AgentTarget, environ: Mapping[str, str]) -> plugins.Agent:
        return Conversation(self.orders)


class Conversation(plugins.Agent):
    def __init__(self, orders: Mapping[str, str]) -> None:
        self._orders = orders

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close connections here; there are none."""

    async def send(self, request: plugins.AgentRequest) -> plugins.Result[plugins.AgentReply]:
        order = request.messages[-1].text.rstrip("?").split()[-1]
        call = plugins.ToolCall("1", "look_up", {"order": order})
        state = self._orders.get(order, "unknown")
        use = plugins.ToolUse(call, state, rule="agent")
        text = f"Thank you. {order} is {state}."
        reply = plugins.AgentReply(text, latency_ms=0.1, tool_uses=(use,), reports_tools=True)
        return plugins.Ok(reply)
