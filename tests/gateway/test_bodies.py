"""The one change to the bytes of answers: the tokens that the gateway asked for are taken out."""

from __future__ import annotations

import pytest

from kindlm.gateway.bodies import WithoutUsage

SAID = b'data: {"choices":[{"delta":{"content":"Hi"}}]}'
TOKENS = b'data: {"choices":[],"usage":{"prompt_tokens":1}}'


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
def test_tokens_are_taken_out_wherever_chunks_end(end):
    stream = end.join([SAID, TOKENS, b"data: [DONE]", b""])
    for at in range(len(stream)):
        without = WithoutUsage()
        passed = without.pass_on(stream[:at]) + without.pass_on(stream[at:]) + without.rest()
        assert passed == end.join([SAID, b"data: [DONE]", b""])


def test_an_event_without_end_passes_while_it_comes():
    without = WithoutUsage()
    chunk = b"data: " + b"x" * 60_000
    assert [len(without.pass_on(chunk)) for _ in range(4)] == [0, 2 * len(chunk)] * 2
    assert without.pass_on(b"\n\n" + TOKENS + b"\n\n" + SAID) == b"\n\n"
    assert without.rest() == SAID
