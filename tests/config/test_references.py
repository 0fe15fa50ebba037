"""What refers to nothing, and what leads out of the folder."""

# ruff: noqa: E501 - one row of a table is one line
from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kindlm.config import load_suite
from kindlm.config.files import ReferencedFiles
from kindlm.errors import Err, ErrorCode, Ok


def errors(loaded: Any) -> list[tuple[str, str]]:
    found = [item for item in loaded.diagnostics if item.severity == "error"]
    return [(item.path, item.error.code.name) for item in found]


def reasons(loaded: Any) -> list[tuple[str, str]]:
    return [(item.severity, item.error.details["reason"]) for item in loaded.diagnostics]


def test_a_list_of_what_there_is_names_each_once(load: Any, minimal: str) -> None:
    twice = minimal.replace("gpt-4o}]", "gpt-4o}, {id: gpt, provider: openai, model: x}]")
    loaded = load(twice.replace("prompt: ask", "prompt: ask\n    models: [somebody]"))
    hints = [item.error.hint for item in loaded.diagnostics]
    assert "Ids of configured models: gpt" in hints


ESCAPES = ["../secret.json", "sub/../../secret.json", "link.json", "linked/secret.json"]
FORBIDDEN = ["/etc/hostname", "\\Windows\\x", "C:\\x", "C:x", "//server/share", "a\0b"]


@pytest.fixture
def jail(tmp_path: Path) -> Path:
    """A folder with links that lead out of it, to a file that could be read."""
    folder = tmp_path / "project"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "secret.json").write_text("{}")
    (folder / "link.json").symlink_to(tmp_path / "secret.json")
    (folder / "linked").symlink_to(tmp_path)
    (folder / "inside.json").write_text("{}")
    (folder / "alias.json").symlink_to(folder / "inside.json")
    return folder


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("schemaFile", name) for name in ESCAPES + FORBIDDEN),
        *((kind, ESCAPES[0]) for kind in ("argsSchema", "systemFile", "userFile")),
    ],
)
def test_no_reference_leads_out_of_the_folder(
    jail: Path, minimal: str, name: str, kind: str
) -> None:
    quoted = '"' + name.replace("\\", "\\\\").replace("\0", "\\0") + '"'
    places = {
        "schemaFile": ("{contains: [hello]}", f"{{format: json, schemaFile: {quoted}}}"),
        "argsSchema": ("[hello]}", f"[hello]}}, toolCalls: [{{tool: t, argsSchema: {quoted}}}]"),
        "systemFile": ("{user: Hi}", f"{{user: Hi, systemFile: {quoted}}}"),
        "userFile": ("{user: Hi}", f"{{userFile: {quoted}}}"),
    }
    (jail / "kindlm.yaml").write_text(minimal.replace(*places[kind]))
    loaded = load_suite(jail / "kindlm.yaml")
    assert [code for _, code in errors(loaded)] == ["CONFIG_FILE_REF_ERROR"]
    assert loaded.diagnostics[0].path.endswith(kind)


@pytest.mark.parametrize(
    "name", ["inside.json", "./inside.json", "sub/../inside.json", "alias.json"]
)
def test_what_stays_inside_is_read(jail: Path, name: str) -> None:
    assert isinstance(ReferencedFiles(jail).schema(name), Ok)


def test_the_folder_itself_may_be_a_link(jail: Path, tmp_path: Path) -> None:
    (tmp_path / "short").symlink_to(jail)
    assert isinstance(ReferencedFiles(tmp_path / "short").schema("inside.json"), Ok)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (None, ErrorCode.CONFIG_FILE_REF_ERROR),
        (b"{", ErrorCode.SCHEMA_FILE_ERROR),
        (b"", ErrorCode.SCHEMA_FILE_ERROR),
        (b"\xff", ErrorCode.SCHEMA_FILE_ERROR),
        (b"[" * 100_000, ErrorCode.SCHEMA_FILE_ERROR),
        (b"5", ErrorCode.SCHEMA_FILE_ERROR),
        (b'{"type": "objekt"}', ErrorCode.SCHEMA_FILE_ERROR),
        (b'{"minimum": NaN}', ErrorCode.SCHEMA_FILE_ERROR),
        (b'{"pattern": "("}', ErrorCode.SCHEMA_FILE_ERROR),
        (b'{"$ref": "#/$defs/no"}', ErrorCode.SCHEMA_FILE_ERROR),
        (b'{"properties": {"a": {"$ref": "other.json"}}}', ErrorCode.SCHEMA_FILE_ERROR),
        (b'{"$ref": "https://example.com/schema"}', ErrorCode.SCHEMA_FILE_ERROR),
        (b'{"$schema": "https://example.com/mine"}', ErrorCode.SCHEMA_FILE_ERROR),
        (b'{"$schema": 7}', ErrorCode.SCHEMA_FILE_ERROR),
        (b'{"$id": 7}', ErrorCode.SCHEMA_FILE_ERROR),
        (b'{"not": ' * 900 + b"{}" + b"}" * 900, ErrorCode.SCHEMA_FILE_ERROR),
        (b" " * (1024 * 1024 + 1), ErrorCode.CONFIG_VALIDATION_ERROR),
    ],
)
def test_a_file_that_is_no_json_schema(
    tmp_path: Path, content: bytes | None, code: ErrorCode
) -> None:
    if content is not None:
        (tmp_path / "s.json").write_bytes(content)
    found = ReferencedFiles(tmp_path).schema("s.json")
    assert isinstance(found, Err)
    assert found.error.code is code
    assert found.error.hint


DRAFT_7 = """{
    "$schema": "http://json-schema.org/draft-07/schema#",
    "definitions": {"a": {}}, "items": {"$ref": "#/definitions/a"}
}"""


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        "true",
        '\ufeff{"type": "object"}',
        r'{"pattern": "^\\p{L}+$"}',
        '{"$defs": {"a": {"$anchor": "x"}}, "items": {"$ref": "#/$defs/a"}, "not": {"$ref": "#x"}}',
        DRAFT_7,
        '{"$ref": "https://json-schema.org/draft/2020-12/schema"}',
        '{"properties": {"$ref": {"type": "string"}}}',
        '{"const": {"$ref": "nowhere"}}',
    ],
)
def test_a_file_that_is_one(tmp_path: Path, content: str) -> None:
    (tmp_path / "s.json").write_text(content, encoding="utf-8")
    assert isinstance(ReferencedFiles(tmp_path).schema("s.json"), Ok)


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    files = ReferencedFiles(tmp_path)
    for name in ("pipe", "folder", "."):
        found = files.text(name)
        assert isinstance(found, Err)
        assert found.error.code is ErrorCode.CONFIG_FILE_REF_ERROR


def test_a_prompt_file_is_text(load: Any, minimal: str, tmp_path: Path) -> None:
    text = minimal.replace("{user: Hi}", "{userFile: user.md}")
    (tmp_path / "user.md").write_bytes(b"\xef\xbb\xbfHi {{name}}")
    assert reasons(load(text)) == [("error", "missing_variables")]
    (tmp_path / "user.md").write_bytes(b"Hi \xff")
    assert errors(load(text)) == [("prompts.ask.userFile", "CONFIG_FILE_REF_ERROR")]


@pytest.mark.parametrize(
    ("change", "path", "code"),
    [
        (("prompt: ask", "prompt: aks"), "tests[0].prompt", 102),
        (("prompt: ask", "prompt: ask\n    models: [no]"), "tests[0].models[0]", 102),
        (("prompt: ask", "prompt: ask\n    models: [gpt, gpt]"), "tests[0].models[1]", 102),
        (("provider: openai", "provider: scripted"), "models[0].provider", 102),
        (("provider: openai", "provider: acme"), "models[0].provider", 200),
        (("{openai:", "{acme: {}, openai:"), "providers.acme", 200),
        (("{openai:", "{acme: {type: openai}, openai:"), "providers.acme.baseUrl", 102),
        (("{openai:", "{anthropic: {}, openai:"), "providers.anthropic.apiKeyEnv", 102),
        (("{openai:", "{fake: {type: scripted}, openai:"), "providers.fake.replies", 102),
        (("{openai: {", "{openai: {type: ollama, "), "providers.openai.type", 102),
        (("{openai: {", "{openai: {replies: [{text: a}], "), "providers.openai.replies", 102),
        (("gpt-4o}", "gpt-4o, role: judge}"), "models", 102),
        (("[hello]}", "[hello]}, judge: [{criteria: a, model: no}]"), "tests[0].expect.judge[0].model", 102),
        (("tests:", "defaults: {judgeModel: no}\ntests:"), "defaults.judgeModel", 102),
        (("{user: Hi}", "{user: '{{a}} {{b}} {{a}}'}"), "tests[0].prompt", 102),
        (("{user: Hi}", "{user: '{{serve.x.port}}'}"), "prompts.ask.user", 102),
        (("{user: Hi}", "{user: '{{env.A.B}}'}"), "prompts.ask.user", 102),
        (("{user: Hi}", "{user: Hi, userFile: x}"), "prompts.ask.userFile", 102),
        (("{user: Hi}", "{system: Hi}"), "tests[0].prompt", 102),
        (("prompt: ask", "prompt: ask\n    vars: {env.HOME: x}"), "tests[0].vars.env.HOME", 102),
        (("prompt: ask", "prompt: ask\n    tools: [{name: a}, {name: a}]"), "tests[0].tools[1].name", 102),
        (
            ("prompt: ask", "prompt: ask\n    tools: [{name: a, parameters: {type: x}}]"),
            "tests[0].tools[0].parameters",
            102,
        ),
        (("KEY}", "KEY, baseUrl: 'http://{{name}}'}"), "providers.openai.baseUrl", 102),
    ],
)  # fmt: skip
def test_what_refers_to_nothing(
    load: Any, minimal: str, change: tuple[str, str], path: str, code: int
) -> None:
    assert change[0] in minimal
    loaded = load(minimal.replace(*change))
    found = [(item.path, item.error.code.value) for item in loaded.diagnostics]
    assert (path, code) in found
    assert loaded.suite is None
    assert {at for at, _ in found} == {path}


def test_a_service_knows_the_ports_of_those_before_it(load: Any, minimal: str) -> None:
    text = minimal + (
        "serve:\n"
        "  - {name: a, command: 'x {{serve.b.port}}'}\n"
        "  - {name: b, command: 'x {{serve.a.port}} {{serve.b.port}}'}\n"
    )
    assert errors(load(text)) == [("serve[0].command", "CONFIG_VALIDATION_ERROR")]


def test_all_missing_variables_are_named_together(load: Any, minimal: str) -> None:
    text = minimal.replace("{user: Hi}", "{system: '{{b}}', user: '{{a}} {{b}} {{env.X}}'}")
    [found] = load(text).diagnostics
    assert sorted(found.error.details["missing"]) == ["a", "b"]


@pytest.mark.parametrize(
    ("test", "place", "hint"),
    [
        ("input: 'Refund {{a}}'", "8:12", "Add `a:` to its `vars:`"),
        ("input: 'Refund {{a}}'\n    vars: {b: x}", "9:5", "Add `a:` to its `vars:`"),
        ("prompt: ask", "8:5", "Add `a:` to its `vars:`"),
        ("prompts: [ask]", "8:5", "Add `a:` to its `vars:`"),
        ("command: 'run {{a}}'", "8:5", "Add `a:` to its `vars:`"),
    ],
)
def test_a_missing_variable_is_reported_where_it_is_asked_for(
    load: Any, test: str, place: str, hint: str
) -> None:
    loaded = load(
        """\
kindlm: 1
agent: http://127.0.0.1:1/chat
prompts:
  ask: {user: 'Ask {{a}}'}
gates: {costMaxUsd: 1}
tests:
  - name: greets
    """
        + test
        + """
    expect: {output: {contains: hello}}
"""
    )
    [error] = [d.error for d in loaded.diagnostics if d.severity == "error"]
    assert (f"{error.where.line}:{error.where.column}", error.hint) == (place, hint)


@pytest.mark.parametrize(
    ("change", "path", "reason"),
    [
        (("{output: {contains: [hello]}}", "{}"), "tests[0].expect", "expects_nothing"),
        (("{contains:", "{schemaFile: no.json, contains:"), "tests[0].expect.output.schemaFile", "unused"),
        (("[hello]}", "[hello]}, toolCalls: [{tool: x}]"), "tests[0].expect.toolCalls[0].tool", "unknown_tool"),
    ],
)  # fmt: skip
def test_warnings_let_the_suite_run(
    load: Any, minimal: str, change: tuple[str, str], path: str, reason: str
) -> None:
    loaded = load(minimal.replace(*change))
    assert loaded.suite is not None
    found = [(d.severity, d.path, d.error.details["reason"]) for d in loaded.diagnostics]
    assert found == [("warning", path, reason)]


@pytest.mark.parametrize(
    ("endpoint", "warned"),
    [("", True), (", endpoint: https://api.openai.com/v1", True), (", endpoint: http://127.0.0.1:9", False)],
)  # fmt: skip
def test_the_end_of_the_assistants_api_is_warned_of(
    load: Any, minimal: str, endpoint: str, warned: bool
) -> None:
    agents = f"agents: [{{id: old, adapter: openai-assistants{endpoint}}}]\ntests:"
    text = minimal.replace("tests:", agents).replace(
        "prompt: ask", "prompt: ask\n    models: [old]"
    )
    reasons = [d.error.details["reason"] for d in load(text).diagnostics]
    assert ("ended_upstream" in reasons) == warned


@pytest.mark.parametrize(("base_url", "warned"), [("http://h/v1", False), ("", True)])
def test_an_assistant_is_where_the_environment_says(
    load: Any, minimal: str, tmp_path: Path, base_url: str, warned: bool
) -> None:
    load(minimal.replace("tests:", "agents: [{id: a, adapter: openai-assistants}]\ntests:"))
    loaded = load_suite(tmp_path / "kindlm.yaml", environ={"OPENAI_BASE_URL": base_url})
    reasons = [each.error.details["reason"] for each in loaded.diagnostics]
    assert ("ended_upstream" in reasons) == warned


@pytest.mark.parametrize("adapter", ["http", "openai-assistants"])
def test_an_endpoint_that_cannot_be_taken_apart_is_an_error_of_its_own(
    load: Any, minimal: str, adapter: str
) -> None:
    endpoint = "http://[{{env.IP}}]:8000/chat"
    agents = f"agents: [{{id: a, adapter: {adapter}, endpoint: '{endpoint}'}}]\ntests:"
    assert ("agents[0].endpoint", "CONFIG_VALIDATION_ERROR") in errors(
        load(minimal.replace("tests:", agents))
    )


@pytest.mark.parametrize(("tests", "models"), [(1001, 1), (1, 51)])
def test_more_tests_or_models_than_allowed_are_one_error(
    load: Any, minimal: str, tests: int, models: int
) -> None:
    head, test = minimal.split("tests:\n")
    text = head.replace(
        "[{id: gpt, provider: openai, model: gpt-4o}]",
        "[" + ", ".join(f"{{id: m{i}, provider: openai, model: m}}" for i in range(models)) + "]",
    )
    loaded = load(
        text + "tests:\n" + "".join(test.replace("greets", f"t{i}") for i in range(tests))
    )
    path = "tests" if tests > 1 else "models"
    assert errors(loaded) == [(path, "CONFIG_VALIDATION_ERROR")]
    assert loaded.tests == tests


def test_a_name_that_is_too_long_for_a_file_is_an_error(tmp_path: Path) -> None:
    found = ReferencedFiles(tmp_path).schema("s" * 300 + ".json")
    assert isinstance(found, Err)
    assert found.error.code is ErrorCode.CONFIG_FILE_REF_ERROR
    assert "too long" in found.error.message
    assert found.error.hint


@pytest.mark.parametrize(
    ("upload", "wrong"),
    [
        ("{enabled: true}", True),
        ("{enabled: true, apiUrl: 'https://api.kindlm.com/v1'}", True),
        ("{enabled: true, apiUrl: 'https://h.example/v1'}", False),
        ("{includeArtifacts: true, redactPatterns: [a+]}", False),
    ],
)
def test_an_upload_needs_a_server_of_the_users_own_and_changes_no_identity(
    load: Any, minimal: str, upload: str, wrong: bool
) -> None:
    plain = load(minimal).suite
    loaded = load(minimal.replace("tests:", f"upload: {upload}\ntests:"))
    if wrong:
        assert errors(loaded) == [("upload.enabled", "CONFIG_VALIDATION_ERROR")]
        return
    assert loaded.suite.config_hash == plain.config_hash
    assert loaded.suite.config_text != plain.config_text
    assert loaded.suite.upload != plain.upload
