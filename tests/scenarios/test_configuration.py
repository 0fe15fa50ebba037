"""kindlm.toml, and [tool.kindlm] in pyproject.toml."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from pytest_project import run_inside
from scenario_project import Project

from kindlm.cli.app import run
from kindlm.packages import as_written
from kindlm.scenarios.configuration import LlmTable, language_model, load_configuration
from kindlm.scenarios.scenario_suite import Surroundings, load_scenarios

TEST = """
@scenario("x")
async def test_it(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("hi")
"""


def shown(project: Project, capsys: pytest.CaptureFixture[str]) -> str:
    assert project.test(tests=TEST) == 1
    told = capsys.readouterr()
    return told.out + told.err


def test_pyproject_has_the_same_tables(project: Project) -> None:
    (project.root / "kindlm.toml").unlink()
    project.write(
        "pyproject.toml",
        f'[project]\nname = "x"\n[tool.kindlm.agent]\ntype = "http"\nurl = "{project.agent.url}"\n',
    )
    assert project.test(tests=TEST) == 0


BROKEN = '[tool.kindlm.agent]\ntype = "http\n'


@pytest.mark.parametrize(
    ("name", "text"), [("pyproject.toml", BROKEN), ("kindlm.toml", '[agent]\ntype = "http\n')]
)
def test_a_file_that_is_no_toml_is_reported_as_itself(
    project: Project, capsys: pytest.CaptureFixture[str], name: str, text: str
) -> None:
    (project.root / "kindlm.toml").unlink()
    project.write(name, text)
    assert f"{name} cannot be read" in shown(project, capsys)
    assert run(["show"]) == 1
    assert f"{name} cannot be read" in capsys.readouterr().err


def test_a_file_of_others_that_is_no_toml_is_passed_over(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    (project.root / "kindlm.toml").unlink()
    project.write("pyproject.toml", BROKEN.replace("kindlm", "other"))
    assert "There is no agent to test" in shown(project, capsys)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[tool]\nkindlm = 5\n", "`tool.kindlm` must be a table"),
        ("[tool]\nkindlm.eval.retries = \n", "pyproject.toml cannot be read"),
        ("[project\n", "There is no agent to test"),
    ],
)
def test_tables_that_cannot_hold_are_reported(
    project: Project, capsys: pytest.CaptureFixture[str], text: str, told: str
) -> None:
    (project.root / "kindlm.toml").unlink()
    project.write("pyproject.toml", text)
    project.write("tests/test_it.py", "from kindlm import *" + TEST)
    assert run(["test", "tests"]) == 1
    assert told in capsys.readouterr().err


def test_that_one_of_two_configurations_is_ignored_is_reported(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write("tests/test_it.py", "from kindlm import *" + TEST)
    project.write("pyproject.toml", "[tool.kindlm.eval]\nretries = 3\n")
    assert run(["test", "tests"]) == 0
    assert "[tool.kindlm] of pyproject.toml is ignored" in capsys.readouterr().err


SUITE = """kindlm: 1
project: shop
suite: {name: greetings}
providers: {scripted: {type: scripted, replies: [{text: hello}]}}
models: [{id: shop, provider: scripted, model: shop-1}]
prompts: {greeting: {user: hello}}
tests: [{name: greets, prompt: greeting, expect: {output: {contains: [hello]}}}]
"""


@pytest.mark.parametrize("is_configured", [True, False])
def test_scenarios_run_beside_a_suite_where_they_are_configured(
    project: Project, is_configured: bool
) -> None:
    project.write("tests/test_it.py", "from kindlm import *" + TEST)
    project.write("kindlm.yaml", SUITE)
    if not is_configured:
        (project.root / "kindlm.toml").unlink()
    assert run(["test", "--quiet"]) == 0
    beside = {"tests/test_it.py::test_it"} if is_configured else set()
    assert set(project.tests()) == {"greets", *beside}


def test_a_folder_with_tests_that_is_named_has_to_be_there(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write("kindlm.yaml", SUITE)
    assert run(["test", "--quiet"]) == 0
    configuration = (project.root / "kindlm.toml").read_text()
    project.write("kindlm.toml", 'tests = "specs"\n' + configuration)
    assert run(["test", "--quiet"]) == 1
    assert "'specs' does not exist." in capsys.readouterr().err


def test_where_things_are_may_come_from_the_environment(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (project.root / "kindlm.toml").read_text("utf-8").replace('"shop"', '"${env.WHAT}"')
    more = '[report]\nformats = ["json"]\noutput_dir = "${env.OUT}"\n'
    more += '[store]\npath = "${env.OUT}/a.db"\n'
    project.write("kindlm.toml", f'tests = "${{env.OUT}}"\n{text}{more}')
    project.write("out/test_it.py", "from kindlm import *" + TEST)
    assert run(["test"]) == 1
    assert "The environment variable OUT is not set" in capsys.readouterr().err
    monkeypatch.setenv("WHAT", "store")
    project.write(".env", "OUT=out\n")
    assert run(["test", "--quiet"]) == 0
    files = {file.name for file in (project.root / "out").iterdir() if file.is_file()}
    assert {"a.db", "report.json"} <= files
    with closing(sqlite3.connect(project.root / "out/a.db")) as db:
        assert db.execute("SELECT DISTINCT project FROM suites").fetchall() == [("store",)]


def test_all_keys_of_the_file_are_known(project: Project) -> None:
    project.write(
        "kindlm.toml",
        f"""
project = "shop"
tests = "tests"

[agent]
name = "support"
adapter = "http"
endpoint = "{project.agent.url}"
request = "messages"
response_path = "message"
timeout_ms = 5000
headers = {{ "X-Mark" = "${{env.MARK}}" }}

[llm]
provider = "openai"
model = "gpt-4o-mini"
api_key_env = "OPENAI_API_KEY"

[sandbox]
type = "local"

[eval]
parallelism = 2
retries = 0
default_timeout = 60

[diff]
regression_threshold = 0.1

[report]
formats = ["json"]
output_dir = "reports"

[store]
path = ".kindlm/kindlm.db"
""",
    )
    project.write(".env", "MARK=marked-with-care\n")
    project.agent.answer = lambda request: {"message": request["messages"][-1]["content"]}
    assert project.test(tests=TEST) == 0
    assert project.rows("SELECT DISTINCT target FROM executions") == [("support",)]
    [(config,)] = project.rows("SELECT x.body FROM suites s JOIN contents x ON x.ref=s.config_ref")
    assert "marked-with-care" not in config
    assert "{{env.MARK}}" in config


HTTP = '[agent]\ntype = "http"\nurl = "http://127.0.0.1:1/"\n'


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ('[agent]\ntype = "http"\nurl = "http://127.0.0.1:1/"\nurll = "x"\n', 4, "urll"),
        ('[agent]\ntype = "http"\n', 1, "Add `url =`"),
        (f"{HTTP}respons_path = 'x'\n", 4, 'Did you mean "response_path"?'),
        (f"{HTTP}timeout_ms = 5\n", 4, "agent.timeout_ms must be at least 1000"),
        (f"{HTTP}one_shot = true\n", 4, 'Unknown key "one_shot"'),
        ('[agent]\ntype = "http"\nurl = "http://a:secretpass@b/"\n', 3, "${env.NAME}"),
        ('[agent]\ntype = "smoke"\nurl = "http://127.0.0.1:1/"\n', 2, "smoke"),
        ('[agent]\ntype = "http"\nurl = "${env.NO_SUCH_NAME}"\n', 3, "NO_SUCH_NAME"),
        ('[llm]\nprovider = "opnai"\nmodel = "m"\n', 2, 'Did you mean "openai"?'),
        ('[llm]\nprovider = "openai-compatible"\nmodel = "m"\n', 2, "there is no base_url"),
        ("[eval]\nparalelism = 2\n", 2, "parallelism"),
        ('[diff]\nregression_threshold = "x"\n', 2, "number"),
    ],
)
def test_what_is_wrong_is_reported_at_its_place(
    tmp_path: Path, text: str, line: int, told: str
) -> None:
    (tmp_path / "kindlm.toml").write_text(text)
    (found,) = (each.error for each in load_configuration(tmp_path, {}).diagnostics)
    assert told in f"{found.message} {found.hint}"
    assert found.where is not None
    assert found.where.line == line


def test_what_is_wrong_is_shown_with_its_place(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write("kindlm.toml", f"{HTTP}urll = 'x'\n")
    found = shown(project, capsys)
    assert "urll" in found
    assert "kindlm.toml:4" in found


@pytest.mark.parametrize(
    ("base_url", "type_", "key"),
    [(None, "groq", "GROQ_API_KEY"), ("http://127.0.0.1:1/v1", "openai", None)],
)
def test_a_preset_of_providers_judges_unless_it_is_at_another_address(
    base_url: str | None, type_: str, key: str | None
) -> None:
    providers, _ = language_model(LlmTable(provider="groq", model="m", base_url=base_url))
    assert (providers["groq"].type, providers["groq"].api_key_env) == (type_, key)


def test_an_error_beside_a_credential_of_a_program_does_not_show_it(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    env = '{ API_TOKEN = "abcdefgh12345", MODE = 3 }'
    project.write("kindlm.toml", f'[agent]\ntype = "subprocess"\nenv = {env}\n')
    told = shown(project, capsys)
    assert "agent.env.MODE" in told
    assert "abcdefgh12345" not in told


def test_a_secret_of_the_agent_is_never_recorded(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_TOKEN", "very-secret-token")
    project.write(
        "kindlm.toml",
        f'[agent]\ntype = "http"\nurl = "{project.agent.url}"\n'
        'headers = { Authorization = "Bearer ${env.AGENT_TOKEN}" }\n',
    )
    project.agent.answer = lambda _: {"message": "hi, your token is very-secret-token"}
    assert project.test(tests=TEST) == 0
    data = (project.root / ".kindlm" / "kindlm.db").read_bytes()
    assert b"very-secret-token" not in data


def test_what_an_agent_is_given_from_the_environment_is_never_recorded(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {
        "ONE": "first-value",
        "TWO": "second-value",
        "HERE": str(project.root),
        "MODE": "test",
    }
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    project.write(
        "kindlm.toml",
        f'[agent]\ntype = "http"\nurl = "{project.agent.url}?k=${{env.ONE}}"\n'
        "[agent.headers]\n"
        '"X-A" = "a ${env.TWO}"\n"X-B" = "${env.HERE}"\n"X-C" = "${env.MODE}"\n"X-D" = "plain"\n',
    )
    said = f"hi, a test of first-value and second-value in {project.root}"
    project.agent.answer = lambda _: {"message": said}
    assert project.test("--reporter", "json", tests=TEST.replace('"hi")\n', '"nothing")\n')) == 1
    hidden = f"hi, a test of [redacted] and [redacted] in {project.root}"
    assert hidden in capsys.readouterr().out
    data = (project.root / ".kindlm" / "kindlm.db").read_bytes()
    for value in (b"first-value", b"second-value", b"plain"):
        assert value not in data
    assert hidden.encode() in data


def test_a_whole_url_may_come_from_the_environment(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = project.agent.url.replace("http://", "http://user:pass%2Fword-9@")
    monkeypatch.setenv("WHERE", f"{there}?api_key=abcdefgh1")
    project.write("kindlm.toml", '[agent]\ntype = "http"\nurl = "${env.WHERE}"\n')
    project.agent.answer = lambda _: {"message": "hi pass/word-9, pass%2Fword-9 and abcdefgh1"}
    assert project.test(tests=TEST) == 0
    data = (project.root / ".kindlm" / "kindlm.db").read_bytes()
    for secret in (b"pass/word-9", b"pass%2Fword-9", b"abcdefgh1"):
        assert secret not in data


def test_what_the_environment_says_has_to_make_a_url(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHERE", "127.0.0.1/secret-word")
    project.write("kindlm.toml", '[agent]\ntype = "http"\nurl = "${env.WHERE}/a"\n')
    told = shown(project, capsys)
    assert "its endpoint (`url` in kindlm.toml) is not an http or https URL" in told
    assert "secret-word" not in told


def test_the_configuration_counts_for_the_identity_of_a_suite(project: Project) -> None:
    project.test(tests=TEST)
    project.test()
    project.test(tests=TEST.replace("hi", "ho"))
    hashes = [one for (one,) in project.rows("SELECT config_hash FROM suites ORDER BY rowid")]
    assert hashes[0] == hashes[1] != hashes[2]


def test_an_agent_is_observed_only_if_that_is_asked_for(project: Project) -> None:
    assert project.test(tests=TEST) == 0
    [(recorded,)] = project.rows("SELECT body FROM contents JOIN suites ON config_ref = ref")
    [scenario] = json.loads(recorded)["scenarios"]
    assert scenario["agent"].keys().isdisjoint({"gateway", "telemetry"})


def test_the_folder_with_the_tests_can_be_another_one(project: Project) -> None:
    text = (project.root / "kindlm.toml").read_text("utf-8")
    project.write("kindlm.toml", f'tests = "checks"\n{text}')
    project.write("checks/test_it.py", "from kindlm import *" + TEST)
    assert run(["test", "--quiet"]) == 0
    assert project.statuses() == {"test_it": "passed"}


def configured(project: Project, more: str) -> None:
    project.configure(f"{more}\n")
    project.write("tests/test_it.py", "from kindlm import *" + TEST)


def test_reports_are_written_beside_what_is_shown(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    configured(project, '[report]\nformats = ["json", "junit"]\noutput_dir = "out"')
    assert run(["test", "tests"]) == 0
    assert "tests/test_it.py" in capsys.readouterr().out
    assert {file.name for file in (project.root / "out").iterdir()} == {"report.json", "report.xml"}
    report = json.loads((project.root / "out/report.json").read_text("utf-8"))
    assert [test["status"] for test in report["tests"]] == ["passed"]


def test_reports_that_options_ask_for_are_all(project: Project) -> None:
    configured(project, '[report]\nformats = ["junit"]')
    assert run(["test", "tests", "--reporter", "json=own.json"]) == 0
    assert (project.root / "own.json").is_file()
    assert not (project.root / "reports").exists()


@pytest.mark.parametrize("written", ['formats = ["jason"]', 'formats = "json"'])
def test_a_report_that_does_not_exist_is_an_error_before_anything_runs(
    project: Project, capsys: pytest.CaptureFixture[str], written: str
) -> None:
    configured(project, f"[report]\n{written}")
    assert run(["test", "tests"]) == 1
    told = capsys.readouterr().err
    assert "report.formats" in told
    assert "kindlm.toml" in told
    assert project.agent.requests == []


PROGRAM = '[agent]\ntype = "subprocess"\ncommand = ["cat"]\n'


@pytest.mark.parametrize(
    ("agent", "table", "place"),
    [
        (PROGRAM, 'type = "daytona"\nsnapshot = "python"', ("daytona", "python")),
        (f'{PROGRAM}sandbox = "local"\n', 'type = "daytona"', ("local", None)),
        (PROGRAM, 'type = "local"', (None, None)),
    ],
)
def test_programs_run_in_the_sandbox_of_the_project(
    tmp_path: Path, agent: str, table: str, place: tuple[str | None, str | None]
) -> None:
    (tmp_path / "kindlm.toml").write_text(f"{agent}[sandbox]\n{table}\n")
    loaded = load_configuration(tmp_path, {})
    assert loaded.diagnostics == ()
    assert loaded.agent is not None
    options = loaded.agent.options
    assert (as_written(options).get("sandbox"), options.snapshot) == place


def test_an_agent_of_a_scenario_runs_in_the_sandbox_of_the_project(project: Project) -> None:
    configured(project, '[sandbox]\ntype = "daytona"')
    own = """agent={"type": "subprocess", "command": ["true"]}"""
    project.write("tests/test_it.py", "from kindlm import *" + TEST.replace('"x"', f'"x", {own}'))
    assert run(["test", "tests", "--dry-run"]) == 0
    root = project.root
    configuration = load_configuration(root, {})
    loaded = load_scenarios(
        root / "tests/test_it.py", Surroundings(root, "shop", {}, configuration)
    )
    assert loaded.suite is not None
    (agent,) = loaded.suite.all_agents()
    assert agent.options.sandbox == "daytona"


@pytest.mark.parametrize("table", ['type = "docker"', 'snapshot = "python"'])
def test_a_sandbox_that_cannot_be_meant_is_an_error(
    project: Project, capsys: pytest.CaptureFixture[str], table: str
) -> None:
    configured(project, f"[sandbox]\n{table}")
    assert run(["test", "tests"]) == 1
    assert "sandbox." in capsys.readouterr().err


def test_a_program_that_prints_a_line_too_many_answers_nothing(project: Project) -> None:
    project.write(
        "agent.py",
        """
import sys
for line in sys.stdin:
    print('{"text": "hi"}', flush=True)
print('{"text": "and more"}')
""",
    )
    project.write("kindlm.toml", PROGRAM.replace('"cat"', '"python", "agent.py"'))
    assert project.test(tests=TEST) == 1
    assert project.statuses() == {"test_it": "errored"}
    [(error,)] = project.rows(
        "SELECT x.body FROM executions e JOIN contents x ON x.ref = e.error_ref"
    )
    assert "printed an unexpected line" in error


ECHO = """
import json, sys
for line in sys.stdin:
    print(json.dumps({"text": json.loads(line)["message"]}), flush=True)
"""


def test_that_there_is_no_sandbox_is_reported_when_the_test_passes(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DAYTONA_API_KEY", raising=False)
    project.write("agent.py", ECHO)
    program = PROGRAM.replace('"cat"', '"python", "agent.py"')
    project.write("kindlm.toml", f'{program}[sandbox]\ntype = "daytona"\n')
    assert project.test(tests=TEST) == 0
    told = " ".join(capsys.readouterr().err.split())
    done = run_inside(project.root, "--kindlm")
    assert done.returncode == 0
    for output in (told, done.stdout):
        assert 'The agent "agent" runs on this machine, not in a sandbox of Daytona.' in output
        assert "No sandbox can be made:" in output
    project.write("kindlm.toml", program)
    assert project.test() == 0
    assert "Daytona" not in capsys.readouterr().err


def test_what_failed_is_reported_with_the_keys_of_this_file(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.agent.answer = lambda _: 404
    assert "Check the path of the agent's URL" in shown(project, capsys)
    assert project.rows("SELECT hint FROM executions") == [("Check the path of the agent's URL",)]
