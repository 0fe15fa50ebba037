"""What ends a scenario before its end."""

from __future__ import annotations

import asyncio

from kindlm.errors import KindlmError


class RequirementFailed(Exception):  # noqa: N818 - no error of the test
    """Something that `t.require` asked for does not hold: the scenario ends here."""


class AgentError(Exception):
    """The agent under test gave no answer; the execution is errored, whoever catches this."""


class SimulationError(Exception):
    """The model that plays the user said nothing; the execution is errored, whoever catches this.

    Attributes:
        error: why, as it is recorded.
    """

    def __init__(self, error: KindlmError) -> None:
        super().__init__(error.message)
        self.error = error


class TrialOver(BaseException):
    """The trial was cut off, and the function of a test still runs in its thread."""


def raise_unless_of_a_test(error: BaseException) -> None:
    """Raise again what cuts a test off from outside; the rest is what the test itself raised.

    That may be more than an `Exception`: `SystemExit`, and what `pytest.fail` raises.
    """
    if isinstance(error, asyncio.CancelledError | KeyboardInterrupt | GeneratorExit | TrialOver):
        raise error
