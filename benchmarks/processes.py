"""Whole processes, measured by the operating system: time, CPU seconds, memory.

`in_process` calls a function of this package in a new process. So the process that starts all
others stays small: its memory at that time would count as theirs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ENVIRONMENT = ("PATH", "HOME", "LANG", "TMPDIR", "PYTHONPATH")

_KIBIBYTE = 1 if sys.platform == "darwin" else 1024
"""The unit in which the system reports peak memory, in bytes."""

_BLOCK = 512
"""The unit in which the system reports written data, in bytes."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The time, CPU time and peak memory of a process that ended, and its standard output.

    `written_bytes` is what it wrote to a disk: 0 if the system does not count it, and for files in
    memory.
    """

    wall_s: float
    cpu_s: float
    peak_bytes: int
    written_bytes: int
    output: str


def kindlm(*arguments: str, folder: Path, **environment: str) -> Measured:
    """Run the command line in a folder; an exit code other than 0 ends the benchmark."""
    return measure([sys.executable, "-m", "kindlm", *arguments], folder=folder, **environment)


def measure(command: Sequence[str], *, folder: Path, **environment: str) -> Measured:
    """Run a command and measure it, from its start until its exit.

    Raises:
        RuntimeError: It failed; the message contains its standard error.
    """
    kept = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        began = time.perf_counter()
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**kept, "CI": "true", **environment},
            stdout=out,
            stderr=errors,
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        for file in (out, errors):
            file.seek(0)
        if process.returncode:
            message = (
                f"{' '.join(command)} ended with {process.returncode}: {errors.read()[-2000:]}"
            )
            raise RuntimeError(message)
        cpu_s = usage.ru_utime + usage.ru_stime
        peak, written = usage.ru_maxrss * _KIBIBYTE, usage.ru_oublock * _BLOCK
        return Measured(wall_s, cpu_s, peak, written, out.read())


def in_process(function: str, /, **arguments: Any) -> Any:
    """Call a function in a separate process; its arguments and its result are JSON values.

    `function` is `module.function` in this package.
    """
    command = [sys.executable, "-m", "benchmarks.processes", function, json.dumps(arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def _main(function: str, arguments: str) -> None:
    import importlib

    module, _, name = function.rpartition(".")
    found = getattr(importlib.import_module(f"benchmarks.{module}"), name)
    print(json.dumps(found(**json.loads(arguments))))


if __name__ == "__main__":
    _main(*sys.argv[1:])
