"""The process in which a template of a user is rendered: with little time, memory and output.

The sandbox of Jinja keeps a template from reaching what it should not, not from counting to a
billion. The limits of the operating system do, whatever the template finds to do.
"""

from __future__ import annotations

import json
import re
import sys
from contextlib import suppress

from kindlm.reports.compliance.rendering import TooLongError, render
from kindlm.reports.compliance.template_limits import Limits

_MIB = 1024 * 1024
_PLACE = re.compile(r" at 0x[0-9a-fA-F]+")


def main() -> None:
    """Read `[limits, template, facts]`, write `[text, null]` or `[null, what is wrong]`, as JSON.

    The limit of time ends the process without an answer.
    """
    answer: list[str | None]
    given, source, facts = json.load(sys.stdin)
    limits = Limits(**given)
    _keep_to(limits)
    try:
        answer = [render(source, facts, limits.output_mib * _MIB), None]
    except TooLongError:
        answer = [None, f"what it writes is longer than {limits.output_mib} MiB"]
    except MemoryError:
        answer = [None, f"it takes more than {limits.memory_mib} MiB of memory"]
    except RecursionError:
        answer = [None, "it calls itself too often, or nests too deeply"]
    except Exception as error:  # noqa: BLE001 - expressions of a template raise anything
        # Where something is in memory is another place each time.
        answer = [None, _PLACE.sub("", str(error)).rstrip(".") or type(error).__name__]
    json.dump(answer, sys.stdout)


def _keep_to(limits: Limits) -> None:
    """Ask the operating system for the limits; what it does not have, the deadline stands for."""
    try:
        import resource
    except ImportError:
        return
    memory = limits.memory_mib * _MIB
    wanted = {
        resource.RLIMIT_CPU: (limits.cpu_s, limits.cpu_s + 1),
        resource.RLIMIT_AS: (memory, memory),
        resource.RLIMIT_CORE: (0, 0),
    }
    for limit, values in wanted.items():
        # Less than that may be all we are allowed to ask for, and some systems have no such limit.
        with suppress(OSError, ValueError):
            resource.setrlimit(limit, values)
