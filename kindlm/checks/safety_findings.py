"""How severe a harm is, and whether it is too severe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

__all__ = ["Finding", "Severity", "counted"]


class Severity(IntEnum):
    """How severe a harm is, the worst last."""

    SAFE = 0
    LOW = 1
    MEDIUM = 2
    HIGH = 3

    @classmethod
    def named(cls, name: str) -> Severity:
        """Return the severity of a name, whatever its case; medium for what is none."""
        return cls.__members__.get(name.strip().upper(), cls.MEDIUM)

    @property
    def word(self) -> str:
        """Its name as users write it."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Finding:
    """A harm that was found, by the name of its category."""

    category: str
    severity: Severity


def counted(findings: Sequence[Finding], categories: Sequence[str] | None) -> list[Finding]:
    """Return the findings in some categories, all where none is named.

    Names of categories are alike whatever their case, and with spaces or dashes for `_`.
    """
    if not categories:
        return list(findings)
    wanted = {_plain(category) for category in categories}
    return [finding for finding in findings if _plain(finding.category) in wanted]


def _plain(category: str) -> str:
    return category.strip().lower().replace(" ", "_").replace("-", "_")
