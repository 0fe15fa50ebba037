"""The vectors of scenarios that are about the command that runs them, and its reports."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

import pytest
from pages import assert_harmless
from scenario_departures import COMMANDS, REPORTS
from scenario_project import Project, new_project, serving_agent
from vector_cases import known, unknown

from kindlm import __version__
from kindlm.cli.app import run

Vector = dict[str, Any]
Capsys = pytest.CaptureFixture[str]

DESCRIBED: Final = ["pass 1/1 100.6ms", "fail 1/3 1500ms", "errored 0 assertions, 54-char name"]
COLUMNS: Final = ("Scenario", "Result", "Score", "Assertions", "Duration")
"""The heads of the table that the vector has seen."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    monkeypatch.chdir(tmp_path)
    with serving_agent() as agent:
        agent.answer = lambda request: {"message": request["message"]}
        yield new_project(tmp_path, agent)


def scenario(name: str, *checks: bool, options: str = "") -> str:
    """Return a scenario that says its name, with checks that pass or do not."""
    lines = [f'reply = await t.agent.send("{name}")']
    lines += [f't.check(reply).contains("{name if one else "bye"}")' for one in checks]
    body = "".join(f"    {line}\n" for line in lines)
    return f'\n@scenario("{name}"{options})\nasync def test_{name}(t: Trial) -> None:\n{body}'


def write(project: Project, *scenarios: str) -> None:
    project.write("tests/test_it.py", "from kindlm import *\n" + "".join(scenarios))


def vector_run(vector: Vector) -> int:
    """Run the tests with the command line of a vector."""
    return run([*vector["input"]["argv"], "tests"])


@pytest.mark.vectors(
    "scenario.jsonl",
    "cli.run",
    where=lambda case: "outcome" in case["input"],
    departures=COMMANDS,
)
def test_the_exit_code(vector: Vector, project: Project) -> None:
    told = re.fullmatch(r"(\d) scenarios?, (\d) failed", vector["input"]["outcome"])
    if told is None:
        unknown(vector["input"]["outcome"])
    passes = [at >= int(told[2]) for at in range(int(told[1]))]
    write(project, *(scenario("abcdefghi"[at], each) for at, each in enumerate(passes)))
    assert {"exit_code": vector_run(vector)} == vector["expected"]
    statuses = [status == "passed" for status in project.statuses().values()]
    assert sorted(statuses) == sorted(passes)


@pytest.mark.vectors(
    "scenario.jsonl",
    "cli.run",
    where=lambda case: case["input"]["argv"][1] == "--format" and len(case["input"]) == 1,
    departures=COMMANDS,
)
def test_the_format(vector: Vector, project: Project, capsys: Capsys) -> None:
    write(project, scenario("a", True))
    assert vector_run(vector) == 0
    assert {
        "stdout_is_json": capsys.readouterr().out.startswith("{"),
        "file_written": any(project.root.rglob("*.json")),
    } == vector["expected"]


@pytest.mark.vectors(
    "scenario.jsonl",
    "cli.run",
    where=lambda case: case["input"]["argv"][1] == "--version" and len(case["input"]) == 1,
    departures=COMMANDS,
)
def test_the_version(vector: Vector, project: Project, capsys: Capsys) -> None:
    write(project, scenario("a", True))
    code = vector_run(vector)
    out = capsys.readouterr().out
    named = re.search(r"run \w{8} (\w+)$", out, re.MULTILINE)
    assert {
        "prints": f"the report of the run {named[1]}" if named else out,
        "exit_code": code,
        "tests_run": len(project.agent.said),
    } == vector["expected"]
    assert __version__ not in out


@pytest.mark.vectors(
    "scenario.jsonl",
    "cli.run",
    where=lambda case: isinstance(case["input"]["scenarios"], list),
    departures=COMMANDS,
)
def test_tags(vector: Vector, project: Project) -> None:
    tagged = {one["name"]: one["tags"] for one in vector["input"]["scenarios"]}
    write(project, *(scenario(n, True, options=f", tags={t or ()}") for n, t in tagged.items()))
    assert vector_run(vector) == 0
    assert {"run": project.agent.said} == vector["expected"]


@pytest.mark.vectors(
    "scenario.jsonl",
    "cli.run",
    where=lambda case: ".fabrik directory" in case["input"],
    departures=COMMANDS,
)
def test_no_folder_for_the_history(vector: Vector, project: Project) -> None:
    if vector["input"][".fabrik directory"] != "missing":
        unknown(f"a directory that is {vector['input']['.fabrik directory']}")
    write(project, scenario("a", True))
    assert not (project.root / ".kindlm").exists()
    code = vector_run(vector)
    [(recorded,)] = project.rows("SELECT count(*) FROM executions WHERE status = 'passed'")
    ran = bool(project.agent.said)
    found = {"raises": code != 0, "tests_already_run": ran, "recorded": recorded}
    assert found == vector["expected"]


@pytest.mark.vectors(
    "scenario.jsonl",
    "cli.run",
    where=lambda case: "llm" in case["input"]["config"],
    departures=COMMANDS,
)
def test_ollama(vector: Vector, project: Project, capsys: Capsys) -> None:
    def answer(request: Vector) -> Vector:
        if "model" not in request:
            return {"message": "hi"}
        judgement = json.dumps({"score": 5, "reasoning": "It is."})
        said = {"role": "assistant", "content": judgement}
        return {"model": request["model"], "message": said, "done": True, "done_reason": "stop"}

    project.agent.answer = answer
    provider = known(known(vector["input"]["config"], "llm")["llm"], "provider")["provider"]
    if provider != "ollama":
        unknown(f"provider {provider}")
    text = (project.root / "kindlm.toml").read_text("utf-8")
    text = text.replace('"loopback"', f'"{provider}"').replace("/v1", "")
    project.write("kindlm.toml", text)
    code = project.test(
        tests='\n@scenario("x")\nasync def test_it(t: Trial) -> None:\n'
        '    reply = await t.agent.send("hi")\n'
        '    t.judge(reply, "Is it polite?")\n'
        '    t.judge(reply, "Is it short?")\n'
    )
    outcomes = [outcome for _, _, outcome, _ in project.checks()]
    assert len(outcomes) == 2
    assert {
        "warning": bool(capsys.readouterr().err),
        "llm_assertions": "all pass" if set(outcomes) == {"passed"} else "all fail",
        "exit_code": code,
    } == vector["expected"]


PROGRAM: Final = """
import json
import sys
for line in sys.stdin:
    print(json.dumps({"text": json.loads(line)["message"]}), flush=True)
"""


@pytest.mark.vectors(
    "scenario.jsonl",
    "cli.run",
    where=lambda case: "agent" in case["input"]["config"],
    departures=COMMANDS,
)
def test_a_program(vector: Vector, project: Project) -> None:
    project.write("agent.py", PROGRAM)
    kind = known(known(vector["input"]["config"], "agent")["agent"], "type")["type"]
    if kind != "subprocess":
        unknown(f"an agent of the type {kind}")
    command = json.dumps([sys.executable, "agent.py"])
    project.write("kindlm.toml", f'[agent]\ntype = "{kind}"\ncommand = {command}\n')
    code = project.test(tests=scenario("a", True))
    assert {"raises": code != 0} == vector["expected"]
    assert project.statuses() == {"test_a": "passed"}


@pytest.mark.vectors(
    "scenario.jsonl",
    "cli.run",
    where=lambda case: case["input"]["argv"][1] == "--timeout",
    departures=COMMANDS,
)
def test_timeouts(vector: Vector, project: Project, capsys: Capsys) -> None:
    """A time that is none, and an agent that does not answer in time."""
    if vector["input"]["argv"][2].isdigit():
        unknown("a time that is one")
    write(project, scenario("a", True), scenario("b", True))
    assert vector_run(vector) == 1
    assert "'--timeout'" in capsys.readouterr().err
    ran = bool(project.agent.said)

    project.agent.answer = lambda _: 200 if project.agent.release.wait(60) else 500
    assert run(["test", "tests", "--timeout", "50"]) == 1

    ended = project.rows("SELECT status, error_code FROM executions ORDER BY number")
    assert [code for _, code in ended] == ["PROVIDER_TIMEOUT"] * vector["input"]["scenarios"]
    (status,) = {status for status, _ in ended}
    assert {"all_time_out": ran, "status_of_a_timeout": status} == vector["expected"]


@pytest.mark.vectors(
    "scenario.jsonl",
    "cli.run",
    where=lambda case: case["input"]["argv"][1] == "--parallel",
    departures=COMMANDS,
)
def test_none_at_once(vector: Vector, project: Project, capsys: Capsys) -> None:
    if vector["input"]["argv"][2].isdigit() and int(vector["input"]["argv"][2]):
        unknown("one at once, or more")
    assert vector["input"]["scenarios"] == 2
    write(project, scenario("a", True), scenario("b", True))
    assert vector_run(vector) == 1
    assert "'--concurrency'" in capsys.readouterr().err
    said = project.agent.said
    found = {"scenarios_run": len(said), "sequential": said == ["a", "b"] if said else None}
    assert found == vector["expected"]


def checks_of(passed: bool, score: float) -> list[bool]:
    """Return checks of which this share passes."""
    share = Fraction(score).limit_denominator(9)
    if passed != (share == 1):
        unknown(f"a test with the score {score} that comes out otherwise")
    return [at < share.numerator for at in range(share.denominator)]


def reported(project: Project, label: str | None = None) -> Vector | None:
    """Run the tests, and return the report for programs, if there is one."""
    file = project.root / "report.json"
    labelled = [] if label is None else ["--label", label]
    assert run(["test", "tests", "--reporter", f"json={file}", *labelled, "-q"]) == 1
    return json.loads(file.read_text("utf-8")) if file.exists() else None


@pytest.mark.vectors(
    "scenario.jsonl",
    "report.json",
    where=lambda case: bool(case["input"]["results"]),
    departures=REPORTS,
)
def test_the_report_for_programs(vector: Vector, project: Project) -> None:
    results = vector["input"]["results"]
    if all(passed for _, passed, *_ in results):
        unknown("a report of tests that pass")
    write(
        project, *(scenario(name, *checks_of(passed, score)) for name, passed, score, _ in results)
    )
    report = reported(project, vector["input"].get("version"))
    assert report is not None
    assert {"top_keys": list(report), "summary": summary_of(report)} == vector["expected"]
    assert report["run"]["label"] == vector["input"].get("version")
    for (name, passed, score, _), test in zip(results, report["tests"], strict=True):
        (execution,) = test["executions"]
        scores = [check["score"] for check in execution["assertions"]]
        assert test["name"].endswith(f"test_{name}")
        assert (test["status"] == "passed") == passed
        assert sum(scores) / len(scores) == score
        assert execution["latencyMs"] > 0


@pytest.mark.vectors(
    "scenario.jsonl",
    "report.json",
    where=lambda case: case["input"]["results"] == [],
    departures=REPORTS,
    ignores=("results",),
)
def test_the_report_of_no_tests(vector: Vector, project: Project, capsys: Capsys) -> None:
    project.write("tests/test_it.py", "from kindlm import scenario\n")
    report = reported(project)
    has_version = report is not None and report["run"]["label"] is not None
    found = {"summary": report and summary_of(report), "has_version": has_version}
    assert found == vector["expected"]
    assert "✗" in capsys.readouterr().err


def summary_of(report: Vector) -> Vector:
    summary = report["summary"]
    numbers = {name: summary["tests"][name] for name in ("total", "passed", "failed")}
    return numbers | {name: summary.get(name) for name in ("avgScore", "totalDuration")}


@pytest.mark.vectors("scenario.jsonl", "report.html", departures=REPORTS)
def test_the_page(vector: Vector, project: Project) -> None:
    """What an agent says, and what tests and tools are called, is text wherever it stands."""
    given = vector["input"]
    page = page_of(project, given)
    read = Page(page)
    assert {
        "title_cell_escaped": any(given["scenario"] in text for text in read.texts),
        "turn_text_escaped": given["agent_text"] in read.texts,
        "raw_script_breakout_in_embedded_json": given["agent_text"] in page,
        "tool_name_escaped": given["tool_name"] in map(str.strip, read.texts),
    } == vector["expected"]
    assert_harmless(page)
    # The same page, where nothing could be taken for markup, has the same elements.
    plain = {name: text.replace("<", "(").replace(">", ")") for name, text in given.items()}
    assert read.elements == Page(page_of(project, plain, "plain.db")).elements


class Page(HTMLParser):
    """The texts and the elements of a page, as a browser reads them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.elements: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, _: object) -> None:
        self.elements.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def page_of(project: Project, given: Vector, history: str = "kindlm.db") -> str:
    """Run a test that fails with these names and this answer; return the report as a page.

    In a history of its own, there is no run before to compare with.
    """
    call = {"name": given["tool_name"], "arguments": {}}
    project.agent.answer = lambda _: {"message": given["agent_text"], "tool_calls": [call]}
    name = json.dumps(given["scenario"])
    project.write(
        "tests/test_it.py",
        "import pytest\nfrom kindlm import *\n"
        f"\n@scenario({name})\n@pytest.mark.parametrize('name', [{name}])\n"
        "async def test_it(t: Trial, name: str) -> None:\n"
        f"    t.check(await t.agent.send({name})).contains('bye')\n",
    )
    assert run(["test", "tests", "-q", "--db", history, "--reporter", "html=report.html"]) == 1
    return (project.root / "report.html").read_text("utf-8")


@pytest.mark.vectors("scenario.jsonl", "report.terminal", departures=REPORTS)
def test_the_terminal(
    vector: Vector, project: Project, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    if vector["input"]["scenarios"] != DESCRIBED:
        unknown(f"scenarios {vector['input']['scenarios']}")
    monkeypatch.setenv("COLUMNS", "200")
    project.agent.answer = lambda request: 400 if "long" in request["message"] else {"text": "hi"}
    long = f"long_{'x' * (54 - len('test_long_'))}"
    write(project, scenario("hi", True), scenario("no", False, False), scenario(long))
    assert run(["test", "tests", "--verbose", "--no-progress"]) == 1
    out = capsys.readouterr().out
    rows = [re.split(r"\s{2,}", line.strip()) for line in out.splitlines()[2:5]]
    (errored,) = (row for row in rows if row[0].startswith("!"))
    answered = [row for row in rows if row is not errored]
    cells = [cell for row in rows for cell in row]
    totals = re.search(r"tests +(\d+): (.+)", out)
    assert totals is not None
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", totals[2])}
    assert {
        "columns": [name for name in COLUMNS if name in out],
        "duration_cells": [re.fullmatch(r"[\d.]+ m?s", row[-1]) is not None for row in answered],
        "score_cells": [any("%" in cell for cell in row) for row in answered],
        "errored_scenario_score_cell": next((cell for cell in errored if "%" in cell), None),
        "errored_assertion_cell": "0/0" if "0/0" in cells else None,
        "name_truncated_to": None if f"test_{long}" in errored[0] else len(errored[0]),
        "summary_counts": {"total": int(totals[1])} | counts,
    } == vector["expected"]
