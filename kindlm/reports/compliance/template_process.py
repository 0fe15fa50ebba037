"""A template of a user, rendered in a process of its own that can not take more than it may."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from kindlm.reports.compliance.template_limits import LIMITS, Limits

# `-P` and this order: nothing of the folder that happens to be the current one is imported.
_START = (
    "import sys, json; sys.path[:] = json.loads(sys.argv.pop()); "
    "from kindlm.reports.compliance.template_worker import main; main()"
)
_NEEDED = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")
"""What Python may need of our environment to start; no key of a provider is among it."""


class TemplateFailedError(Exception):
    """A template can not be rendered; the text says why."""


def render_apart(source: str, facts: Mapping[str, Any], limits: Limits = LIMITS) -> str:
    """Return what a template says of facts, values of JSON.

    Raises:
        TemplateFailedError: It is wrong, or takes more than it may.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-Pc", _START, json.dumps(sys.path)],
            input=json.dumps([asdict(limits), source, facts]).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=limits.deadline_s,
            env=environ_of_templates(),
            # Ctrl-C is for us; this ends with us, or by its limits.
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        reason = f"it takes more than {limits.deadline_s} seconds"
        raise TemplateFailedError(reason) from None
    except OSError as error:
        reason = f"no process for it could be started: {error.strerror}"
        raise TemplateFailedError(reason) from error
    if done.returncode:
        raise TemplateFailedError(_how_it_ended(done.returncode, limits))
    text, problem = json.loads(done.stdout)
    if problem is not None:
        raise TemplateFailedError(problem)
    return str(text)


def environ_of_templates() -> dict[str, str]:
    """Return the environment that templates are rendered in."""
    kept = {name: os.environ[name] for name in _NEEDED if name in os.environ}
    # The order of a set must not be another one each time.
    return {**kept, "PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}


def _how_it_ended(code: int, limits: Limits) -> str:
    # Not on every system: the number of the signal is looked up by its name.
    if -code == getattr(signal, "SIGXCPU", None):
        return f"it takes more than {limits.cpu_s} seconds of processor time"
    return "its process ended before it was done, as it does without memory"
