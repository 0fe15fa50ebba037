"""What a template of a user may take until its document is written."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a process that renders a template.

    `cpu_s` are seconds of processor time. `memory_mib` is what the process may have, also for
    itself, where the operating system can limit that. `output_mib` is the size of the document.
    After `deadline_s` seconds the process is ended, however little time of a processor it had.
    """

    cpu_s: int = 10
    memory_mib: int = 512
    output_mib: int = 16
    deadline_s: float = 60


LIMITS = Limits()
