"""`kindlm validate`: all problems at once, for people and for editors; `kindlm schema`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

SUITE = """\
kindlm: 1
project: shop
suite: { name: support }
providers:
  fake: { type: scripted, replies: [{ text: hello }] }
models:
  - { id: agent, provider: fake, model: m }
prompts:
  ask: { user: "{{message}}" }
tests:
  - name: greets
    prompt: ask
    vars: { message: hi }
    expect: { output: { contains: [hello] } }
"""


def write(path: Path, text: str = SUITE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def test_kindlm_yaml_is_the_default(kindlm: Any, here: Path) -> None:
    write(here / "kindlm.yaml")
    outcome = kindlm("validate")
    assert (outcome.code, outcome.out) == (0, "1 file, 1 test: no problems\n")


def test_a_folder_for_documents_outside_the_project_is_an_error(kindlm: Any, here: Path) -> None:
    write(here / "kindlm.yaml", f"{SUITE}compliance: {{ enabled: true, outputDir: ../evidence }}\n")
    outcome = kindlm("validate")
    assert (outcome.code, outcome.out) == (1, "1 file, 1 test: 1 error\n")
    assert "compliance.outputDir of kindlm.yaml is outside the project" in outcome.err


def test_one_secret_that_is_too_short_is_one(
    kindlm: Any, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "abc")
    write(here / "kindlm.yaml", SUITE.replace("{{message}}", "{{message}} {{env.SHOP_TOKEN}}"))
    assert "The value of SHOP_TOKEN is too short to be kept out" in kindlm("validate").err


BROKEN = "SHOP_A=1\n\n\nSHOP KEY=my secret\nSHOP_B='open\n"


@pytest.mark.parametrize(
    ("written", "places"),
    [
        (BROKEN.encode(), [".env:4\n", ".env:5\n"]),
        ("SHOP_A=1\n".encode("utf-16"), ["is not UTF-8"]),
        ("SHOP_A=1\n".encode("utf-16-le"), ["is not UTF-8"]),
    ],
)
@pytest.mark.parametrize("command", ["validate", "test"])
def test_what_cannot_be_read_of_variables_is_warned_of_once(
    kindlm: Any, here: Path, command: str, written: bytes, places: list[str]
) -> None:
    write(here / "kindlm.yaml")
    (here / ".env").write_bytes(written)
    outcome = kindlm(command)
    assert outcome.code == 0
    assert [outcome.err.count(place) for place in places] == [1] * len(places)
    assert outcome.err.count("! ") == len(places)
    assert "python-dotenv" not in outcome.err
    assert "secret" not in outcome.err + outcome.out


def test_nothing_to_validate_is_an_error(kindlm: Any) -> None:
    outcome = kindlm("validate")
    assert outcome.code == 1
    assert "kindlm init" in outcome.err


def test_what_only_looks_like_tests_is_an_error_where_that_is_asked_for(
    kindlm: Any, here: Path
) -> None:
    write(here / "tests" / "a.yaml")
    write(here / "tests" / "b.yaml", "input: {query: x}\nexpect: {}\n")
    outcome = kindlm("validate", "tests")
    assert (outcome.code, "Ignored: tests/b.yaml" in outcome.err) == (0, True)
    assert "needs `kindlm: 1`" in outcome.err
    outcome = kindlm("validate", "tests", "--strict")
    assert (outcome.code, "'tests/b.yaml' looks like tests" in outcome.err) == (1, True)
    assert "Ignored" not in outcome.err


def test_a_case_with_a_slip_in_its_keys_is_reported_beside_a_good_one(
    kindlm: Any, here: Path
) -> None:
    good = (
        "name: {name}\n{input}: {{query: x}}\nexpected: {{}}\nthresholds: {{min_score: 1}}\n"
        "endpoint: http://127.0.0.1:9/\n"
    )
    write(here / "tests" / "a.yaml", good.format(name="a", input="input"))
    write(here / "tests" / "b.yaml", good.format(name="b", input="inputs"))
    outcome = kindlm("validate", "tests")
    assert outcome.code == 1
    assert 'Did you mean "input"?\n  tests/b.yaml:2:1' in outcome.err


def test_all_problems_of_all_files_are_reported(kindlm: Any, here: Path) -> None:
    write(here / "tests" / "a.yaml", SUITE.replace("contains", "contians"))
    write(here / "tests" / "b.yaml", SUITE.replace("provider: fake", "provider: fkae"))
    write(here / "tests" / "good.yaml", SUITE.replace("support", "other"))
    outcome = kindlm("validate")
    assert outcome.code == 1
    assert "3 files, 3 tests: 2 errors" in outcome.out
    assert "tests/a.yaml:14:25" in outcome.err
    assert "contians" in outcome.err
    assert "fkae" in outcome.err
    assert "^" in outcome.err


def test_warnings_are_reported_and_do_not_fail(kindlm: Any, here: Path) -> None:
    write(here / "kindlm.yaml", SUITE.replace("output: { contains: [hello] }", ""))
    outcome = kindlm("validate")
    assert outcome.code == 0
    assert outcome.err.startswith("! ")
    assert "1 warning" in outcome.out


def test_variables_without_a_value_are_warned_of(
    kindlm: Any, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run needs them, a machine that validates may not have them."""
    serve = "serve: [{ name: x, command: 'run {{env.SHOP_HOME}}', ready: { line: up } }]\n"
    text = SUITE.replace("{{message}}", "{{env.SHOP_USER}} {{serve.x.port}}") + serve
    write(here / "a" / "my.yaml", text)
    monkeypatch.chdir(here / "a")
    for name in ("SHOP_HOME", "SHOP_USER"):
        monkeypatch.delenv(name, raising=False)
    outcome = kindlm("validate", "my.yaml")
    assert (outcome.code, outcome.out) == (0, "1 file, 1 test: 2 warnings\n")
    assert 'SHOP_USER (in test "greets")' in outcome.err
    assert "SHOP_HOME (in serve.x)" in outcome.err
    assert "\n  my.yaml\n" in outcome.err
    found = json.loads(kindlm("validate", "my.yaml", "--format", "json").out)
    assert [each["severity"] for each in found["diagnostics"]] == ["warning"] * 2

    (here / "a" / ".env").write_text("SHOP_HOME=/shop\nSHOP_USER=bo\n", "utf-8")
    assert kindlm("validate", "my.yaml").out == "1 file, 1 test: no problems\n"


def test_a_suite_in_another_encoding_is_reported_its_encoding(kindlm: Any, here: Path) -> None:
    (here / "kindlm.yaml").write_bytes(SUITE.encode("utf-16"))
    outcome = kindlm("validate", "kindlm.yaml")
    assert outcome.code == 1
    assert "UTF-16" in outcome.err


@pytest.mark.parametrize("name", ["docker-compose.yaml", "nowhere.yaml"])
def test_a_file_that_was_named_must_be_a_suite(kindlm: Any, here: Path, name: str) -> None:
    write(here / "docker-compose.yaml", "services: {}\n")
    outcome = kindlm("validate", name)
    assert outcome.code == 1
    assert name in outcome.err


def test_editors_get_json_and_nothing_else(kindlm: Any, here: Path) -> None:
    write(here / "kindlm.yaml", SUITE.replace("contains", "contians"))
    outcome = kindlm("validate", "--format", "json")
    assert (outcome.code, outcome.err) == (1, "")
    found = json.loads(outcome.out)
    assert (found["files"], found["errors"], found["warnings"]) == (1, 1, 0)
    (problem,) = found["diagnostics"]
    assert (problem["file"], problem["line"], problem["column"]) == ("kindlm.yaml", 14, 25)
    assert problem["severity"] == "error"
    assert problem["number"] == 102


def test_the_schema_takes_what_validate_takes(kindlm: Any, here: Path) -> None:
    outcome = kindlm("schema")
    schema = json.loads(outcome.out)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(yaml.safe_load(SUITE))
    assert kindlm("schema", "-o", "new/schema.json").code == 0
    assert json.loads((here / "new" / "schema.json").read_text("utf-8")) == schema


def test_a_secret_in_a_file_is_quoted_nowhere(
    kindlm: Any, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_API_KEY", "kept-apart-4711")
    (here / ".env").write_text("SHOP_TOKEN=beside-the-suite-0815\n", "utf-8")
    (here / "kindlm.yaml").write_text(
        'kindlm: 1\nproject: "kept-apart-4711\nsuite: beside-the-suite-0815\n', "utf-8"
    )
    (here / "other.yaml").write_text(
        "kindlm: 1\nproject: p\nbeside-the-suite-0815: kept-apart-4711\n", "utf-8"
    )
    for arguments in (
        ("validate", "kindlm.yaml", "other.yaml", "--verbose"),
        ("validate", "kindlm.yaml", "other.yaml", "--format", "json"),
        ("test", "kindlm.yaml", "other.yaml"),
        ("test", "kept-apart-4711.yaml"),
    ):
        outcome = kindlm(*arguments)
        assert outcome.code == 1
        for secret in ("kept-apart-4711", "beside-the-suite-0815"):
            assert secret not in outcome.out + outcome.err
    assert "[redacted]" in outcome.err


EMBEDDED = SUITE.replace("[hello] }", "[hello] }, baseline: { drift: { method: embedding } }")


def test_embeddings_without_a_model_are_reported_before_there_is_a_baseline(
    kindlm: Any, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KINDLM_EMBEDDING_MODEL", raising=False)
    write(here / "kindlm.yaml", EMBEDDED)
    line = next(n for n, text in enumerate(EMBEDDED.splitlines(), 1) if "embedding" in text)
    outcome = kindlm("validate")
    assert outcome.code == 0
    assert f"kindlm.yaml:{line}:" in outcome.err
    assert "no provider of the suite supports embeddings" in outcome.err


@pytest.mark.parametrize("by", ["provider", "environment"])
def test_embeddings_with_a_model_are_fine(kindlm: Any, here: Path, by: str) -> None:
    provider = "providers:\n  ollama: {}\n"
    text = EMBEDDED.replace("providers:\n", provider) if by == "provider" else EMBEDDED
    write(here / "kindlm.yaml", text)
    if by == "environment":
        (here / ".env").write_text("KINDLM_EMBEDDING_MODEL=models/small\n", "utf-8")
    outcome = kindlm("validate")
    assert "embed" not in outcome.err


@pytest.mark.parametrize(("value", "warned"), [("s3cr3t", True), ("s3cr3t-and-long", False)])
def test_a_secret_that_is_too_short_to_be_hidden_is_reported(
    kindlm: Any, here: Path, value: str, warned: bool
) -> None:
    write(here / "kindlm.yaml", SUITE.replace("{{message}}", "{{env.SHOP_TOKEN}} {{message}}"))
    (here / ".env").write_text(f"SHOP_TOKEN={value}\n", "utf-8")
    outcome = kindlm("validate")
    assert outcome.code == 0
    assert ("SHOP_TOKEN" in outcome.err) is warned
    assert value not in outcome.err


def test_mistakes_in_kindlm_toml_are_warned_of_without_scenarios(kindlm: Any, here: Path) -> None:
    """Otherwise a misspelt `path` of the history would have no effect, and no one would know."""
    write(here / "kindlm.yaml")
    misspelt = (
        'exit_code = "pytest"\n[store]\npth = "x.db"\n[agent]\nname = "shop"\ntype = "http"\n'
        'url = "http://127.0.0.1:9/"\n'
    )
    write(here / "kindlm.toml", misspelt)
    for command in (("validate",), ("test", "--dry-run")):
        outcome = kindlm(*command)
        assert outcome.code == 0
        assert '! Unknown key "exit_code"\n  Did you mean "exit_codes"?' in outcome.err
        assert '! Unknown key "pth" in store\n  Did you mean "path"?' in outcome.err
    # These tests do not need the agent of scenarios.
    write(here / "kindlm.toml", '[agent]\ntype = "http"\nurl = "${env.NOT_SET_HERE}"\n')
    assert kindlm("validate").err == ""


@pytest.mark.parametrize("key", ["[store]\npath", '[report]\nformats = ["json"]\noutput_dir'])
def test_no_file_has_a_nul_character_in_its_name(kindlm: Any, here: Path, key: str) -> None:
    write(here / "kindlm.yaml")
    write(here / "kindlm.toml", f'{key} = "a\\u0000b"\n')
    outcome = kindlm("test")
    assert outcome.code == 1
    assert "has a NUL character" in outcome.err
    write(here / "kindlm.toml", 'tests = "a\\u0000b"\n')
    assert "tests has a NUL character" in kindlm("validate").err
