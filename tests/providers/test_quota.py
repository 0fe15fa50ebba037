"""What is read of the headers that tell of limits."""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindlm.ports import Quota
from kindlm.providers.quota import quotas

NOW = datetime(2026, 5, 4, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("1s", 1.0), ("6m0s", 360.0), ("20ms", 0.02), ("1h2m3.5s", 3723.5), ("0s", 0.0), ("12", 12.0)],
)
def test_openai_says_how_long_it_takes(written, seconds):
    headers = {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": written,
    }
    (quota,) = quotas(headers, NOW)
    assert (quota.kind, quota.left, quota.limit) == ("requests", 59, 60)
    assert quota.reset_s == pytest.approx(seconds)


def test_anthropic_says_at_what_moment():
    headers = {
        "anthropic-ratelimit-requests-limit": "50",
        "anthropic-ratelimit-requests-remaining": "0",
        "anthropic-ratelimit-requests-reset": "2026-05-04T12:00:30Z",
        "anthropic-ratelimit-output-tokens-limit": "8000",
        "anthropic-ratelimit-output-tokens-remaining": "1000",
        "anthropic-ratelimit-output-tokens-reset": "2026-05-04T11:59:00Z",
    }
    assert quotas(headers, NOW) == (
        Quota("requests", 0, 50, 30.0),
        Quota("tokens", 1000, 8000, 0.0),
    )


def test_the_drafts_fields_are_read():
    headers = {"ratelimit-limit": "100", "ratelimit-remaining": "50", "ratelimit-reset": "7"}
    assert quotas(headers, NOW) == (Quota("requests", 50, 100, 7.0),)


@pytest.mark.parametrize("left", ["-1", "nan", "", "9" * 400, "٣"])
def test_a_remainder_that_is_no_count_is_ignored(left):
    assert quotas({"x-ratelimit-remaining-requests": left}, NOW) == ()


@pytest.mark.parametrize("reset", ["-5s", "inf", "9" * 400, "1s" * 400, "2026-05-04T12:00:30"])
def test_a_reset_that_is_no_time_is_ignored(reset):
    headers = {"x-ratelimit-remaining-requests": "3", "x-ratelimit-reset-requests": reset}
    assert quotas(headers, NOW) == (Quota("requests", 3),)


@pytest.mark.parametrize(("left", "limit"), [("0", "0"), ("9", "3")])
def test_a_limit_that_makes_no_sense_limits_nothing(left, limit):
    headers = {"x-ratelimit-remaining-tokens": left, "x-ratelimit-limit-tokens": limit}
    assert quotas(headers, NOW) == ()


NAMES = [
    "ratelimit",
    *(f"x-ratelimit-{part}-requests" for part in ("remaining", "limit", "reset")),
    *(f"anthropic-ratelimit-tokens-{part}" for part in ("remaining", "limit", "reset")),
]


@given(st.dictionaries(st.sampled_from(NAMES), st.text() | st.integers().map(str)))
def test_whatever_headers_say_quotas_are_counts_and_seconds(headers):
    for quota in quotas(headers, NOW):
        assert quota.left >= 0
        assert quota.reset_s is None or (math.isfinite(quota.reset_s) and quota.reset_s >= 0)


def test_replies_and_refusals_report_quotas(api, talking, http, make_request):
    limits = {"RateLimit-Remaining": "5", "RateLimit-Reset": "30"}

    async def run():
        answers = (http(200, api.reply, headers=limits), http(429, {}, headers=limits))
        async with talking(api, *answers) as (client, _):
            return [await client.complete(make_request()) for _ in answers]

    reply, refusal = asyncio.run(run())
    expected = (Quota("requests", 5, None, 30.0),)
    assert reply.value.quotas == expected
    assert refusal.error.details["quotas"] == expected
