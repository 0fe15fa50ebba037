"""What ends a scenario before its end."""

from __future__ import annotations

__all__ = ["AgentError", "RequirementFailed", "TrialOver"]


class RequirementFailed(Exception):  # noqa: N818 - no error of the test
    """Something that `t.require` asked for does not hold: the scenario ends here."""


class AgentError(Exception):
    """The agent under test gave no answer; the execution is errored, whoever catches this."""


class TrialOver(BaseException):
    """The trial was cut off, and the function of a test still runs in its thread."""
