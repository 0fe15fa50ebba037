"""Hints name the keys of kindlm.yaml and of kindlm.toml, whichever file the user has."""

from __future__ import annotations

import re

import pytest

from kindlm.agents.agent_failures import Who
from kindlm.errors import KindlmError
from kindlm.providers.provider_failures import Endpoint, HttpAnswer

WHO = Who("shop")
LLM = Endpoint("openai", "http://127.0.0.1:1")
GONE = OSError("connection refused")

FAILURES = [
    WHO.timed_out(1),
    WHO.unreachable("http://127.0.0.1:1", GONE, retryable=True),
    WHO.unreadable("no text", "{}"),
    WHO.sent_page("<html>", 200),
    *(WHO.refused(status, {}, "") for status in (302, 401, 404, 408, 429, 500)),
    LLM.timed_out(1),
    LLM.unreachable(GONE),
    LLM.sent_too_much(1),
    LLM.unreadable(HttpAnswer(200, {}, ""), "no text"),
    *(LLM.refused(HttpAnswer(status, {}, "")) for status in (302, 401, 404, 408, 429, 500)),
]
OF_KINDLM_YAML = re.compile(r"`[a-z]+[A-Z]\w*|(?:providers|defaults)\.\S*[A-Z]")


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: error.message)
def test_a_hint_with_a_key_of_kindlm_yaml_names_that_of_kindlm_toml(error: KindlmError) -> None:
    hint = error.hint or ""
    assert OF_KINDLM_YAML.search(hint) is None or "in kindlm.toml" in hint
