"""`kindlm import-suite` writes a suite that runs, and names what it leaves out."""

from __future__ import annotations

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

CONFIG = """\
prompts: ["{{question}}"]
providers: ["openai:gpt-4o-mini"]
tests:
  - vars: { question: Where is my order? }
    assert:
      - { type: contains, value: "on its way" }
      - type: javascript
        value: output.length < 50
  - vars: { question: Do you like me? }
    assert:
      - { type: javascript, value: "true" }
  - vars: { question: Is it late? }
    assert:
      - { type: not-icontains, value: LATE }
"""
SCRIPTED = """\
providers: { scripted: { replies: { text: "Your order is on its way, and not late." } } }
models: { id: clerk, provider: scripted, model: clerk-1 }
"""

Kindlm = Callable[..., "object"]


def test_an_imported_suite_runs_and_what_is_left_out_is_named(here: Path, kindlm: Kindlm) -> None:
    (here / "promptfooconfig.yaml").write_text(CONFIG)
    imported = kindlm("import-suite", "promptfooconfig.yaml")
    assert imported.code == 0
    assert imported.err.startswith(
        "2 of 3 tests imported into kindlm.yaml; 1 kept with `skip: true`, until you add checks\n"
    )
    left_out = "promptfooconfig.yaml:7, promptfooconfig.yaml:11: the assertion `javascript`. "
    assert left_out in imported.err
    assert imported.err.endswith("Next: kindlm test kindlm.yaml\n")
    suite = here / "kindlm.yaml"
    assert "# promptfooconfig.yaml:7: the assertion `javascript` is left out." in suite.read_text()
    validated = kindlm("validate", "kindlm.yaml")
    assert (validated.code, "has no checks" in validated.out + validated.err) == (0, False)
    # The same answers as a model would give: the first test passes, the last one fails.
    suite.write_text(suite.read_text().replace("models: [openai/gpt-4o-mini]\n", SCRIPTED))
    ran = kindlm("test", "kindlm.yaml")
    assert ran.code == 1
    assert "3 tests on clerk, 1 skipped" in ran.out
    assert "1 of 2 executions passed" in ran.out
    assert 'test 3 on clerk: The answer matches the forbidden pattern "(?i)LATE"' in ran.err


def test_an_eval_on_one_line_is_no_case_of_evalview(here: Path, kindlm: Kindlm) -> None:
    check = {"type": "string_check", "name": "has", "input": "{{sample.output_text}}"}
    said = {"type": "message", "role": "user", "content": "Where is it?"}
    row = {"input": "Where is it?", "expected": "Rome"}
    document = {
        "name": "Places",
        "testing_criteria": [{**check, "operation": "eq", "reference": "{{item.expected}}"}],
        "data_source": {
            "type": "completions",
            "model": "gpt-4o",
            "input_messages": {"type": "template", "template": [said]},
            "source": {"type": "file_content", "content": [{"item": row}]},
        },
    }
    (here / "eval.json").write_text(json.dumps(document))
    imported = kindlm("import-suite", "eval.json")
    assert "1 of 1 test imported into kindlm.yaml" in imported.err
    assert imported.code == 0


class Shop(BaseHTTPRequestHandler):
    """Answers with what it was sent."""

    def do_POST(self) -> None:
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        said = f"{self.headers['X-Team']} heard: {sent['inputs']['q']}"
        answer = json.dumps({"data": [{"answer": said}]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_an_imported_agent_gets_the_same_request_and_is_checked_on_the_same_part(
    here: Path, kindlm: Kindlm, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {
        "prompts": ["Order {{id}}?"],
        "providers": [
            {
                "id": "https",
                "label": "shop",
                "config": {
                    "url": "{{env.SHOP_URL}}/chat",
                    "headers": {"X-Team": "{{ env.SHOP_TEAM }}"},
                    "body": {"inputs": {"q": "{{prompt}}"}},
                    "transformResponse": "json.data[0].answer",
                },
            }
        ],
        "tests": [
            {"vars": {"id": "A1"}, "assert": [{"type": "equals", "value": heard}]}
            for heard in ("red team heard: Order {{id}}?", "Order {{id}}?")
        ],
    }
    (here / "promptfooconfig.yaml").write_text(json.dumps(config))
    assert kindlm("import-suite", "promptfooconfig.yaml").code == 0
    with HTTPServer(("127.0.0.1", 0), Shop) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("SHOP_URL", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("SHOP_TEAM", "red team")
        ran = kindlm("test", "kindlm.yaml")
        server.shutdown()
    assert "1 of 2 executions passed" in ran.out
    assert "test 2 on shop" in ran.out + ran.err


def test_a_suite_is_not_overwritten_without_force(here: Path, kindlm: Kindlm) -> None:
    (here / "promptfooconfig.yaml").write_text(CONFIG)
    (here / "kindlm.yaml").write_text("mine")
    assert "imported into kindlm_2.yaml" in kindlm("import-suite", "promptfooconfig.yaml").err
    assert (here / "kindlm.yaml").read_text() == "mine"
    kindlm("import-suite", "promptfooconfig.yaml", "--force", "--from", "promptfoo")
    assert "kindlm: 1" in (here / "kindlm.yaml").read_text()


@pytest.mark.parametrize("output", ["promptfooconfig.yaml", "link.yaml", "prompt.txt"])
def test_a_suite_that_is_imported_is_not_overwritten(
    here: Path, kindlm: Kindlm, output: str
) -> None:
    (here / "promptfooconfig.yaml").write_text(CONFIG.replace("{{question}}", "file://prompt.txt"))
    (here / "prompt.txt").write_text("{{question}}")
    (here / "link.yaml").symlink_to("promptfooconfig.yaml")
    before = (here / output).read_text()
    refused = kindlm("import-suite", "promptfooconfig.yaml", "-o", output, "--force")
    assert refused.code == 1
    assert f"{output} belongs to the suite that is imported" in refused.err
    assert (here / output).read_text() == before


def test_secrets_and_escapes_of_a_file_are_neither_written_nor_shown(
    here: Path, kindlm: Kindlm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_API_KEY", "sk-12345678-live")
    text = CONFIG.replace("like me", "like sk-12345678-live").replace("javascript", '"\\e[31mx"')
    text += "  - vars: { question: Late? }\n    assert: [{ type: sk-12345678-live }]\n"
    (here / "promptfooconfig.yaml").write_text(text)
    imported = kindlm("import-suite", "promptfooconfig.yaml")
    assert imported.code == 0
    written = (here / "kindlm.yaml").read_text()
    assert "sk-12345678-live" not in written + imported.err
    assert "\x1b" not in written + imported.err


@pytest.mark.parametrize(
    ("name", "text", "options", "said"),
    [
        ("kindlm.yaml", "kindlm: 1\ntests: []\n", [], "is not a suite in the format"),
        ("kindlm.yaml", "kindlm: 1\ntests: []\n", [], "need no import: kindlm test kindlm.yaml"),
        ("a.yaml", "a: 1\n", [], "is not a suite in the format openai-evals or promptfoo"),
        ("a.yaml", "a: 1\n", ["--from", "promptfoo"], "is not a suite in the format promptfoo"),
        ("a.yaml", "a: 1\n", ["--from", "promptfoo"], "another format: --from openai-evals"),
        ("a.yaml", CONFIG, ["--from", "nothing"], "--from openai-evals or promptfoo"),
        ("a.yaml", CONFIG, ["--from", "nothing"], "is not a suite in the format nothing"),
        ("a.yaml", "a: [", [], "A value is missing here"),
        ("a.yaml", CONFIG.partition("tests:")[0], [], "No suite can be made"),
    ],
)
def test_a_file_that_cannot_be_imported_is_an_error(
    name: str, text: str, options: list[str], said: str, here: Path, kindlm: Kindlm
) -> None:
    (here / name).write_text(text)
    before = sorted(here.iterdir())
    outcome = kindlm("import-suite", name, *options)
    assert outcome.code == 1
    assert said in outcome.err
    assert sorted(here.iterdir()) == before


def test_a_folder_is_no_suite_to_import(here: Path, kindlm: Kindlm) -> None:
    (here / "evals").mkdir()
    refused = kindlm("import-suite", "evals")
    assert (refused.code, "kindlm.yaml" in refused.err) == (1, False)
    assert "Name a file in it" in refused.err
