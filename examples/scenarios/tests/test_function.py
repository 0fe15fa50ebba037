"""The agent as a Python function, in a test that is no `async` function."""

from kindlm import SyncTrial, scenario

FUNCTION = {"type": "python", "name": "function", "url": "function:respond", "path": ".."}


@scenario("the function looks an order up", tags={"orders"}, agent=FUNCTION, repeats=5)
def test_looks_up(t: SyncTrial) -> None:
    reply = t.agent.send("Where is my order B-42?")
    t.check(reply).contains("Tuesday").tool_called("lookup_order", {"order_id": "B-42"})
    assert "A-17" not in reply.text
