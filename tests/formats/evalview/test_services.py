"""`serve:` of `.evalview/config.yaml`: programs that are started for the cases."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Load = Callable[..., Any]

ENDPOINT = "http://127.0.0.1:{{serve.agent.port}}/ask"
SERVE = """\
endpoint: "http://127.0.0.1:{{serve.agent.port}}/ask"
serve:
  - name: agent
    command: "python agent.py --token ${TOKEN}"
    ready: "http://127.0.0.1:{{serve.agent.port}}/ready"
    timeoutMs: 500
"""


@pytest.fixture
def case(case_text: str) -> str:
    return case_text.replace("endpoint: http://127.0.0.1:9/ask\n", "")


def test_programs_run_where_the_configuration_is(load: Load, case: str, tmp_path: Path) -> None:
    suite = load({".evalview/config.yaml": SERVE, "case.yaml": case}, TOKEN="t-1").only
    (service,) = suite.services
    assert service.command == ("python", "agent.py", "--token", "{{env.TOKEN}}")
    assert Path(service.directory) == tmp_path
    assert service.timeout_ms == 500
    assert suite.cases[0].agent.endpoint == ENDPOINT


def test_a_case_may_reach_another_program(load: Load, case: str) -> None:
    config = f"{SERVE}  - {{name: other, command: other}}\n"
    text = f'{case}endpoint: "http://127.0.0.1:{{{{serve.other.port}}}}"\n'
    suite = load({".evalview/config.yaml": config, "case.yaml": text}, TOKEN="t-1").only
    assert [service.name for service in suite.services] == ["agent", "other"]
    assert suite.cases[0].agent.endpoint == "http://127.0.0.1:{{serve.other.port}}"


@pytest.mark.parametrize(
    ("before", "after", "line", "path", "message"),
    [
        ("serve.agent.port}}/ask", "serve.agnt.port}}/ask", 1, "endpoint", "not started yet"),
        ("timeoutMs", "timeout_ms", 6, "serve[0].timeout_ms", "Unknown key"),
        ("- name: agent", "- name: my agent", 3, "serve[0].name", "may hold letters"),
        ("agent.py", "{{serve.later.port}}", 4, "serve[0].command", "not started yet"),
        ("/ready", "/{{ready}}", 5, "serve[0].ready", "has no value here"),
        (
            "    timeoutMs: 500",
            "  - {name: agent, command: again}",
            6,
            "serve[1].name",
            "occurs twice: first on line 3",
        ),
    ],
)
def test_mistakes_have_their_line(
    load: Load, case: str, before: str, after: str, line: int, path: str, message: str
) -> None:
    config = SERVE.replace(before, after)
    loaded = load({".evalview/config.yaml": config, "case.yaml": case}, strict=True, TOKEN="t-1")
    assert ("config.yaml", line, path) in loaded.lines("error")
    assert any(message in item.error.message for item in loaded.diagnostics), loaded.diagnostics
    assert not loaded.suites


def test_a_port_that_nothing_has_is_an_error_of_the_case(load: Load, case: str) -> None:
    text = f'{case}endpoint: "http://127.0.0.1:{{{{serve.shop.port}}}}"\n'
    loaded = load({".evalview/config.yaml": SERVE, "case.yaml": text}, TOKEN="t-1")
    assert loaded.lines("error") == [("case.yaml", 5, "endpoint")]
    (found,) = [item for item in loaded.diagnostics if item.severity == "error"]
    assert found.error.hint == "Services started by then: agent"
