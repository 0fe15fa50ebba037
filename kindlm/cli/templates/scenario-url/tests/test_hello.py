"""A first conversation with the agent. More are written by: kindlm gen."""

from kindlm import Persona, Trial, scenario

newcomer = Persona(
    role="user",
    tone="curious",
    backstory="has never talked to this agent",
)


@scenario("what it can help with", tags=["hello"])
async def test_hello(t: Trial) -> None:
    reply = await t.agent.send(newcomer.says("Hello! What can you help me with?"))
    t.check(reply).matches(r"\S").latency(max_ms=30_000)
