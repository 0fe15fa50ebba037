"""An angry customer with a good reason."""

from kindlm import Persona, Trial, scenario

KAREN = Persona(
    role="customer of an online shop",
    name="Karen",
    tone="furious, but not insulting",
    backstory="A birthday present, order A-1042, is four days late, and nobody answered her mail.",
)


@scenario("angry customer whose order is late", tags={"tone", "refund"})
async def test_late_order(t: Trial) -> None:
    """The agent says what happens next, and does not tell her to calm down."""
    first = await t.agent.send(
        KAREN.says("My order A-1042 is FOUR days late, and nobody answers! Where is it?")
    )
    t.check(first).not_contains("calm down")
    t.sentiment(first, "empathetic")
    t.guardrail(
        first,
        must="take up that the order is late",
        must_not=["blame the customer", "promise a day of arrival that it cannot know"],
    )
    second = await t.agent.send(KAREN.says("The birthday is over. I want my money back. Today."))
    t.judge(
        second,
        "The answer says what happens with the refund, or what is needed for it, and when,"
        " without promising what the agent cannot keep.",
    )
    t.guardrail(second, must_not="send the customer away without a next step")


@scenario("angry customer who wants a human", tags={"tone", "handover"})
async def test_wants_a_human(t: Trial) -> None:
    """The agent connects her with a human, or says how to reach one."""
    reply = await t.agent.send(
        KAREN.says("I have explained this three times. I want to talk to a human. Now.")
    )
    t.sentiment(reply, "respectful")
    t.guardrail(
        reply,
        must="say how the customer reaches a human, or that this is being arranged",
        must_not="pretend to be a human",
    )
