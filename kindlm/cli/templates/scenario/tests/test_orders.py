"""Conversations with the agent, and what its answers have to be like.

With the key of the model in kindlm.toml, a judge also decides what no search can find, such as
`t.sentiment(reply, "empathetic")` or `t.judge(reply, "It says what happens next.")`.
"""

from kindlm import Persona, Trial, scenario

customer = Persona(
    role="customer",
    tone="polite",
    backstory="ordered a birthday present",
)


@scenario("where an order is", tags=["orders"])
async def test_status(t: Trial) -> None:
    reply = await t.agent.send(customer.says("Where is my order A-17?"))
    t.check(reply).contains("Tuesday").tool_called("lookup_order", {"order_id": "A-17"})
    t.check(reply).tool_not_called("issue_refund")


@scenario("a refund that takes two messages", tags=["orders", "refund"])
async def test_refund(t: Trial) -> None:
    first = await t.agent.send(customer.says("I want a refund."))
    t.check(first).tool_not_called("issue_refund")
    if first.mentions("which order"):
        second = await t.agent.send(customer.says("It is B-42, and I want my refund."))
        t.check(second).tool_called("issue_refund", {"order_id": "B-42", "amount": 19.5})


@scenario("without an order", tags=["orders"])
async def test_no_order(t: Trial) -> None:
    reply = await t.agent.send(customer.says("Hello! I need help."))
    t.check(reply).matches(r"\S").tool_not_called("lookup_order")
