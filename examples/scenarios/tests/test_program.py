"""The agent as a program: one process for a conversation, which remembers what was said."""

from kindlm import Trial, scenario

PROGRAM = {"type": "subprocess", "name": "program", "command": "python program.py", "cwd": ".."}


@scenario("the program asks before it refunds", tags={"refund"}, agent=PROGRAM)
async def test_asks_first(t: Trial) -> None:
    first = await t.agent.send("I want a refund of order B-42.")
    t.check(first).tool_called("lookup_order").tool_not_called("issue_refund")
    second = await t.agent.send("Yes, please.")
    t.check(second).tool_called("issue_refund", {"order_id": "B-42", "amount": 19.5})
