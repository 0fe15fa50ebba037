"""The vectors of suites that are about exit codes: what a user does, and how the process ends.

A case says in words what is done; `SITUATIONS` says it in code, for these words and for others of
the same kind.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import loaded_kindlm
import pytest
from vector_cases import Departure, unknown
from workspace import as_yaml

Vector = dict[str, Any]
Situation = Callable[["Desk"], int]

DEPARTURES: Final = (
    Departure(
        "the exit code is 0 or 1, for Ctrl-C too",
        lambda case: case["expected"]["exit"] > 1,
        {"exit": 1},
    ),
)


class Desk:
    """A folder with a suite that passes, and a way to run kindlm in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {
            name: os.environ[name]
            for name in ("PATH", "HOME", "XDG_CACHE_HOME")
            if name in os.environ
        }
        self.write()

    def write(self, *, reply: Any = None, expect: Any = None, **changes: Any) -> None:
        """Write kindlm.yaml; what is not given makes a test that passes."""
        config = {
            "kindlm": 1,
            "project": "shop",
            "suite": {"name": "orders"},
            "providers": {"fake": {"type": "scripted", "replies": [reply or {"text": "fine"}]}},
            "models": [{"id": "fake", "provider": "fake", "model": "fake-1"}],
            "prompts": {"ask": {"user": "How is order A1?"}},
            "tests": [self.test(expect)],
        }
        text = as_yaml({**config, **changes})
        (self.folder / "kindlm.yaml").write_text(text, encoding="utf-8")

    @staticmethod
    def test(expect: Any = None, **fields: Any) -> dict[str, Any]:
        wanted = expect or {"output": {"contains": ["fine"]}}
        return {"name": "answers", "prompt": "ask", "expect": wanted, **fields}

    def real_provider(self) -> None:
        """Let the model be one that needs a key, and give none."""
        self.write(
            providers={"openai": {"apiKeyEnv": "OPENAI_API_KEY"}},
            models=[{"id": "gpt", "provider": "openai", "model": "gpt-4o"}],
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "kindlm", *arguments],
            cwd=self.folder,
            env=self.env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *arguments: str) -> int:
        """Run a command line to its end; no end may look like a crash."""
        done = loaded_kindlm.run(arguments, cwd=self.folder, env=self.env, timeout_s=60.0)
        assert "Traceback" not in done.stderr
        return done.returncode


def passing(desk: Desk) -> int:
    return desk.run("test")


def failing(desk: Desk) -> int:
    desk.write(expect={"output": {"contains": ["something else"]}})
    return desk.run("test")


def failing_gate(desk: Desk) -> int:
    desk.write(gates={"latencyMaxMs": 1}, reply={"text": "fine", "delayMs": 20})
    return desk.run("test")


def missing_file(desk: Desk) -> int:
    return desk.run("test", "-c", "nowhere.yaml")


def broken_yaml(desk: Desk) -> int:
    (desk.folder / "kindlm.yaml").write_text("kindlm: [1\n", encoding="utf-8")
    return desk.run("test")


def invalid_config(desk: Desk) -> int:
    desk.write(modles=[])
    return desk.run("test")


def invalid_config_validated(desk: Desk) -> int:
    desk.write(modles=[])
    return desk.run("validate")


def missing_key(desk: Desk) -> int:
    desk.real_provider()
    return desk.run("test")


def provider_error(desk: Desk) -> int:
    desk.write(reply={"error": "auth"})
    return desk.run("test")


def skipped_all(desk: Desk) -> int:
    desk.write(tests=[desk.test(skip=True)])
    return desk.run("test")


def regression(desk: Desk) -> int:
    assert desk.run("test") == 0
    assert desk.run("baseline", "set") == 0
    failing(desk)
    return desk.run("baseline", "compare")


def no_regression(desk: Desk) -> int:
    assert desk.run("test") == 0
    assert desk.run("baseline", "set") == 0
    assert desk.run("test") == 0
    return desk.run("baseline", "compare")


def no_baseline(desk: Desk) -> int:
    assert desk.run("test") == 0
    return desk.run("baseline", "compare")


def baseline_set(desk: Desk) -> int:
    assert desk.run("test") == 0
    return desk.run("baseline", "set")


def init_twice(desk: Desk) -> int:
    return desk.run("init")


def init_anew(desk: Desk) -> int:
    (desk.folder / "kindlm.yaml").unlink()
    return desk.run("init")


def interrupted(desk: Desk) -> int:
    # The first one fails: that is printed as soon as it is known.
    slow = [desk.test(name=f"slow {number}") for number in range(50)]
    slow[0]["expect"] = {"output": {"contains": ["not in there"]}}
    desk.write(reply={"text": "fine", "delayMs": 100}, tests=slow, defaults={"concurrency": 1})
    process = desk.start("test")
    assert process.stderr is not None
    assert "slow 0" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    return process.returncode


def command(*arguments: str) -> Situation:
    return lambda desk: desk.run(*arguments)


SITUATIONS: Final[list[tuple[str, Situation]]] = [
    (r"SIGINT|SIGTERM|Ctrl-C", interrupted),
    (r"all (tests )?pass", passing),
    (r"(config|file) .*(missing|not found|does not exist)", missing_file),
    (r"(API )?key .*missing|missing .*key", missing_key),
    (r"invalid YAML|YAML syntax|not YAML", broken_yaml),
    (r"validate.*(invalid|error|broken)", invalid_config_validated),
    (r"validate", command("validate")),
    (r"(invalid|broken) config|config.* invalid", invalid_config),
    (r"provider (error|auth|fails)|test errored", provider_error),
    (r"unknown reporter", command("test", "--reporter", "nope")),
    (r"unknown option", command("test", "--no-such-option")),
    (r"unknown command", command("frobnicate")),
    (r"unknown template", command("init", "--template", "nope")),
    (r"--pdf without --compliance", command("test", "--pdf", "out.pdf")),
    (r"baseline compare .*regression", regression),
    (r"baseline compare .*(without|no) .*baseline", no_baseline),
    (r"baseline compare", no_regression),
    (r"baseline set .*without|baseline set .*no run", command("baseline", "set")),
    (r"baseline set", baseline_set),
    (r"all .*skipped", skipped_all),
    (r"no test.* match|suite .*not found|unknown suite", command("test", "-s", "nowhere")),
    (r"gate .*fail|a gate fails", failing_gate),
    (r"test.* fail|assertion fails", failing),
    (r"init .*(exist|twice|already)", init_twice),
    (r"init", init_anew),
    (r"--version", command("--version")),
    (r"--help", command("--help")),
]
"""What a case's words mean; the first that matches. `--name value` is given to `kindlm test`."""


@pytest.mark.vectors("suite.jsonl", "exit_code", departures=DEPARTURES)
def test_exit_codes(vector: Vector, tmp_path: Path) -> None:
    case = vector["input"]["case"]
    assert situation(case)(Desk(tmp_path)) == vector["expected"]["exit"]


def situation(case: str) -> Situation:
    for words, found in SITUATIONS:
        if re.search(words, case, re.IGNORECASE):
            return found
    if re.fullmatch(r"--[\w-]+( \S+)?", case):
        return command("test", *case.split())
    return unknown(f"SITUATIONS does not say what this is: {case}")
