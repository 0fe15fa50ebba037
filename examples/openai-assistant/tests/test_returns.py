"""A customer sends shoes back: two messages, one thread."""

from kindlm import Trial, scenario


@scenario("a refund is computed from what the files say", tags={"returns"}, repeats=4)
async def test_refund(t: Trial) -> None:
    first = await t.agent.send("How long can I send shoes back?")
    t.check(first).contains("30 days").tool_called("file_search")
    second = await t.agent.send("I send 3 pairs of 49.99 back in a parcel. How much do I get?")
    # The thread holds what was found before, so that nothing is searched again.
    t.check(second).contains("145.47").tool_called("code_interpreter")
    t.check(second).tool_not_called("file_search")
