"""Errors of agents under test: their codes and messages.

As with providers, `details` always has `status`, `retry_after`, `retryable` and `body`. It also has
`tokens` (input, output), `cost_usd` and `model` if the body, or a stream before its failure,
reports them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from kindlm.agents.hidden_calls import calls_anywhere
from kindlm.agents.reply_parts import WHERE_THE_TEXT_IS, UnreadableReply, error_text
from kindlm.agents.reply_reading import FailedReply
from kindlm.agents.reply_usage import read_spent
from kindlm.dataclass import dataclass
from kindlm.errors import ErrorCode, KindlmError, Raised, misuse, unanswered
from kindlm.strict_json import parse_json, read_json
from kindlm.unreachable import rate_limit_hint, retry_after, unreachable_reason
from kindlm.wires import Spent
from kindlm.wording import last_words

SHORTEST_HIDDEN = 6
"""The length of the shortest credential that is hidden in messages, in characters.

The limit for the history is higher. No check reads messages, so hiding an ordinary word there is
better than showing a short password. Shorter texts occur in too many words.
"""

_CREDENTIALS = re.compile(r"(?<=//)[^/?#]*@|[?#].*", re.DOTALL)
"""The parts of a possible URL that may contain credentials."""

_STREAM = re.compile(r"[\ufeff\s]*(?:(?:data|event|id|retry)?:|\{[^\r\n]*[\r\n]\s*\{)")
_QUOTED_CHARACTERS = 200
_LOOKED_AT = 10_000
_A_PAGE_CAME = (
    "Check the agent's URL, and whether it requires a login. Answers are sent as "
    "application/json, text/plain or text/event-stream"
)
# 409 is a lock timeout, 529 an overload; the others also ask the client to try again later.
_NOT_HANDLED = frozenset({408, 409, 429, 503, 529})


class AgentFailure(Raised):
    """An exchange with an agent failed, with this `error`."""


@dataclass(frozen=True, slots=True)
class Who:
    """Makes the errors of an agent, `command` for a command; none contains its `secrets`."""

    name: str
    secrets: Collection[str] = ()

    @property
    def title(self) -> str:
        return f"Agent {self.name!r}"

    def clean(self, text: str) -> str:
        for secret in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(secret, "[hidden]")
        return text

    def quote(self, text: str) -> str:
        """Return the beginning of a text in one line, without control characters and secrets."""
        # Secrets are hidden first: kindlm would not recognise part of a secret after a cut.
        line = " ".join(self.clean(text)[:_LOOKED_AT].split())
        line = "".join(character for character in line if character.isprintable())
        return line if len(line) <= _QUOTED_CHARACTERS else line[:_QUOTED_CHARACTERS] + "…"

    def with_last_words(self, message: str, printed: str) -> str:
        """Return a message with the line of a program's output that best explains its end."""
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
        """Return an error of an exchange with an agent.

        Without `spent`, kindlm reads the usage from the body. `more` are the `code` and details;
        see `kindlm.errors.unanswered`.
        """
        if spent := spent or read_spent(read_json(body)):
            tokens = [spent.usage.input_tokens, spent.usage.output_tokens]
            more |= {"tokens": tokens, "cost_usd": spent.cost_usd, "model": spent.model}
        shown, trace = (None if text is None else self.clean(text) for text in (body, trace))
        return unanswered(self.clean(message), hint, body=shown, trace=trace, **more)

    def misconfigured(self, message: str, hint: str | None = None) -> KindlmError:
        return misuse(f"{self.title}: {message}", hint)

    def timed_out(self, timeout_s: float, *, retryable: bool = False) -> KindlmError:
        return self.failed(
            f"{self.title} did not answer within {timeout_s * 1000:.0f} ms",
            "Raise `timeoutMs` of the agent or of the defaults (`timeout_ms` in kindlm.toml, "
            "`adapter_config.timeout` in EvalView cases), or check whether the agent is slow",
            code=ErrorCode.PROVIDER_TIMEOUT,
            retryable=retryable,
        )

    def unreachable(
        self, endpoint: str, error: BaseException, *, retryable: bool, has_begun: bool = False
    ) -> KindlmError:
        """Return the error of an exchange without an answer, or with one that broke off."""
        parts = urlsplit(endpoint)
        # Without credentials, which may be before the host or in the query.
        address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        why, code = unreachable_reason(error), ErrorCode.PROVIDER_NETWORK_ERROR
        message = f"No answer from agent {self.name!r} at {address}: {why}"
        hint = "Check that the agent runs, and its URL"
        if has_begun:
            message = f"The answer of agent {self.name!r} at {address} broke off"
            hint = "See the agent's log for why it stopped"
        elif "certificate verify failed" in why:
            hint = "Let the variable SSL_CERT_FILE name the file of the certificate to trust"
        elif "proxy of the environment" in why:
            hint = "Correct ALL_PROXY, HTTP_PROXY or HTTPS_PROXY, or unset it"
        return self.failed(message, hint, code=code, retryable=retryable)

    def unreadable(
        self,
        reason: str | UnreadableReply,
        body: str,
        status: int | None = None,
        hint: str = WHERE_THE_TEXT_IS,
    ) -> KindlmError:
        """Return the error of an answer that is unusable or reports a failure of the agent.

        A hint of the `reason` replaces `hint`. The message quotes the beginning of the answer, but
        not of a stream: kindlm would not recognise a secret in pieces.
        """
        if isinstance(reason, FailedReply):
            what = f"{self.title} reported an error: {self.quote(str(reason))}"
            where = "See the agent's log"
            return self.failed(what, where, status=status, body=body, spent=reason.spent)
        quoted = "" if _STREAM.match(body) else self.quote(body)
        own_hint, spent = (None, None) if isinstance(reason, str) else (reason.hint, reason.spent)
        return self.failed(
            f"{self.title} sent an answer that cannot be used ({self.quote(str(reason))})"
            + (f": {quoted}" if quoted else ""),
            own_hint or hint,
            status=status,
            body=body,
            spent=spent,
        )

    def sent_page(self, body: str, status: int) -> KindlmError:
        return self.unreadable("it sent an HTML page", body, status, _A_PAGE_CAME)

    def refused(
        self, status: int, headers: Mapping[str, str], body: str, *, is_call: bool = False
    ) -> KindlmError:
        """Return the error of an unsuccessful status; `headers` must ignore the case of names."""
        quoted = self.quote(error_text(read_json(body), body))
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
            case _ if 300 <= status < 400 and "location" in headers:
                there = _CREDENTIALS.sub("", headers.get("location", ""))
                quoted = f"redirects to {self.quote(there)}"
                hint = "Write the address it redirects to as the agent's URL"
        return self.failed(
            f"{self.title} returned {status}: {quoted}",
            hint,
            code=code,
            status=status,
            retry_after=wait,
            retryable=is_retryable(status, is_call=is_call) and not _shows_calls(body),
            body=body,
        )


def is_retryable(status: int, *, is_call: bool = False) -> bool:
    """Return whether a request may be sent again; a tool call only if it was not handled."""
    return status in _NOT_HANDLED or (status >= 500 and not is_call)


def _shows_calls(body: str) -> bool:
    """Return whether a failed answer has tool calls, or may have some, as streams may."""
    try:
        return bool(_STREAM.match(body)) or calls_anywhere(parse_json(body)) is not None
    except ValueError:
        return False
