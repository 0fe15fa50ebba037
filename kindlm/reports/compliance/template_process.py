"""A template of a user, rendered in a process of its own that cannot take more than it may.

The sandbox of Jinja keeps a template from reaching what it should not, not from counting to a
billion. The limits of the operating system do, whatever the template finds to do.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from kindlm.reports.compliance.rendering import render

_CPU_S = 10
_MEMORY_MIB = 512
"""What the process may have, also for itself, where the operating system can limit that."""

_OUTPUT_MIB = 16
"""How long the document may be: the process that wants it has no limit of memory."""

_DEADLINE_S = 60.0
"""Then the process is ended, however little time of a processor it had."""

# `-P` and this order: nothing of the folder that happens to be the current one is imported.
_START = (
    "import sys, json; sys.path[:] = json.loads(sys.argv.pop()); "
    "from kindlm.reports.compliance.template_process import main; main()"
)
_NEEDED = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")
"""What Python may need of our environment to start; no key of a provider is among it."""

_MIB = 1024 * 1024

_PLACE = re.compile(r" at 0x[0-9a-fA-F]+")

_LONGEST_REASON = 10_000
"""Characters: a template can name what does not exist, at any length."""


class TemplateFailedError(Exception):
    """A template cannot be rendered; the text says why."""


def render_apart(
    source: str,
    facts: Mapping[str, Any],
    *,
    cpu_s: int = _CPU_S,
    memory_mib: int = _MEMORY_MIB,
    output_mib: int = _OUTPUT_MIB,
    deadline_s: float = _DEADLINE_S,
) -> str:
    """Return what a template says of facts, values of JSON.

    Raises:
        TemplateFailedError: It is wrong, or takes more than it may.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-Pc", _START, json.dumps(sys.path)],
            input=json.dumps([cpu_s, memory_mib, output_mib, source, facts]).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=deadline_s,
            env=environ_of_templates(),
            # Ctrl-C is for us; this ends with us, or by its limits.
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TemplateFailedError(f"it takes more than {deadline_s} seconds") from None
    except OSError as error:
        reason = f"no process for it could be started: {error.strerror}"
        raise TemplateFailedError(reason) from error
    # Not every system has the signal: its number is looked up by its name.
    if -done.returncode == getattr(signal, "SIGXCPU", None):
        raise TemplateFailedError(f"it takes more than {cpu_s} seconds of processor time")
    if done.returncode:
        reason = "its process ended before it was done, as it does without memory"
        raise TemplateFailedError(reason)
    text, problem = json.loads(done.stdout)
    if problem is not None:
        raise TemplateFailedError(problem)
    return str(text)


def environ_of_templates() -> dict[str, str]:
    """Return the environment that templates are rendered in."""
    kept = {name: os.environ[name] for name in _NEEDED if name in os.environ}
    # The order of a set must not be another one each time.
    return {**kept, "PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}


def main() -> None:
    """Read limits, template and facts, write `[text, null]` or `[null, what is wrong]`, as JSON.

    The limit of time ends the process without an answer.
    """
    answer: list[str | None]
    cpu_s, memory_mib, output_mib, source, facts = json.load(sys.stdin)
    _limit(cpu_s, memory_mib * _MIB)
    try:
        text = render(source, facts)
        answer = [text, None]
        if len(text.encode("utf-8", "replace")) > output_mib * _MIB:
            answer = [None, f"what it writes is longer than {output_mib} MiB"]
    except MemoryError:
        answer = [None, f"it takes more than {memory_mib} MiB of memory"]
    except RecursionError:
        answer = [None, "it calls itself too often, or nests too deeply"]
    except Exception as error:  # noqa: BLE001 - expressions of a template raise anything
        # Where something is in memory is another place each time.
        reason = _PLACE.sub("", str(error)[:_LONGEST_REASON]).rstrip(".")
        answer = [None, reason or type(error).__name__]
    json.dump(answer, sys.stdout)


def _limit(cpu_s: int, memory: int) -> None:
    """Ask the operating system for the limits; what it does not have, the deadline stands for."""
    try:
        import resource
    except ImportError:
        return
    wanted = {
        resource.RLIMIT_CPU: (cpu_s, cpu_s + 1),
        resource.RLIMIT_AS: (memory, memory),
        resource.RLIMIT_CORE: (0, 0),
    }
    for limit, values in wanted.items():
        # Less than that may be all we are allowed to ask for, and some systems have no such limit.
        with suppress(OSError, ValueError):
            resource.setrlimit(limit, values)
