"""Errors of agents under test: their codes and messages.

Codes are those of the error specification; `details` always holds `status`, `retry_after`,
`retryable` and `body`, as with providers; also `tokens` (read, written), `cost_usd` and `model`, if
the body reports them, or a stream before it fails. A failure is never an answer.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from kindlm.agents.reply_parts import WHERE_THE_TEXT_IS, UnreadableReply, error_text
from kindlm.agents.reply_reading import FailedReply, read_spent
from kindlm.agents.tool_entries import calls_anywhere
from kindlm.dataclass import dataclass
from kindlm.errors import ErrorCode, KindlmError, Raised, misuse, unanswered
from kindlm.strict_json import parse_json, read_json
from kindlm.unreachable import rate_limit_hint, retry_after, unreachable_reason
from kindlm.wires import Spent
from kindlm.wording import last_words

SHORTEST_HIDDEN = 6
"""Characters of the shortest credential that is kept out of messages.

It is less than what is taken out of the history: no check reads a message, so that it may lose a
word rather than show a short password. What is shorter still is in too many words.
"""

_CREDENTIALS = re.compile(r"(?<=//)[^/?#]*@|[?#].*", re.DOTALL)
"""What may hold some in an address, of which it is not known that it is a URL."""

_STREAM = re.compile(r"[\ufeff\s]*(?:(?:data|event|id|retry)?:|\{[^\r\n]*[\r\n]+\s*\{)")
_QUOTED_CHARACTERS = 200
_LOOKED_AT = 10_000
_HIDDEN = "[hidden]"
_A_PAGE_CAME = (
    "Check the agent's URL, and whether it requires a login. Answers are sent as "
    "application/json, text/plain or text/event-stream"
)
# Lock timeouts (409), and statuses that ask for another try later, are worth a retry.
_RETRYABLE_STATUSES = frozenset({408, 409, 429})


class AgentFailure(Raised):
    """An exchange with an agent failed; code that opened or called it gets the `error`."""


@dataclass(frozen=True, slots=True)
class Who:
    """The agent, as far as messages need to know it, and its possible errors.

    Attributes:
        name: the user's name for it, `command` for a command.
        secrets: texts that must not appear in any message: credentials it is called with.
    """

    name: str
    secrets: Collection[str] = ()

    @property
    def title(self) -> str:
        """The name at the beginning of a sentence."""
        return f"Agent {self.name!r}"

    def clean(self, text: str) -> str:
        """Return a text without secrets."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(secret, _HIDDEN)
        return text

    def quote(self, text: str) -> str:
        """Return a text short enough for a sentence, in one line and without control characters."""
        # Secrets go first: a cut through one would leave an unrecognisable part.
        line = " ".join(self.clean(text)[:_LOOKED_AT].split())
        line = "".join(character for character in line if character.isprintable())
        return line if len(line) <= _QUOTED_CHARACTERS else line[:_QUOTED_CHARACTERS] + "…"

    def with_last_words(self, message: str, printed: str) -> str:
        """Return a message with the part of a program's output that best explains its end."""
        words = self.quote(last_words(printed.splitlines()))
        return f"{message}: {words}" if words else message

    def failed(
        self,
        message: str,
        hint: str | None = None,
        *,
        body: str | None = None,
        trace: str | None = None,
        spent: Spent | None = None,
        **more: Any,
    ) -> KindlmError:
        """Return an error of an exchange with an agent; the body may report what was `spent`.

        `more` are the `code` and details; see `kindlm.errors.unanswered`.
        """
        if told := spent or read_spent(read_json(body)):
            tokens = [told.usage.input_tokens, told.usage.output_tokens]
            more |= {"tokens": tokens, "cost_usd": told.cost_usd, "model": told.model}
        shown, trace = (None if text is None else self.clean(text) for text in (body, trace))
        return unanswered(self.clean(message), hint, body=shown, trace=trace, **more)

    def misconfigured(self, message: str, hint: str | None = None) -> KindlmError:
        """Return the error of a wrong configuration."""
        return misuse(f"{self.title}: {message}", hint)

    def timed_out(self, timeout_s: float, *, retryable: bool = True) -> KindlmError:
        """Return the error of an exchange that exceeded its time limit."""
        return self.failed(
            f"{self.title} did not answer within {timeout_s * 1000:.0f} ms",
            "Raise `timeoutMs` of the agent or of the defaults (in EvalView cases "
            "`adapter_config.timeout`), or check whether the agent is slow",
            code=ErrorCode.PROVIDER_TIMEOUT,
            retryable=retryable,
        )

    def unreachable(
        self, endpoint: str, error: BaseException, *, has_begun: bool = False
    ) -> KindlmError:
        """Return the error of an exchange without a complete answer, though one may have begun."""
        parts = urlsplit(endpoint)
        # Credentials before the host and in the query are left out.
        address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        message = f"No answer from agent {self.name!r} at {address}: {unreachable_reason(error)}"
        if has_begun:
            message = f"The answer of agent {self.name!r} at {address} broke off"
        hint, code = "Check that the agent runs, and its URL", ErrorCode.PROVIDER_NETWORK_ERROR
        return self.failed(message, hint, code=code, retryable=not has_begun)

    def unreadable(
        self,
        reason: str | UnreadableReply | FailedReply,
        body: str,
        status: int | None = None,
        hint: str = WHERE_THE_TEXT_IS,
    ) -> KindlmError:
        """Return the error of an unusable answer, or of one that reports a failure of the agent.

        A hint of the `reason` comes first. The beginning of the answer is quoted, except for a
        stream: there a secret may come in pieces, which kindlm cannot recognise.
        """
        if isinstance(reason, FailedReply):
            what = f"{self.title} reported an error: {self.quote(str(reason))}"
            where = "See the agent's log"
            return self.failed(what, where, status=status, body=body, spent=reason.spent)
        said = "" if _STREAM.match(body) else self.quote(body)
        own_hint, spent = (None, None) if isinstance(reason, str) else (reason.hint, reason.spent)
        return self.failed(
            f"{self.title} sent an answer that cannot be used ({self.quote(str(reason))})"
            + (f": {said}" if said else ""),
            own_hint or hint,
            status=status,
            body=body,
            spent=spent,
        )

    def sent_page(self, body: str, status: int) -> KindlmError:
        """Return the error of an HTML page that came in place of an answer."""
        return self.unreadable("it sent an HTML page", body, status, _A_PAGE_CAME)

    def refused(self, status: int, headers: Mapping[str, str], body: str) -> KindlmError:
        """Return the error of an unsuccessful HTTP status; header names may have any case."""
        # Its own sentence if there is one, else the body.
        said = self.quote(error_text(read_json(body), body))
        wait = retry_after(headers, datetime.now(UTC))
        code, hint = ErrorCode.PROVIDER_API_ERROR, None
        match status:
            case 401 | 403:
                code = ErrorCode.PROVIDER_AUTH_ERROR
                hint = "Check the agent's `headers` and the environment variables they take"
            case 404 | 405:
                hint = "Check the path of the agent's URL"
            case 408:
                code = ErrorCode.PROVIDER_TIMEOUT
            case 429:
                code = ErrorCode.PROVIDER_RATE_LIMIT
                hint = rate_limit_hint(wait)
            case _ if 300 <= status < 400:
                there = _CREDENTIALS.sub("", headers.get("location", ""))
                said = f"redirects to {self.quote(there)}"
                hint = "Write the address it redirects to as the agent's URL"
        return self.failed(
            f"{self.title} returned {status}: {said}",
            hint,
            code=code,
            status=status,
            retry_after=wait,
            # An agent that reports actions is not asked again, since it would repeat them.
            retryable=(status in _RETRYABLE_STATUSES or status >= 500) and not _shows_calls(body),
            body=body,
        )


def _shows_calls(body: str) -> bool:
    """Return whether a failed answer shows tool calls, or may show some, as streams do."""
    if _STREAM.match(body):
        return True
    try:
        return calls_anywhere(parse_json(body)) is not None
    except ValueError:
        return False
