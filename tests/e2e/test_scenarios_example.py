"""The example with scenarios: what its README says, by kindlm and pytest, with all its agents."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import loaded_kindlm
import pytest
from checked_server import LoopbackServer
from free_ports import free_ports
from pytest_project import pytest_environment, run_inside
from scenario_examples import copied, good_and_rude, held_against, lost_checks, rows

from kindlm.cli.app import run

EXAMPLE = Path(__file__).parents[2] / "examples" / "scenarios"

COLD = 'Expected an answer that is "empathetic". The judge: "It turns the customer away.".'
EMPTY = 'The judge scored 1 of 5, expected at least 3: "Nobody can keep that promise."'
FOUND = (
    'Expected the output not to contain "calm down", found it at character 0: '
    '"Calm down. It comes when it comes, and …".'
)
NO_LOOK = "Expected a call to lookup_order; the agent called no tool."
NO_REFUND = "Expected a call to issue_refund; the agent called no tool."
SAID = 'got "Calm down. It comes when it comes, and a refund is not my problem.".'

BROKEN = {
    "tests/policy.yaml::a question before buying": [
        ("contains", 7, f'Expected the output to contain "30 days", {SAID}'),
        ("sentiment", 8, COLD.replace("empathetic", "helpful")),
    ],
    "tests/test_function.py::test_looks_up": [
        ("contains", 11, f'Expected the output to contain "Tuesday", {SAID}'),
        ("tool_called", 11, NO_LOOK),
    ],
    **{
        f"tests/test_orders.py::test_status[{order}-{told}]": [
            ("contains", 15, f'Expected the output to contain "{told}", {SAID}'),
            ("tool_called", 15, NO_LOOK),
        ]
        for order, told in [("A-17", "Friday"), ("B-42", "Tuesday"), ("Z-99", "cannot find")]
    },
    "tests/test_program.py::test_asks_first": [
        ("tool_called", 11, NO_LOOK),
        ("tool_called", 13, NO_REFUND),
    ],
    "tests/test_refund.py::test_angry_customer": [
        ("not_contains", 11, FOUND),
        ("tool_called", 11, NO_LOOK),
        ("sentiment", 12, COLD),
        ("judge", 15, EMPTY),
    ],
    "tests/test_simulated.py::test_refund_in_the_end": [("assert", 21, "the refund is under way")],
}
"""What each test holds against the rude agent: kinds of checks, their lines, what is said."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return copied(EXAMPLE, tmp_path / "shop", monkeypatch)


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The model of the example, played."""
    with LoopbackServer(EXAMPLE / "judge.yaml") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "not-needed")
        yield


Start = Callable[[str], None]


@pytest.fixture
def start(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Start the agent of a kind, and say where it is and of what kind the other two are."""
    servers: list[subprocess.Popen[str]] = []

    def call(kind: str) -> None:
        environ = {**os.environ, "AGENT": kind, "SHOP_PORT": "0"}
        server = subprocess.Popen(
            [sys.executable, "server.py"], env=environ, stdout=subprocess.PIPE, text=True
        )
        servers.append(server)
        assert server.stdout is not None
        monkeypatch.setenv("SHOP_PORT", server.stdout.readline().split()[-1])
        monkeypatch.setenv("AGENT", kind)

    yield call
    for server in servers:
        server.kill()
        server.communicate()


def statuses(root: Path, label: str) -> dict[str, str]:
    """How each test of a run came out, if all of its repeats came out alike."""
    found = rows(
        root,
        "SELECT DISTINCT e.test, e.status FROM executions e JOIN runs r ON r.id = e.run"
        " WHERE r.label = ?",
        label,
    )
    assert len(found) == len(dict(found))
    return dict(found)


def check_runs(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The runs `good` and `rude` are as they have to be, and `kindlm diff` tells them apart."""
    assert statuses(root, "good") == dict.fromkeys(BROKEN, "passed")
    assert statuses(root, "rude") == dict.fromkeys(BROKEN, "failed")
    assert held_against(root, "rude") == BROKEN
    tests = good_and_rude(capsys)
    assert {name: test["change"] for name, test in tests.items()} == dict.fromkeys(
        BROKEN, "regressed"
    )
    assert tests["tests/test_function.py::test_looks_up"]["strength"] == "confirmed"
    lost = lost_checks(tests["tests/test_refund.py::test_angry_customer"])
    assert lost == ["not_contains", "tool_called", "sentiment", "judge"]


def test_the_readme_can_be_followed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its commands, as they stand there; only what installs kindlm is left out."""
    # One after the other: five at once would start five processes for the function.
    with (project / "kindlm.toml").open("a") as file:
        file.write("[eval]\nparallelism = 1\n")
    text = (project / "README.md").read_text("utf-8")
    install, *blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    assert "pip install" in install
    commands = [line for block in blocks for line in block.splitlines()]
    shop, model = map(str, free_ports(2))
    script = [f"{line.replace('8001', model)}\necho $? {shlex.quote(line)}" for line in commands]
    environ = {
        **pytest_environment(),
        "PYTEST_ADDOPTS": "-p kindlm.pytest_plugin.plugin",
        "SHOP_PORT": shop,
    }
    with loaded_kindlm.command() as forks:
        path = [str(forks), str(Path(sys.executable).parent), os.environ["PATH"]]
        out = followed("\n".join(script), environ | {"PATH": os.pathsep.join(path)})
    ended = [line.split(" ", 1) for line in out.splitlines()]
    codes = [(int(line[0]), line[1]) for line in ended if line[-1] in commands]
    failing = {line for line in commands if line.endswith("rude") and "kindlm" in line}
    failing |= {line for line in commands if "silent" in line}
    assert len(failing) == 3
    assert codes == [(int(line in failing), line) for line in commands], out
    check_runs(project, capsys)
    targets = rows(project, "SELECT DISTINCT target FROM executions ORDER BY target")
    assert targets == [("agent",), ("function",), ("program",)]
    assert statuses(project, "good-too") == dict.fromkeys(BROKEN, "passed")
    assert rows(project, "SELECT test, error_code FROM executions WHERE status = 'errored'") == [
        ("tests/test_program.py::test_asks_first", "PROVIDER_TIMEOUT")
    ]


def followed(script: str, environ: dict[str, str]) -> str:
    """Run commands of a shell; return what they wrote, and leave nothing running."""
    shell = subprocess.Popen(
        ["bash", "-c", script],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        return shell.communicate(timeout=120)[0]
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)


def test_pytest_names_what_is_wrong(project: Path, judge: None, start: Start) -> None:
    start("rude")
    rude = run_inside(project, "--kindlm", "tests/test_refund.py")
    assert rude.returncode == 1
    failure = rude.stdout.partition("_ test_angry_customer _")[2]
    for cause in (
        'Forbidden in the answer: "calm down"',
        "tests/test_refund.py:11",
        "No call to lookup_order",
        'Expected an answer that is "empathetic"',
        "tests/test_refund.py:12",
        "turn 2: Did the agent set realistic expectations?",
        "tests/test_refund.py:15",
    ):
        _, found, failure = failure.partition(cause)
        assert found, cause


@pytest.mark.parametrize("tests", ["policy", "test_function"])
def test_an_agent_that_gives_no_answer_makes_its_test_errored(
    project: Path, judge: None, start: Start, tests: str
) -> None:
    start("silent")
    with (project / "kindlm.toml").open("a") as file:
        file.write("[eval]\ndefault_timeout = 0.5\n")
    assert run(["test", "-q", "--label", "silent", "-t", tests, "--runs", "1"]) == 1
    found = rows(project, "SELECT status, error_code FROM executions")
    assert found == [("errored", "PROVIDER_TIMEOUT")]
    assert held_against(project, "silent") == {}
