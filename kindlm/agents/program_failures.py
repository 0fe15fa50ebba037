"""What can go wrong with the program of an agent, in words and codes.

Nothing of it is worth another try: a program that has ended has forgotten the conversation, and
what one did once, it may not be meant to do twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from kindlm.agents import failures
from kindlm.agents.failures import Who
from kindlm.agents.local_sandbox import program_name
from kindlm.agents.process_group import TooMuchOutput
from kindlm.agents.sandbox import SandboxError
from kindlm.errors import ErrorCode, KindlmError

MAX_OUTPUT_BYTES = 10_000_000
"""The longest answer, and the most that may wait to be read."""

TOO_MUCH = f"printed more than {MAX_OUTPUT_BYTES // 1_000_000} MB"
"""What a program did that printed more: a sentence goes on with it."""


def of_program(
    who: Who, words: Sequence[str], what: str, log: str, *, printed: str = ""
) -> KindlmError:
    """Return the error of a program that did something else than answer.

    Args:
        who: the agent.
        words: the program and its arguments, as they are configured.
        what: what it did: a sentence goes on with it.
        log: the end of what it printed as errors.
        printed: what else it printed.
    """
    last_words = who.last_words(log)
    message = f"{who.title}: {who.quote(program_name(words))} {what}"
    return failures.failed(
        who,
        ErrorCode.PROVIDER_API_ERROR,
        f"{message}: {last_words}" if last_words else message,
        "Run its `command` by itself, in the folder of its `cwd`",
        body=_together(printed, log),
    )


def of_exchange(
    who: Who, words: Sequence[str], raised: Exception, log: str, timeout_s: float
) -> KindlmError:
    """Return the error of an exchange that something was raised in.

    Args:
        who: the agent.
        words: the program and its arguments, as they are configured.
        raised: TimeoutError, TooMuchOutput, SandboxError; or of the start, OSError or ValueError.
        log: the end of what it printed as errors.
        timeout_s: how long it had, in seconds.
    """
    if isinstance(raised, TooMuchOutput):
        return of_program(who, words, TOO_MUCH, log)
    if isinstance(raised, SandboxError):
        return of_program(who, words, f"failed with its sandbox, {who.quote(str(raised))}", log)
    name = who.quote(program_name(words))
    if isinstance(raised, TimeoutError):
        return failures.failed(
            who,
            ErrorCode.PROVIDER_TIMEOUT,
            f"{who.title}: {name} did not answer within {timeout_s * 1000:.0f} ms",
            "Raise its `timeoutMs`, or check what it waits for: it must end its answer with a line "
            "end, and flush it",
            body=log,
        )
    reason = (raised.strerror if isinstance(raised, OSError) else None) or str(raised)
    return failures.failed(
        who,
        ErrorCode.PROVIDER_API_ERROR,
        f"{who.title}: {name} could not be started: {who.quote(reason)}",
        "Check its `command` and `cwd`; it is run without a shell",
    )


def _together(printed: str, log: str) -> str:
    return "\n".join(filter(None, (printed, log)))
