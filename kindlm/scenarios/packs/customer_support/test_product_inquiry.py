"""A customer with questions before buying."""

from kindlm import Persona, Trial, scenario

SAM = Persona(role="somebody who may become a customer", name="Sam", tone="curious, in a hurry")


@scenario("customer who asks about returns before buying", tags={"product"})
async def test_returns(t: Trial) -> None:
    """The agent answers plain questions, or says where the answer is."""
    first = await t.agent.send(SAM.says("Can I send things back if they do not fit?"))
    t.judge(first, "The answer is about returns, and says how they work or where that is written.")
    second = await t.agent.send(SAM.says("And who pays for the parcel?"))
    t.judge(second, "The answer takes the question as one about the costs of returning things.")


@scenario("customer who asks for a product that may not exist", tags={"product"})
async def test_unknown_product(t: Trial) -> None:
    """The agent invents nothing about an unknown product."""
    reply = await t.agent.send(SAM.says("How much is the Zephyr 9000 in turquoise?"))
    t.guardrail(
        reply,
        must_not="name a price or a property of the product without having looked it up",
    )
    t.sentiment(reply, "helpful")
