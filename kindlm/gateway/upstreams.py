"""The providers behind the gateway: their addresses, keys and answers.

Addresses and keys come from kindlm's environment, or from the `providers` of type `openai` and
`anthropic` in the suites. Agents never see these keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field

from kindlm.dataclass import dataclass
from kindlm.ports import RecordedModelCall
from kindlm.strict_json import read_json
from kindlm.suite import ProviderSettings
from kindlm.transcript import Usage
from kindlm.wires import WireAnswer, error_message, object_or_empty, token_count
from kindlm.wires.reading import WIRES, read_answer

DEFAULT_BASES = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com/v1",
}
"""The default base URLs of the providers."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """A provider. `headers` hold its key, and are empty without one.

    `key_variable` is the environment variable with the key: for kindlm the provider's, for agents
    the gateway's.
    """

    base_url: str
    key_variable: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


def upstreams(
    environ: Mapping[str, str], providers: Iterable[ProviderSettings]
) -> dict[str, Upstream]:
    """Return the providers by name; the first settings in suites override the environment."""

    def value_of(variable: str) -> str:
        return environ.get(variable, "").strip()  # a secret of CI often ends with a line break

    of_suites = {each.type: each for each in reversed(list(providers))}
    found = {}
    for name, default in DEFAULT_BASES.items():
        settings = of_suites.get(name)
        variable = (settings and settings.api_key_env) or f"{name.upper()}_API_KEY"
        base = (settings and settings.base_url) or value_of(f"{name.upper()}_BASE_URL") or default
        base, key = base.rstrip("/"), value_of(variable)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        if name == "anthropic":
            # Clients expect the base URL with or without the version.
            base = base.removesuffix("/v1") + "/v1"
            token = value_of("ANTHROPIC_AUTH_TOKEN")
            if key:
                headers = {"x-api-key": key}
            elif token:
                headers = {"Authorization": f"Bearer {token}"}
        found[name] = Upstream(base, variable, headers)
    return found


SILENT = re.compile(
    r"(openai/(audio|conversations|embeddings|files|images|models|moderations|rerank"
    r"|responses/(compact|input_tokens)|traces|uploads|vector_stores|videos)"
    r"|anthropic/(api/event_logging|files|messages/count_tokens|models))(/[\w-]+)*"
)
"""The paths whose answers never contain tool calls."""

FREE = frozenset(
    {"anthropic/messages/count_tokens", "openai/responses/input_tokens", "openai/moderations"}
)
"""The paths whose calls cost nothing and report no tokens."""


@dataclass(frozen=True, slots=True)
class ReceivedAnswer:
    """The HTTP answer to a model call, or to a replayed one (`recorded`).

    Attributes:
        status: 0 if no answer arrived.
        body: None if it cannot be read.
        problem: why the answer is incomplete.
        is_sent: whether the provider may have received the request, and may charge for it.
        hint: what to do about a failure.
    """

    status: int
    content_type: str
    body: str | None
    problem: str | None = None
    recorded: RecordedModelCall | None = None
    is_sent: bool = True
    hint: str = ""


def read_content(path: str, got: ReceivedAnswer) -> tuple[WireAnswer, str | None]:
    """Return the content of an answer, and why it is incomplete, or None."""
    wire, problem = WIRES.get(path), got.problem
    if got.status >= 400:
        reason = error_message(read_json(got.body)) or (got.body or "")[:200].strip()
        refused = f"The provider answered {got.status}: {reason or 'no reason'}"
        return WireAnswer(""), problem or refused
    if path == "openai/embeddings":  # which have only input tokens
        usage = object_or_empty(object_or_empty(read_json(got.body)).get("usage"))
        tokens = token_count(usage.get("prompt_tokens"))
        return WireAnswer("", usage=Usage() if tokens is None else Usage(tokens, 0)), problem
    if wire is None:
        return WireAnswer("", usage=Usage(0, 0) if path in FREE else Usage()), problem
    if got.body is None:
        return WireAnswer(""), problem or "The answer cannot be read."
    answer = read_answer(wire, got.content_type, got.body)
    if answer.error is not None:
        return answer, f"The answer cannot be read: {answer.error}."
    if not answer.complete:
        return answer, problem or "The answer ended before it was complete."
    # An agent may close the connection once the model has finished.
    return answer, None if answer.finish_reason is not None else problem
