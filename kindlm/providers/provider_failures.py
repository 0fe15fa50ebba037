"""The errors of providers: codes, messages and hints.

`details` hold `status`, `retry_after`, `retryable` and the whole `body`. `resend` is set if the
provider rejected something that kindlm added, `quotas` for a failing status, and `unpaid` for an
account that has to pay first. Clients add `usage` and `model` of an unusable answer that reports
its tokens. No text contains the provider's key, even if the provider echoed it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from kindlm.dataclass import dataclass, replace
from kindlm.errors import Err, ErrorCode, KindlmError, unanswered
from kindlm.providers.quota import quotas
from kindlm.strict_json import json_or_text
from kindlm.transcript import Usage
from kindlm.unreachable import rate_limit_hint, retry_after, unreachable_reason
from kindlm.wires import error_message, object_or_empty
from kindlm_store import Redactor

_QUOTED_CHARACTERS = 200
_ADDRESS_PART = re.compile(r"[a-z0-9-]+(?:[.:][a-z0-9-]+)*", re.IGNORECASE | re.ASCII)
"""Contains no character that ends a host name or path segment. Old Google projects have `.:`."""
_TITLES = {"openai": "OpenAI", "anthropic": "Anthropic", "ollama": "Ollama"}
# As in the providers' own SDKs: 409 is a lock that timed out.
_RETRYABLE_STATUSES = frozenset({408, 409, 429})


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An HTTP answer, read to its end. Header names may have any case."""

    status: int
    headers: Mapping[str, str]
    text: str


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A provider as messages describe it, and its errors, which never contain its key."""

    provider: str
    base_url: str
    key_variable: str | None = None
    key: str = ""

    @property
    def title(self) -> str:
        return _TITLES.get(self.provider, self.provider)

    @property
    def address_key(self) -> str:
        """The key of its address in kindlm.yaml and in kindlm.toml, for hints."""
        return f"providers.{self.provider}.baseUrl (base_url of [llm] in kindlm.toml)"

    def without_key(self, text: str) -> str:
        """Return a text without the key, in any encoding."""
        if not self.key:
            return text
        # A key shorter than the redactor's minimum is still the key.
        return _redactor(self.key)(text).replace(self.key, "[redacted]")

    def timed_out(self, timeout_s: float) -> KindlmError:
        return self._failed(
            f"{self.title} request timed out after {timeout_s * 1000:.0f} ms",
            "Raise defaults.timeoutMs (eval.default_timeout in kindlm.toml), or check whether the "
            "provider is slow",
            code=ErrorCode.PROVIDER_TIMEOUT,
            retryable=True,
        )

    def unreachable(self, error: BaseException) -> KindlmError:
        """Return the error of a call without a complete answer."""
        at = also = ""
        if self.base_url:
            parts = urlsplit(self.base_url)
            # A URL may hold credentials, which stay out.
            at = f" at {parts.scheme}://{parts.netloc.rpartition('@')[2]}"
            also = f", and {self.address_key} if it is set"
        return self._failed(
            f"No answer from {self.title}{at}: {unreachable_reason(error)}",
            f"Check the network{also}",
            code=ErrorCode.PROVIDER_NETWORK_ERROR,
            retryable=True,
        )

    def without_credentials(self, reason: str, hint: str) -> KindlmError:
        """Return the error of missing or expired credentials."""
        message = f"No valid credentials for {self.title}: {self._quoted(reason)}"
        return self._failed(message, hint, code=ErrorCode.PROVIDER_AUTH_ERROR)

    def crashed(self, reason: str) -> KindlmError:
        """Return the error of a call that failed in the provider's library, without a status."""
        return self._failed(f"The call to {self.title} failed: {self._quoted(reason)}")

    def sent_too_much(self, limit: int) -> KindlmError:
        return self._failed(
            f"{self.title} sent more than {limit // 1_000_000} MB",
            f"Check that {self.address_key} is the API itself, or ask for shorter answers",
        )

    def unreadable(self, answer: HttpAnswer, reason: str) -> KindlmError:
        is_page = answer.text.lstrip().startswith("<")
        return self._failed(
            f"{self.title} sent an answer that cannot be used ({self._quoted(reason)})"
            f": {self._quoted(answer.text)}",
            f"Check that {self.address_key} is the API itself{', not a web page' * is_page}",
            status=answer.status,
            body=answer.text,
        )

    def cut_off(self, body: str) -> KindlmError:
        """Return the error of an answer cut off because kindlm left no room for reasoning."""
        message = f"{self.title} cut its answer off: kindlm asks again with room for reasoning"
        return self._failed(message, retryable=True, resend=True, body=body)

    def refused_parameter(self, answer: HttpAnswer, parameter: str) -> KindlmError:
        """Return the error of a model that rejects a parameter of the user."""
        message = f"{self.title} refused the parameter `{parameter}`: {self._reason(answer.text)}"
        hint = f"Remove {parameter} from the model's params"
        return self._failed(message, hint, status=answer.status, body=answer.text)

    def refused_defaults(self, answer: HttpAnswer, parameters: Iterable[str]) -> KindlmError:
        """Return the error of a model that rejects parameters that the user did not set."""
        names = ", ".join(f"`{name}`" for name in sorted(parameters))
        message = f"{self.title} refused {names}, which kindlm sends by default: "
        message += self._reason(answer.text)
        status, body = answer.status, answer.text
        return self._failed(message, status=status, retryable=True, resend=True, body=body)

    def refused(self, answer: HttpAnswer) -> KindlmError:
        now = datetime.now(UTC)
        status, wait = answer.status, retry_after(answer.headers, now)
        retryable = status in _RETRYABLE_STATUSES or status >= 500
        unpaid = status == 429 and _is_unpaid(answer.text)
        advice = answer.headers.get("x-should-retry")
        if advice in ("true", "false"):
            retryable = advice == "true"
        title, reason = self.title, self._reason(answer.text)
        key = self.key_variable
        key = key or f"providers.{self.provider}.apiKeyEnv (api_key_env of [llm] in kindlm.toml)"
        code, message = ErrorCode.PROVIDER_API_ERROR, f"{title} returned {status}: {reason}"
        hint = "The provider rejected the request for the reason in the message"
        match status:
            case 401 | 403:
                code = ErrorCode.PROVIDER_AUTH_ERROR
                what = "API key is invalid or missing" if status == 401 else "denied access"
                message = f"{title} {what} ({status}): {reason}"
                hint = f"Check the key, and whether it may use this model: {key}"
            case 404:
                hint = f"Check the model's name and {self.address_key}"
            case 408:
                code, message = ErrorCode.PROVIDER_TIMEOUT, f"{title} timed out (408): {reason}"
                hint = "Try again later, or raise defaults.retries of kindlm.yaml"
            case 429 if unpaid:
                retryable = False
                code = ErrorCode.PROVIDER_RATE_LIMIT
                message = f"{title} takes no calls from this account: {reason}"
                hint = "Check the plan and the billing of the account: retrying does not help"
            case 429:
                unit = "second" if wait == 1 else "seconds"
                after = "" if wait is None else f". Retry after {wait:g} {unit}"
                code, message = ErrorCode.PROVIDER_RATE_LIMIT, f"{title} rate limit hit{after}"
                hint = rate_limit_hint(wait)
            case _ if status >= 500:
                hint = f"{title} has a problem: try again later, or raise defaults.retries of"
                hint += " kindlm.yaml"
            case _ if status < 400:
                hint = f"Check that {self.address_key} is the API itself, and does not redirect"
        return self._failed(
            message,
            hint,
            code=code,
            status=status,
            retry_after=wait,
            retryable=retryable,
            body=answer.text,
            quotas=quotas(answer.headers, now),
            unpaid=unpaid,
        )

    def _failed(
        self, message: str, hint: str | None = None, *, body: str | None = None, **more: Any
    ) -> KindlmError:
        shown = None if body is None else self.without_key(body)
        return unanswered(self.without_key(message), hint, body=shown, **more)

    def _reason(self, body: str) -> str:
        """Return the provider's error message, or the body."""
        return self._quoted(error_message(json_or_text(body)) or body) or "no explanation"

    def _quoted(self, text: str) -> str:
        # The key is removed first: a part of it would not be recognised.
        text = " ".join(self.without_key(text).split())
        return text if len(text) <= _QUOTED_CHARACTERS else text[:_QUOTED_CHARACTERS] + "…"


@lru_cache(maxsize=16)
def _redactor(key: str) -> Redactor:
    return Redactor([key])


_UNPAID = ("insufficient_quota", "billing_not_active")


def _is_unpaid(body: str) -> bool:
    error = object_or_empty(object_or_empty(json_or_text(body)).get("error"))
    return error.get("code") in _UNPAID or error.get("type") in _UNPAID


def billed(error: KindlmError, usage: Usage, model: str | None) -> KindlmError:
    """Return the error of an answer with the tokens that the answer reports."""
    if usage == Usage():
        return error
    return replace(error, details={**error.details, "usage": usage, "model": model})


def bad_address_part(provider: str, key: str, value: str | None) -> Err | None:
    """Return the error of an option that is part of an address; None if it is valid."""
    if value is not None and _ADDRESS_PART.fullmatch(value):
        return None
    problem = "cannot be a part of an address" if value else "is missing"
    message = f"The {key} of the provider {provider} {problem}"
    hint = f"Set providers.{provider}.{key} to the name alone, without https://"
    return Err(KindlmError(ErrorCode.CONFIG_VALIDATION_ERROR, message, hint))


def missing_key(provider: str, variable: str) -> KindlmError:
    """Return the error of a provider whose key is not in the environment."""
    message = f"{_TITLES.get(provider, provider)} API key is missing: {variable} is not set"
    hint = f"Set {variable} in your environment or .env file"
    return KindlmError(ErrorCode.PROVIDER_AUTH_ERROR, message, hint)


def unusable_key(provider: str, variable: str) -> KindlmError:
    """Return the error of a key that no HTTP header can carry."""
    return KindlmError(
        ErrorCode.PROVIDER_AUTH_ERROR,
        f"{_TITLES.get(provider, provider)} API key in {variable} contains characters that are"
        f" not valid in a key",
        f"Copy the key into {variable} again: spaces, quotes or line ends may have come with it",
    )
