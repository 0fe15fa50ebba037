"""The agent has to look an order up before it answers."""

from agent import agent

from kindlm import Trial, scenario


@scenario("looks the order up", agent=agent)
async def test_order(t: Trial) -> None:
    reply = await t.agent.send("Where is order A1?")
    t.check(reply).tool_called("lookup_order", {"order_id": "A1"}).contains("shipped")
