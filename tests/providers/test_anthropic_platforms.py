"""Anthropic's models on Bedrock, Vertex and Foundry, by the SDK's own classes."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from typing import Any

import pytest

from kindlm.errors import Err, ErrorCode, Ok
from kindlm.packages import own
from kindlm.plugins import Provider
from kindlm.providers.provider_registry import make_client
from kindlm.recording.secrets import secret_values
from kindlm.suite import ProviderSettings
from kindlm.transcript import FinishReason

if version("anthropic").startswith("0."):
    pytest.skip("its classes for platforms are too old", allow_module_level=True)

MODEL = "anthropic.claude-sonnet-4-5-v1:0"
TOKEN = "ya29.planted-0123456789abcdef"
AWS = {
    "AWS_ACCESS_KEY_ID": "AKIAPLANTED123456",
    "AWS_SECRET_ACCESS_KEY": "planted/secret/0123456789abcdef",
    "AWS_SESSION_TOKEN": "planted-session-0123456789",
}


@pytest.fixture(autouse=True)
def _no_credentials_of_this_machine(monkeypatch, tmp_path) -> None:
    for name in (*AWS, "AWS_PROFILE", "AWS_REGION", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def make(kind: str, base_url: str | None, environ: dict[str, str], key: str | None = None, **keys):
    provider = own(Provider, kind)
    assert provider is not None
    settings = ProviderSettings(kind, kind, key, base_url, options=provider.model_construct(**keys))
    return make_client(settings, environ=environ)


async def ask(made, request):
    assert isinstance(made, Ok), made
    try:
        return await made.value.complete(request)
    finally:
        await made.value.aclose()


def refused(made) -> Any:
    assert isinstance(made, Err)
    return made.error


@pytest.mark.parametrize(
    ("kind", "keys", "key", "path", "version", "sent"),
    [
        (
            "anthropic-bedrock",
            {"region": "eu-west-1"},
            None,
            f"/model/{MODEL}/invoke",
            "bedrock-2023-05-31",
            {"x-amz-security-token": AWS["AWS_SESSION_TOKEN"]},
        ),
        (
            "anthropic-bedrock",
            {"region": "eu-west-1"},
            "KEY",
            f"/model/{MODEL}/invoke",
            "bedrock-2023-05-31",
            {"authorization": f"Bearer {TOKEN}"},
        ),
        (
            "anthropic-vertex",
            {"location": "global", "project": "shop"},
            "KEY",
            f"/projects/shop/locations/global/publishers/anthropic/models/{MODEL}:rawPredict",
            "vertex-2023-10-16",
            {"authorization": f"Bearer {TOKEN}"},
        ),
        (
            "anthropic-foundry",
            {"resource": "shop"},
            "KEY",
            "/v1/messages",
            None,
            {"x-api-key": TOKEN, "anthropic-version": "2023-06-01"},
        ),
    ],
)
def test_each_platform_gets_what_its_documentation_asks_for(
    kind, keys, key, path, version, sent, peer, http, make_request, monkeypatch, tmp_path
):
    pytest.importorskip("boto3")
    # What the SDK reads of the environment is for other servers than that of `baseUrl`.
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "ambient-0123456789")
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Ambient: yes")
    reply = {
        "model": "claude-sonnet-4-5",
        "content": [
            {"type": "text", "text": f"{TOKEN} {AWS['AWS_SESSION_TOKEN']}"},
            {"type": "tool_use", "id": "t1", "name": "lookup", "input": {"id": "A1"}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }

    async def run():
        async with peer(http(200, reply)) as server:
            made = make(kind, server.url, {**AWS, "KEY": TOKEN}, key, **keys)
            return await ask(made, make_request(model=MODEL)), server.received

    result, (received,) = asyncio.run(run())
    assert isinstance(result, Ok), result
    assert result.value.tool_calls[0].arguments == {"id": "A1"}
    assert result.value.finish_reason is FinishReason.TOOL_CALLS
    assert received.path == path
    assert received.headers.items() >= sent.items()
    assert "x-ambient" not in received.headers
    assert received.body.get("anthropic_version") == version
    assert ("model" in received.body) is (kind == "anthropic-foundry")
    assert received.body["temperature"] == 0.2
    if key is None:
        assert received.headers["authorization"].startswith(
            f"AWS4-HMAC-SHA256 Credential={AWS['AWS_ACCESS_KEY_ID']}/"
        )
    # The log knows the keys in variables, but no token of a profile or a service account.
    if kind != "anthropic-foundry":
        assert not [value for value in sent.values() if value.split()[-1] in result.value.raw]
    assert not (tmp_path / "cache").exists()


def test_statuses_have_the_codes_that_retries_need(peer, http, make_request):
    async def run():
        async with peer(http(429, {"message": "Too many"}, {"retry-after": "7"})) as server:
            made = make("anthropic-bedrock", server.url, {"KEY": TOKEN}, "KEY", region="eu-west-1")
            return await ask(made, make_request(model=MODEL)), server.received

    result, received = asyncio.run(run())
    assert refused(result).code is ErrorCode.PROVIDER_RATE_LIMIT
    assert refused(result).details["retry_after"] == 7
    assert len(received) == 1


class Google(BaseHTTPRequestHandler):
    """Google's token endpoint, and Vertex."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/token":
            status = self.server.status  # type: ignore[attr-defined]
            body = {"access_token": TOKEN, "expires_in": 3600, "error": "invalid_grant"}
        else:
            is_allowed = self.headers["authorization"] == f"Bearer {TOKEN}"
            status = 200 if is_allowed and "x-ambient" not in self.headers else 401
            text = f"You sent {self.headers['authorization']}"
            body = {"content": [{"type": "text", "text": text}], "stop_reason": "end_turn"}
        payload = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def google() -> Iterator[Any]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Google) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def service_account(google, tmp_path) -> dict[str, str]:
    pytest.importorskip("google.auth")
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return {
        "type": "service_account",
        "project_id": "shop",
        "private_key_id": "planted-id-0123456789",
        "private_key": key.decode(),
        "client_email": "me@shop.example",
        "token_uri": f"http://127.0.0.1:{google.server_port}/token",
    }


@pytest.mark.parametrize("status", [200, 400])
def test_vertex_takes_a_token_for_the_credentials_that_the_environment_names(
    status, google, service_account, make_request, tmp_path, monkeypatch
):
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Ambient: yes")
    google.status = status
    file = tmp_path / "account.json"
    file.write_text(json.dumps(service_account))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    environ = {
        "GOOGLE_APPLICATION_CREDENTIALS": str(file),
        "ANTHROPIC_VERTEX_BASE_URL": f"http://127.0.0.1:{google.server_port}/v1",
    }
    made = make("anthropic-vertex", None, environ, location="global", project="shop")
    result = asyncio.run(ask(made, make_request(model="claude-sonnet-4-5@20250929")))
    if status == 200:
        assert isinstance(result, Ok), result
        assert result.value.text == "You sent Bearer [redacted]"
        return
    assert refused(result).code is ErrorCode.PROVIDER_AUTH_ERROR
    assert refused(result).details["retryable"] is False
    assert "gcloud auth application-default login" in refused(result).hint


def test_a_file_of_google_that_only_env_names_is_an_error_since_another_account_would_pay():
    environ = {"GOOGLE_APPLICATION_CREDENTIALS": "/keys/shop.json"}
    error = refused(make("anthropic-vertex", None, environ, location="global", project="shop"))
    assert error.code is ErrorCode.PROVIDER_AUTH_ERROR
    assert "GOOGLE_APPLICATION_CREDENTIALS is only in .env" in error.message


def test_the_credentials_in_a_file_of_google_are_secrets(service_account, tmp_path):
    file = tmp_path / "account.json"
    file.write_text(json.dumps(service_account))
    secrets = secret_values({"GOOGLE_APPLICATION_CREDENTIALS": str(file)}, ())
    lines = service_account["private_key"].splitlines()
    assert secrets >= {service_account["private_key"].strip(), service_account["private_key_id"]}
    assert lines[1] in secrets
    assert lines[0] not in secrets
    assert secret_values({"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "none")}, ()) == set()


def test_what_a_platform_lacks_is_named(monkeypatch, make_request):
    pytest.importorskip("boto3")
    pytest.importorskip("google.auth")
    for half in ({}, {"AWS_SECRET_ACCESS_KEY": "x"}):
        aws = make("anthropic-bedrock", None, {"AWS_REGION": "eu-west-1", **half})
        error = refused(asyncio.run(ask(aws, make_request(model=MODEL))))
        assert error.code is ErrorCode.PROVIDER_AUTH_ERROR
        assert "AWS_ACCESS_KEY_ID" in error.hint
    error = refused(make("anthropic-bedrock", None, {"AWS_PROFILE": "nobody"}))
    assert "nobody" in error.message
    empty = {"AWS_PROFILE": "nobody", "AWS_ACCESS_KEY_ID": "", "AWS_REGION": ""}
    assert "nobody" in refused(make("anthropic-bedrock", None, empty)).message
    error = refused(make("anthropic-vertex", None, {"CLOUD_ML_REGION": ""}))
    assert error.message == "The location of the provider anthropic-vertex is missing"
    assert refused(make("anthropic-bedrock", None, AWS)).message == (
        "The region of the provider anthropic-bedrock is missing"
    )
    error = refused(make("anthropic-foundry", None, {"KEY": TOKEN}, "KEY", resource="evil.com/"))
    assert error.hint == (
        "Set providers.anthropic-foundry.resource to the name alone, without https://"
    )
    error = refused(make("anthropic-foundry", None, {}, resource="shop"))
    assert "ANTHROPIC_FOUNDRY_API_KEY" in error.hint
    error = refused(make("anthropic-vertex", None, {}, location="global"))
    assert (
        error.hint == "Set providers.anthropic-vertex.project to the name alone, without https://"
    )
    keys = {"location": "global", "project": "shop"}
    error = refused(make("anthropic-vertex", "http://127.0.0.1:1", {}, **keys))
    assert "providers.anthropic-vertex.apiKeyEnv (api_key_env of [llm]" in error.hint
    monkeypatch.setitem(sys.modules, "boto3", None)
    monkeypatch.setitem(sys.modules, "google.auth.exceptions", None)
    error = refused(make("anthropic-bedrock", None, AWS, region="eu-west-1"))
    assert error.hint == "Install it: pip install 'kindlm[bedrock]'"
    error = refused(make("anthropic-vertex", None, {}, **keys))
    assert error.hint == "Install it: pip install 'kindlm[vertex]'"
