"""A planted key is nowhere: not in the history, not in its WAL, not in a report or an error."""

from __future__ import annotations

import base64
import json
import sqlite3
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

import pytest
from altering_server import Alter
from checked_server import LoopbackServer

from kindlm.dataclass import replace
from kindlm.testing.http1 import HttpAnswer, HttpRequest


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


PLACES = ("error", "header", "url", "reply")
ENCODED = {
    "plain": lambda key: key,
    "base64": lambda key: base64.b64encode(key.encode()).decode(),
    "percent": lambda key: "".join(f"%{byte:02X}" for byte in key.encode()),
}


def repeating(shown: str) -> Alter:
    """Repeat a key in errors, or in tool calls and texts, as the test that asks is named."""

    def alter(request: HttpRequest, answer: HttpAnswer) -> HttpAnswer:
        place = next(place for place in PLACES if f"order of {place}?".encode() in request.body)
        if place == "reply":
            return replace(answer, body=answer.body.replace(b"A1", shown.encode()))
        url = f"http://127.0.0.1/help?key={quote(shown, safe='%')}"
        messages = {
            "error": f"The request with the key {shown} failed.",
            "header": "The request failed.",
            "url": f"See {url} for this request.",
        }
        headers = {"header": ("x-debug-authorization", shown), "url": ("link", f"<{url}>")}
        return HttpAnswer(
            400,
            json.dumps({"error": {"message": messages[place], "type": "invalid"}}).encode(),
            (*answer.headers, *([headers[place]] if place in headers else [])),
        )

    return alter


@pytest.mark.parametrize("encoding", ENCODED)
def test_a_key_that_the_provider_repeats_is_not_recorded(workspace, server, key, encoding):
    tests = [workspace.test(place, vars={"order": f"of {place}"}) for place in PLACES]
    workspace.suite(server.url, defaults={"retries": 1}, tests=tests)
    # The reader keeps the WAL from being folded into the file, so that both are searched.
    workspace.run("test", "-t", "error", OPENAI_API_KEY="an-innocent-key-for-the-first-run")
    asked = len(server.requests)
    server.alter(repeating(ENCODED[encoding](key)))
    with closing(sqlite3.connect(workspace.database)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM events").fetchone()
        done = workspace.run(
            "test", "--verbose", "--reporter", "terminal", "--reporter", "json=out.json",
            "--reporter", "junit=out.xml", DEBUG="kindlm*",
        )  # fmt: skip
        requests = str([request.body for request in server.requests[asked:]])
        assert all(f"order of {place}?" in requests for place in PLACES)
        assert_clean(workspace, key, done.stdout, done.stderr)
    for number in range(1, len(PLACES) + 1):
        shown = workspace.run("show", "latest", str(number), "--verbose")
        assert shown.returncode == 0
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


@pytest.mark.parametrize("secret", ["messages", "provider", "assistant", "inconclusive"])
def test_a_secret_may_be_a_word_of_kindlms_own(workspace, server, secret):
    workspace.suite(server.url, prompts={"ask": {"user": "{{env.DB_PASSWORD}} {{order}}"}})
    done = workspace.run("test", DB_PASSWORD=secret)
    assert done.returncode == 0, done.stdout + done.stderr
    with closing(sqlite3.connect(workspace.database)) as db:
        query = "SELECT count(*) FROM contents WHERE body LIKE '[redacted] %'"
        assert db.execute(query).fetchone() == (1,)
        query = "SELECT count(*) FROM contents WHERE body LIKE ?"
        assert db.execute(query, (f"%{secret}%",)).fetchone() == (0,)
    for command in (["show", "latest", "1"], ["history", "verify"], ["rescore", "latest"]):
        assert workspace.run(*command, DB_PASSWORD=secret).returncode == 0


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


def test_a_key_that_an_error_message_cuts_off_is_not_recorded(workspace, key):
    encoded = base64.b64encode(key.encode()).decode()
    cuts = range(12, 40, 4)
    rules = [
        {"when": {"user": f"order {cut}?"}, "reply": {"text": "y" * (200 - cut) + encoded}}
        for cut in cuts
    ]
    expect = {"output": {"contains": ["not in there"]}}
    tests = [
        workspace.test(str(cut), vars={"order": str(cut)}, tools=[], expect=expect) for cut in cuts
    ]
    with LoopbackServer({"rules": rules}) as careless:
        workspace.suite(careless.url, tests=tests)
        done = workspace.run("test", "--reporter", "json=out.json")
        assert [request.rule for request in careless.requests].count("none") == 0
    assert len(workspace.query("SELECT * FROM executions WHERE status = 'failed'")) == len(cuts)
    left = [done.stdout, done.stderr, (workspace.root / "out.json").read_text("utf-8")]
    left += [str(row) for row in workspace.query("SELECT body FROM contents")]
    assert not any(encoded[:8] in text for text in left)


TOKEN = "Zq7xKw9vJ4mzQ8ypX2hgV5tnW6kr"


def streamed(kind: str, said: str, size: int) -> tuple[str, str]:
    """Return a stream that says something in pieces of some size, and its media type."""
    pieces = [said[start : start + size] for start in range(0, len(said), size)]

    def call(**function):
        return {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": function}]}}]}

    match kind:
        case "completions":
            events = [{"choices": [{"index": 0, "delta": {"content": one}}]} for one in pieces]
        case "messages":
            delta = {"type": "content_block_delta", "index": 0}
            events = [{**delta, "delta": {"type": "text_delta", "text": one}} for one in pieces]
        case "arguments":
            events = [call(name="look", arguments='{"of":"\\n')]
            events += [call(arguments=one) for one in pieces]
            events += [call(arguments='"}')]
        case "inputs":
            block = {"type": "tool_use", "id": "c1", "name": "look"}
            partial = [{"partial_json": one} for one in ('{"of":"', *pieces, '"}')]
            events = [{"index": 1, "content_block": block}]
            events += [{"index": 1, "delta": delta} for delta in partial]
        case "failed":
            events = [{"text": one} for one in pieces] + [{"error": "no more"}]
        case "lines":
            tokens = [{"type": "token", "data": {"token": one}} for one in pieces]
            return "\n".join(map(json.dumps, tokens)), "application/x-ndjson"
        case "tokens":
            told = [{"token": one, "bytes": [*one.encode()], "logprob": -0.1} for one in pieces]
            choice = {"message": {"content": "Your key"}, "logprobs": {"content": told}}
            return json.dumps({"choices": [{"index": 0, **choice}]}), "application/json"
        case "choices":
            told = [
                [{"index": at, "delta": {"content": text}} for at, text in enumerate(("!", one))]
                for one in pieces
            ]
            events = [{"choices": [{"index": 0, "delta": {"content": "Your key"}}]}]
            events += [{"choices": both} for both in told]
        case "bare" | "cut":
            return "".join(f"data: {one}\n\n" for one in pieces), "text/event-stream"
    frames = "".join(f"data: {json.dumps(one)}\n\n" for one in events)
    return f"{frames}data: [DONE]\n\n", "text/event-stream"


class Streams(BaseHTTPRequestHandler):
    """Tells the token that it is called with, in the way and size that its path names."""

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        kind, size = self.path.strip("/").split("/")
        token = self.headers["authorization"].removeprefix("Bearer ")
        body, media = streamed(kind, f"Your key is {token} indeed", int(size))
        self.send_response(200)
        self.send_header("content-type", media)
        if kind != "cut":
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *args):
        del args


@pytest.fixture
def streams():
    """Serve streams from another thread; return their URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Streams) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{served.server_port}"
        served.shutdown()
        thread.join()


def test_a_key_that_an_agent_streams_in_pieces_is_not_recorded(workspace, streams):
    kinds = ("completions", "messages", "arguments", "inputs", "failed", "bare", "lines", "cut")
    kinds += ("tokens", "choices")
    agents = [
        {
            "id": f"{kind}-{size}",
            "adapter": "streaming" if kind == "lines" else "http",
            "endpoint": f"{streams}/{kind}/{size}",
            "headers": {"Authorization": "Bearer {{env.GIVEN}}"},
            "verbose": True,
        }
        for kind in kinds
        for size in (4, 14)
    ]
    tests = [workspace.test(tools=[], expect={"output": {"contains": ["Your key"]}})]
    workspace.suite(streams, providers={}, models=[], agents=agents, tests=tests)
    done = workspace.run("test", "--verbose", GIVEN=TOKEN, KINDLM_LOG="info")
    shown = workspace.run("show", "latest", "1", "--verbose")
    blobs = [out.encode() for out in (done.stdout, done.stderr, shown.stdout)]
    blobs += [path.read_bytes() for path in workspace.root.rglob("*") if path.is_file()]
    pieces = [TOKEN[start : start + 4].encode() for start in range(0, len(TOKEN), 4)]
    pieces += [b", ".join(b"%d" % code for code in piece) for piece in pieces]
    assert [piece for piece in pieces for blob in blobs if piece in blob] == []
    # The bodies are withheld, and what was read from them is kept.
    raws = [raw for (raw,) in workspace.query("SELECT raw FROM provider_call_log")]
    assert raws == ["[redacted]"] * len(agents)
    kept = [body for (body,) in workspace.query("SELECT body FROM contents")]
    assert "Your key is [redacted] indeed" in kept
    assert b"[redacted]" in blobs[1]
