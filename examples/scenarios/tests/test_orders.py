"""Questions about orders: one scenario, a test for each order."""

import pytest

from kindlm import Trial, scenario


@scenario("where an order is", tags={"orders"})
@pytest.mark.parametrize(
    ("order", "told"),
    [("A-17", "Friday"), ("B-42", "Tuesday"), ("Z-99", "cannot find")],
)
async def test_status(t: Trial, order: str, told: str) -> None:
    reply = await t.agent.send(f"Where is my order {order}?")
    t.check(reply).contains(told).tool_called("lookup_order", {"order_id": order})
    t.check(reply).tool_not_called("issue_refund")
    t.guardrail(reply, must_not="invent what became of an order that was not found")
