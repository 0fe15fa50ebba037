"""A first test of the agent. Run it with `kindlm test test_agent.py` or `pytest --kindlm`."""

from __MODULE__ import __OBJECT__

from kindlm import Trial, scenario


@scenario("calls the tool that it needs", agent=__OBJECT__)
async def test_agent(t: Trial) -> None:
    reply = await t.agent.send("__MESSAGE__")
    t.check(reply).tool_called("__TOOL__")
