"""Making clients: what is looked up, what is missing, what the environment may say."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from kindlm import packages, providers
from kindlm.errors import Err, ErrorCode, Ok
from kindlm.plugins import ModelClient, Provider
from kindlm.providers import provider_registry
from kindlm.providers.provider_registry import make_client
from kindlm.suite import ProviderSettings


def error_of(settings: ProviderSettings, **environ: str):
    made = make_client(settings, environ=environ)
    assert isinstance(made, Err)
    return made.error


@pytest.mark.parametrize(
    ("type_", "variable"), [("openai", "OPENAI_API_KEY"), ("anthropic", "ANTHROPIC_API_KEY")]
)
@pytest.mark.parametrize("value", [None, "  \n"])
def test_a_missing_key_is_reported_before_any_call(type_, variable, value):
    environ = {} if value is None else {variable: value}
    error = error_of(ProviderSettings(type_, type_), **environ)
    assert error.code is ErrorCode.PROVIDER_AUTH_ERROR
    assert error.hint == f"Set {variable} in your environment or .env file"
    assert not error.details.get("retryable")


def test_the_named_variable_is_the_one_that_counts():
    settings = ProviderSettings("openai", "openai", api_key_env="MY_KEY")
    assert "MY_KEY" in (error_of(settings, OPENAI_API_KEY="sk-x").hint or "")


@pytest.mark.parametrize("key", ["sk-ключ", "sk\x00-1", "sk-1\nX-Evil: 1"])
def test_a_key_that_no_header_can_carry_is_not_shown(key):
    error = error_of(ProviderSettings("openai", "openai"), OPENAI_API_KEY=key)
    assert error.code is ErrorCode.PROVIDER_AUTH_ERROR
    assert key not in repr(error)
    assert "OPENAI_API_KEY" in error.message


def test_a_configured_endpoint_does_not_hear_an_id_of_the_environment(monkeypatch):
    monkeypatch.setenv("OPENAI_ORG_ID", "org-é")
    settings = ProviderSettings("mine", "openai", None, "http://127.0.0.1:9/v1")
    assert isinstance(make_client(settings, environ={}), Ok)


def test_a_module_without_a_provider_is_named(tmp_path, monkeypatch):
    (tmp_path / "empty_provider.py").write_text("class Empty: pass\n")
    monkeypatch.setattr(providers, "__path__", [*providers.__path__, str(tmp_path)])
    monkeypatch.setattr(packages, "own_names", packages.own_names.__wrapped__)
    said = "kindlm.providers.empty_provider defines no subclass of kindlm.plugins.Provider"
    with pytest.raises(TypeError, match=said):
        packages.own(Provider, "empty")


def test_an_unknown_type_is_not_found():
    error = error_of(ProviderSettings("mine", "opnai"))
    assert error.code is ErrorCode.PROVIDER_NOT_FOUND
    assert "'opnai'" in error.message
    assert "openai" in (error.hint or "")


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://x/v1", "http://[bad", "http://xn--/"])
def test_a_base_url_must_be_one(url):
    error = error_of(ProviderSettings("mine", "openai", base_url=url))
    assert error.code is ErrorCode.CONFIG_VALIDATION_ERROR


@pytest.mark.parametrize(
    ("type_", "variable", "address"),
    [
        ("openai", "OPENAI_BASE_URL", "http://["),
        ("openai", "OPENAI_BASE_URL", "foo"),
        ("anthropic", "ANTHROPIC_BASE_URL", "http://x:99999"),
        ("ollama", "OLLAMA_HOST", "http://["),
        ("ollama", "OLLAMA_HOST", "ht!tp://x"),
    ],
)
def test_an_address_in_the_environment_must_be_one(type_, variable, address):
    settings = ProviderSettings(type_, type_)
    error = error_of(settings, OPENAI_API_KEY="k", ANTHROPIC_API_KEY="k", **{variable: address})
    assert error.code is ErrorCode.CONFIG_VALIDATION_ERROR
    assert error.message == f"{variable} is not an http or https URL"


def test_an_address_has_no_user_beside_a_key():
    url = "http://me:0123456789@127.0.0.1/v1"
    for settings, variable in (
        (ProviderSettings("mine", "openai", "KEY", url), "providers.mine.baseUrl"),
        (ProviderSettings("mine", "openai", "KEY"), "OPENAI_BASE_URL"),
    ):
        error = error_of(settings, KEY="sk-1", OPENAI_BASE_URL=url)
        assert error.code is ErrorCode.CONFIG_VALIDATION_ERROR
        assert error.message == f"{variable} has a user or a password, beside the key in KEY"


def test_nothing_heavy_is_imported_before_a_client_is_made():
    program = (
        "import sys, kindlm.providers.provider_registry, kindlm.pricing\n"
        "heavy = {'openai', 'anthropic', 'httpx2', 'aiohttp', 'genai_prices'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def heard(settings: ProviderSettings, environ: dict[str, str], peer, answer, make_request):
    """Return the headers and the path of one call."""

    async def run():
        async with peer(answer) as server:
            there = {name: value.replace("URL", server.url) for name, value in environ.items()}
            base_url = settings.base_url and server.url + settings.base_url
            mine = ProviderSettings(
                settings.name, settings.type, settings.api_key_env, base_url, settings.organization
            )
            made = make_client(mine, environ=there)
            assert isinstance(made, Ok)
            await made.value.complete(make_request())
            await made.value.aclose()
            return server.received[0]

    return asyncio.run(run())


AMBIENT = {
    "OPENAI_ORG_ID": "org-ambient",
    "OPENAI_PROJECT_ID": "proj-ambient",
    "OPENAI_BASE_URL": "http://127.0.0.1:9/ambient",
    "OPENAI_ADMIN_KEY": "sk-admin-ambient",
    "OPENAI_CUSTOM_HEADERS": "authorization: Bearer ambient\nX-Ambient: 1",
    "ANTHROPIC_BASE_URL": "http://127.0.0.1:9/ambient",
    "ANTHROPIC_AUTH_TOKEN": "ambient-token",
    "ANTHROPIC_API_KEY": "sk-ambient",
    "ANTHROPIC_CUSTOM_HEADERS": "Authorization: Bearer ambient\nX-Ambient: 1\nx-api-key: ambient",
}


@pytest.fixture
def ambient(monkeypatch):
    for name, value in AMBIENT.items():
        monkeypatch.setenv(name, value)


def test_a_configured_openai_endpoint_hears_nothing_of_the_environment(
    ambient, peer, http, api, make_request
):
    variable = "MY_KEY"
    settings = ProviderSettings("mine", api.type, variable, api.base_path or "/", "org-mine")
    got = heard(settings, {variable: "sk-mine"}, peer, http(200, api.reply), make_request)
    assert got.path == api.path
    assert got.headers["authorization"] == "Bearer sk-mine"
    assert "ambient" not in str(got.headers)
    if api.type == "openai":
        assert got.headers["openai-organization"] == "org-mine"
    else:
        assert got.headers["x-api-key"] == "sk-mine"


def test_an_endpoint_without_a_key_gets_none(ambient, peer, http, api, make_request):
    settings = ProviderSettings("mine", "openai", None, "/v1")
    got = heard(settings, {}, peer, http(200, api.reply), make_request)
    assert "authorization" not in got.headers
    assert "openai-organization" not in got.headers


def test_without_a_base_url_the_gateway_of_the_environment_is_used(peer, http, api, make_request):
    prefix = api.type.upper()
    environ = {f"{prefix}_BASE_URL": f"URL{api.base_path}", api.variable: "sk-mine"}
    settings = ProviderSettings(api.type, api.type)
    got = heard(settings, environ, peer, http(200, api.reply), make_request)
    assert got.path == api.path


def test_a_client_of_a_package_that_never_closes_is_given_up(monkeypatch, caplog):
    class Clinging(ModelClient):
        async def complete(self, request):
            raise NotImplementedError

        async def aclose(self):
            await asyncio.Event().wait()

    monkeypatch.setattr(provider_registry, "_CLOSE_S", 0.01)
    client = provider_registry._ClientOfPackage("acme", Clinging())
    asyncio.run(asyncio.wait_for(client.aclose(), 5))
    assert "acme could not be closed" in caplog.text
