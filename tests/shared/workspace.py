"""A project in a folder of its own, and kindlm as a user runs it: command lines, real files."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import loaded_kindlm
import pytest
import yaml
from inside import run_inside
from loaded_kindlm import Started

KEY = "sk-e2e-7f3a9c51d2e84b06"


_DUMPER: type[Any] = yaml.CSafeDumper if yaml.__with_libyaml__ else yaml.SafeDumper


def as_yaml(data: object) -> str:
    """Write YAML as `yaml.safe_dump` does, in a quarter of its time."""
    return str(yaml.dump(data, Dumper=_DUMPER))


@dataclass
class Workspace:
    """A project in a folder of its own, and how to run kindlm in it."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)

    @property
    def database(self) -> Path:
        return self.root / ".kindlm" / "kindlm.db"

    def suite(self, server_url: str, **changes: Any) -> Path:
        """Write kindlm.yaml with one openai model at a server; `changes` replace top-level keys."""
        config: dict[str, Any] = {
            "kindlm": 1,
            "project": "shop",
            "suite": {"name": "orders"},
            "providers": {"openai": {"apiKeyEnv": "OPENAI_API_KEY", "baseUrl": f"{server_url}/v1"}},
            "models": [{"id": "gpt", "provider": "openai", "model": "gpt-4o"}],
            "prompts": {"ask": {"user": "Where is order {{order}}?"}},
            "tests": [self.test()],
        }
        path = self.root / "kindlm.yaml"
        path.write_text(as_yaml({**config, **changes}), encoding="utf-8")
        return path

    @staticmethod
    def test(name: str = "delivered", **changes: Any) -> dict[str, Any]:
        return {
            "name": name,
            "prompt": "ask",
            "vars": {"order": "A1"},
            "tools": [{"name": "lookup_order", "defaultResponse": {"status": "delivered"}}],
            "expect": {
                "output": {"contains": ["delivered"]},
                "toolCalls": [{"tool": "lookup_order", "argsMatch": {"order_id": "A1"}}],
            },
            **changes,
        }

    def package(self, entry_points: str, source: str, name: str = "acme") -> None:
        """Install a package of one module beside the project."""
        (self.root / f"{name}.py").write_text(source)
        installed = self.root / f"{name}-1.dist-info"
        installed.mkdir(exist_ok=True)
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n"
        installed.joinpath("METADATA").write_text(metadata)
        installed.joinpath("entry_points.txt").write_text(entry_points)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "kindlm", *arguments]

    def start(self, *arguments: str, cwd: Path | None = None, **options: Any) -> Started:
        """Start a command line, to be stopped, killed or watched while it runs."""
        return loaded_kindlm.start(arguments, cwd=cwd or self.root, env=self.env, **options)

    def start_anew(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """Start a command line in a process that has to load kindlm first."""
        return subprocess.Popen(
            self.command(*arguments),
            cwd=self.root,
            env=self.env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **options,
        )

    def run(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command line to its end, in the process of the tests."""
        return run_inside(arguments, cwd=self.root, env={**self.env, **env})

    def run_apart(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command line to its end, in a process that has loaded kindlm already.

        For what is about the process, such as its streams or code of a user that ends it.
        """
        return loaded_kindlm.run(arguments, cwd=self.root, env={**self.env, **env}, timeout_s=120.0)

    def report(self, *arguments: str, **env: str) -> dict[str, Any]:
        """Run the tests and return the JSON report."""
        done = self.run("test", "--reporter", "json", *arguments, **env)
        try:
            report: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            pytest.fail(f"no JSON report: {done.stdout!r} {done.stderr!r}")
        assert done.returncode == (0 if report["run"]["status"] == "passed" else 1)
        return report

    def query(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.database)) as db:
            return db.execute(sql, parameters).fetchall()


def new_workspace(root: Path) -> Workspace:
    """Return a project in an empty folder, with a key for the provider."""
    kept = {
        name: os.environ[name] for name in ("PATH", "HOME", "XDG_CACHE_HOME") if name in os.environ
    }
    return Workspace(root, {**kept, "OPENAI_API_KEY": KEY, "CI": "true"})


def interrupt(process: Started, number: int, *, twice: bool) -> tuple[str, str]:
    """Send a run the signal, or two of them; return what else it wrote until it ended."""
    if twice:
        signal_twice(process, number)
    else:
        process.send_signal(number)
    return process.communicate(timeout=60)


def signal_twice(process: Started, number: int) -> None:
    """Send a run the signal, and once more when it was taken note of: at once, both may be one."""
    assert process.stderr is not None
    process.send_signal(number)
    while "again ends them" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(number)


def until(condition: Callable[[], object], timeout_s: float = 60.0) -> None:
    """Return as soon as a condition holds; fail if it does not for so long."""
    ends = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < ends, "what was waited for did not happen"
        time.sleep(0.005)
