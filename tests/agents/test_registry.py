"""Making agents: what is known, what is refused, what is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kindlm.agents.registry import ADAPTERS, make_agent
from kindlm.errors import ErrorCode
from kindlm.suite import AgentTarget

URL = "http://127.0.0.1:1/chat"
TOKEN = "tok-planted-0123456789"


@pytest.fixture
def refused(failure):
    def refused(adapter="http", endpoint=URL, headers=None, **options):
        target = AgentTarget("shop", adapter, endpoint, headers or {}, options)
        return failure(make_agent(target, environ={}, root=Path()))

    return refused


def test_an_unknown_adapter_gets_the_nearest(refused):
    error = refused("htpt")
    assert error.code is ErrorCode.PROVIDER_NOT_FOUND
    assert "'shop'" in error.message
    assert error.hint == 'Did you mean "http"?'


def test_an_adapter_that_resembles_none_gets_all(refused):
    assert refused("carrier-pigeon").hint == f"Known: {', '.join(ADAPTERS)}"
    assert {"http", "openai-assistants", "python", "streaming", "tapescope"} <= set(ADAPTERS)


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://x/", "http://", "http://[bad", "", "x\n"])
def test_an_endpoint_must_be_a_url(refused, url):
    assert "endpoint" in refused(endpoint=url).message


def test_an_unknown_option_gets_the_nearest(refused):
    error = refused(respnsePath="x")
    assert "'respnsePath'" in error.message
    assert error.hint == 'Did you mean "responsePath"?'


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"request": "mesages"}, "mesages"),
        ({"responsePath": "a..b"}, "responsePath"),
        ({"toolCallsPath": 5}, "toolCallsPath"),
        ({"body": {"x": ["{{mesage}}"]}}, "{{mesage}}"),
    ],
)
def test_an_option_that_means_nothing_is_refused(refused, options, said):
    error = refused(**options)
    assert error.code is ErrorCode.CONFIG_VALIDATION_ERROR
    assert said in error.message


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
        "import sys, kindlm.agents.registry\n"
        "sys.exit(', '.join({'httpx', 'openai', 'jsonschema'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
