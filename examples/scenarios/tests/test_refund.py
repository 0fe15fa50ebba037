"""An angry customer: the conversation goes on as the agent answers."""

from kindlm import Persona, Trial, scenario

karen = Persona(role="customer", tone="furious", backstory="order 4 days late, birthday present")


@scenario("angry customer refund request", tags={"refund"})
async def test_angry_customer(t: Trial) -> None:
    r1 = await t.agent.send(karen.says("Where is my order? I want a refund."))
    t.check(r1).not_contains("calm down").tool_called("lookup_order").latency(max_ms=5000)
    t.sentiment(r1, "empathetic")
    if r1.mentions("refund"):
        r2 = await t.agent.send(karen.says("Fine, but I want it processed TODAY."))
        t.judge(r2, "Did the agent set realistic expectations?", threshold=3, scale=5)
