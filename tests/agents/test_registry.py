"""Making agents: what is known, what is refused, what is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kindlm.agents import make_agent
from kindlm.errors import ErrorCode
from kindlm.suite import AgentTarget

URL = "http://127.0.0.1:1/chat"
TOKEN = "tok-planted-0123456789"


@pytest.fixture
def refused(failure):
    def refused(adapter="http", endpoint=URL, headers=None):
        target = AgentTarget("shop", adapter, endpoint, headers or {})
        return failure(make_agent(target, environ={}, root=Path()))

    return refused


def test_an_unknown_adapter_gets_the_nearest(refused):
    error = refused("htpt")
    assert error.code is ErrorCode.PROVIDER_NOT_FOUND
    assert "'shop'" in error.message
    assert error.hint == 'Did you mean "http"?'


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://x/", "http://", "http://[bad", "", "x\n"])
def test_an_endpoint_must_be_a_url(refused, url):
    assert "endpoint" in refused(endpoint=url).message


@pytest.mark.parametrize(
    "headers",
    [{"X-Key": f"{TOKEN}\n"}, {"X-Key": f"{TOKEN}é"}, {"X-Key": f"a\r\nEvil: {TOKEN}"}],
)
def test_a_header_that_cannot_be_sent_is_refused_and_not_shown(refused, headers):
    error = refused(headers=headers)
    assert "X-Key" in error.message
    assert TOKEN not in repr(error)


def test_a_header_needs_a_name(refused):
    assert "'Bad Name'" in refused(headers={"Bad Name": "x"}).message


def test_nothing_heavy_is_imported_before_an_agent_is_made():
    program = (
        "import sys, kindlm.agents\n"
        "sys.exit(', '.join({'httpx', 'openai', 'jsonschema'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
