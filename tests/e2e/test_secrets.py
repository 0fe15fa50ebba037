"""A planted key is nowhere: not in the history, not in its WAL, not in a report or an error."""

from __future__ import annotations

import base64
import sqlite3
from contextlib import closing
from urllib.parse import quote

import pytest

from kindlm.testing import LoopbackServer


def traces(key: str) -> set[bytes]:
    """The forms in which a careless program repeats a key."""
    raw = key.encode()
    shifted = {base64.b64encode(b"x" * pad + raw)[4:-4] for pad in range(3)}
    percent = "".join(f"%{byte:02X}" for byte in raw)
    forms = {raw, base64.b64encode(raw), percent.encode(), raw.hex().encode(), quote(key).encode()}
    return {form.lower() for form in forms | shifted}


def assert_clean(workspace, key, *outputs: str) -> None:
    blobs = [output.encode() for output in outputs]
    blobs += [path.read_bytes() for path in workspace.root.rglob("*") if path.is_file()]
    found = [form for form in traces(key) for blob in blobs if form in blob.lower()]
    assert not found


@pytest.mark.parametrize("where", ["error", "header", "toolArgument", "url", "text"])
@pytest.mark.parametrize("encoding", ["plain", "base64", "percent"])
def test_a_key_that_the_provider_repeats_is_not_recorded(workspace, server, key, where, encoding):
    workspace.suite(server.url, defaults={"retries": 1})
    # The reader keeps the WAL from being folded into the file, so that both are searched.
    workspace.run("test", "-t", "delivered", OPENAI_API_KEY="an-innocent-key-for-the-first-run")
    before = len(server.requests)
    server.use_faults([{"echoKey": where, "encoding": encoding, "next": 2}])
    with closing(sqlite3.connect(workspace.database)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM events").fetchone()
        done = workspace.run(
            "test", "--verbose", "--reporter", "terminal", "--reporter", "json=out.json",
            "--reporter", "junit=out.xml", DEBUG="kindlm*",
        )  # fmt: skip
        assert len(server.requests) > before
        assert any(request.fault for request in server.requests)
        assert_clean(workspace, key, done.stdout, done.stderr)
    shown = workspace.run("show", "latest", "1", "--verbose")
    assert_clean(workspace, key, shown.stdout, shown.stderr)


def test_a_key_in_a_prompt_or_a_variable_is_not_recorded(workspace, server, key):
    test = workspace.test(vars={"order": f"A1, and my password is {key}"})
    workspace.suite(server.url, tests=[test])
    done = workspace.run("test", "--reporter", "json=out.json")
    (workspace.root / "kindlm.yaml").unlink()
    assert done.returncode == 0, done.stderr
    assert_clean(workspace, key, done.stdout, done.stderr)


def test_other_variables_that_name_a_secret_are_known_too(workspace, server):
    secret = "correct-horse-battery-staple"
    workspace.suite(server.url, prompts={"ask": {"user": "{{env.SHOP_PASSWORD}} {{order}}"}})
    done = workspace.run("test", SHOP_PASSWORD=secret)
    assert done.returncode == 0, done.stderr
    assert secret in str(server.requests[0].body)
    assert_clean(workspace, secret, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("variable", "value"),
    [("DB_PASS", "{}"), ("DATABASE_URL", "postgres://me:{}@host/shop")],
)
def test_a_password_that_is_named_otherwise_is_not_recorded(workspace, server, variable, value):
    secret = "pgPassw0rdXYZ"
    workspace.suite(server.url, prompts={"ask": {"user": f"{{{{env.{variable}}}}} {{{{order}}}}"}})
    done = workspace.run("test", **{variable: value.format(secret)})
    assert done.returncode == 0, done.stderr
    assert secret in str(server.requests[0].body)
    assert_clean(workspace, secret, done.stdout, done.stderr)


@pytest.mark.parametrize("variable", ["ANTHROPIC_LOG", "OPENAI_LOG"])
def test_the_logs_of_the_sdks_do_not_show_the_key(workspace, server, key, variable):
    models = [
        {"id": "gpt", "provider": "openai", "model": "gpt-4o"},
        {"id": "claude", "provider": "anthropic", "model": "claude-sonnet-4-5-20250929"},
    ]
    providers = {
        "openai": {"apiKeyEnv": "OPENAI_API_KEY", "baseUrl": f"{server.url}/v1"},
        "anthropic": {"apiKeyEnv": "OPENAI_API_KEY", "baseUrl": server.url},
    }
    workspace.suite(server.url, models=models, providers=providers)
    done = workspace.run("test", **{variable: "debug"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert_clean(workspace, key, done.stdout, done.stderr)


@pytest.mark.parametrize("cut", range(12, 40, 4))
def test_a_key_that_an_error_message_cuts_off_is_not_recorded(workspace, server, key, cut):
    encoded = base64.b64encode(key.encode()).decode()
    script = {"rules": [{"reply": {"text": "y" * (200 - cut) + encoded}}]}
    with LoopbackServer(script) as careless:
        test = workspace.test(tools=[], expect={"output": {"contains": ["not in there"]}})
        workspace.suite(careless.url, tests=[test])
        done = workspace.run("test", "--reporter", "json=out.json")
    left = [done.stdout, done.stderr, (workspace.root / "out.json").read_text("utf-8")]
    left += [str(row) for row in workspace.query("SELECT body FROM contents")]
    assert not any(encoded[:8] in text for text in left)
