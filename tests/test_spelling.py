"""What failed is told with the keys of the file that the user has."""

from __future__ import annotations

import re

import pytest

from kindlm.agents.agent_failures import Who
from kindlm.errors import ErrorCode, KindlmError
from kindlm.providers.provider_failures import Endpoint, HttpAnswer
from kindlm.spelling import in_words_of, said_in_words_of

WHO = Who("shop")
LLM = Endpoint("openai", "http://127.0.0.1:1", "OPENAI_API_KEY")
GONE = OSError("connection refused")

FAILURES = [
    WHO.timed_out(1),
    WHO.unreachable("http://127.0.0.1:1", GONE, retryable=True),
    WHO.unreadable("no text", "{}"),
    WHO.sent_page("<html>", 200),
    *(WHO.refused(status, {}, "") for status in (302, 401, 404, 408, 429, 500)),
    WHO.misconfigured("its `endpoint` is not an http or https URL", "Add `oneShot: true`"),
    LLM.timed_out(1),
    LLM.unreachable(GONE),
    LLM.sent_too_much(1),
    LLM.unreadable(HttpAnswer(200, {}, ""), "no text"),
    *(LLM.refused(HttpAnswer(status, {}, "")) for status in (302, 401, 404, 408, 429, 500)),
]
OF_KINDLM_YAML = re.compile(r"[a-z]+[A-Z]|`endpoint`|defaults\.|providers\.|kindlm\.yaml|: true")


@pytest.mark.parametrize("front_end", ["scenario", "generation"])
@pytest.mark.parametrize("error", FAILURES, ids=lambda error: error.message)
def test_scenarios_get_messages_about_keys_of_kindlm_toml(
    error: KindlmError, front_end: str
) -> None:
    found = in_words_of(front_end, error)
    assert found is not None
    shown = re.sub(r"[A-Z]\w*AI|EvalView", "", f"{found.hint} {found.message}")
    assert OF_KINDLM_YAML.search(shown) is None
    assert found.hint is None or len(found.hint) > 10


def test_suites_get_messages_about_keys_of_kindlm_yaml() -> None:
    assert [in_words_of("kindlm", error) for error in FAILURES] == FAILURES


def test_a_generation_is_not_reported_of_options_that_it_lacks() -> None:
    told = [in_words_of("generation", error) for error in FAILURES]
    assert not any("--concurrency" in (each.hint or "") for each in told if each)
    hint = "Raise defaults.timeoutMs, or check whether the provider is slow"
    assert said_in_words_of("generation", hint) == "Check whether the provider is slow"


def test_what_others_said_is_quoted_as_it_is() -> None:
    error = KindlmError(ErrorCode.PROVIDER_API_ERROR, "Its output:  set `timeoutMs`")
    assert in_words_of("scenario", error) == error
