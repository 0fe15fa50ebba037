"""A history of real runs of a support agent, before and after a careless change."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from checked_server import LoopbackServer
from workspace import Workspace, as_yaml

_EXAMPLE = Path(__file__).parents[2] / "examples" / "support-agent"


@dataclass(frozen=True)
class Shop:
    """A project whose history holds two runs: `before` passed, `after` failed."""

    workspace: Workspace
    before: str
    after: str

    def execution(self, test: str, status: str, target: str = "gpt-4o") -> str:
        """Return the id of an execution of the later run that came out like that."""
        found = self.workspace.query(
            "SELECT id FROM executions WHERE run = ? AND test = ? AND status = ? AND target = ?"
            " ORDER BY number LIMIT 1",
            self.after,
            test,
            status,
            target,
        )
        return str(found[0][0])

    def test(self, name: str, target: str = "gpt-4o") -> dict[str, str]:
        """Return what a test is known by over time."""
        return {
            "project": "acme-support",
            "suite": "support-agent-regression",
            "name": name,
            "target": target,
        }


def record_shop(workspace: Workspace) -> Shop:
    """Record the two runs: two models, two repeats, tools, judges, and an error after a retry."""
    workspace.env["ANTHROPIC_API_KEY"] = workspace.env["OPENAI_API_KEY"]
    with LoopbackServer("support") as server:
        _write_suite(workspace, server.url)
        before = _record(workspace, "before")
        workspace.run("baseline", "set", before)
        server.use_script("support-changed")
        asked = {"contains": "quick question", "model": "gpt-4o", "asks": "agent", "next": 1}
        server.use_faults([{"status": 429, "retryAfter": 0, **asked}, {"status": 400, **asked}])
        after = _record(workspace, "after")
    return Shop(workspace, before, after)


def _write_suite(workspace: Workspace, url: str) -> None:
    config: dict[str, Any] = yaml.load((_EXAMPLE / "kindlm.yaml").read_bytes(), yaml.CSafeLoader)
    for key in ("serve", "compliance", "upload"):
        config.pop(key)
    config["defaults"]["repeat"] = 2
    # What the changed agent promises is then highlighted where it does.
    config["tests"][0]["expect"]["output"]["notContains"] = ["guaranteed"]
    config["providers"]["anthropic"]["baseUrl"] = url
    config["providers"]["openai"]["baseUrl"] = f"{url}/v1"
    shutil.copytree(_EXAMPLE / "schemas", workspace.root / "schemas")
    (workspace.root / "kindlm.yaml").write_text(as_yaml(config), encoding="utf-8")


def _record(workspace: Workspace, label: str) -> str:
    done = workspace.run("test", "--label", label)
    assert done.returncode in (0, 1), done.stderr
    ((run,),) = workspace.query("SELECT id FROM runs ORDER BY started_at DESC LIMIT 1")
    return str(run)
