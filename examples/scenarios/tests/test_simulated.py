"""A customer who is played by the model of `[llm]`, until they have what they want."""

from kindlm import Persona, Trial, scenario

dana = Persona(
    role="customer",
    name="Dana",
    tone="polite, but firm",
    backstory="Order A-17 was a birthday present, and the birthday is over.",
)


@scenario("a customer is told when the refund arrives", tags={"refund", "simulated"})
async def test_refund_in_the_end(t: Trial) -> None:
    talk = await t.converse(
        dana,
        goal="the refund is under way, and the agent says when the money arrives",
        turns=(1, 5),
        script=["Where is my order A-17?"],
    )
    t.require(talk.goal_reached, "the refund is under way")
    t.check(talk.last).tool_called("issue_refund", {"order_id": "A-17"})
    t.sentiment(talk.last, "empathetic")
