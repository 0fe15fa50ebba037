"""The providers that the gateway forwards to: their addresses and keys.

They come from kindlm's environment, or from the `providers` of type `openai` and `anthropic` in the
suites. Agents never see these keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from kindlm.dataclass import dataclass
from kindlm.strict_json import read_json
from kindlm.suite import ProviderSettings
from kindlm.wires import Wire

WIRES: Mapping[str, Wire] = {
    "openai/chat/completions": "chat",
    "openai/responses": "responses",
    "anthropic/messages": "anthropic",
}
"""The format of requests to a path. Requests to other paths are forwarded, but not understood."""

SILENT = re.compile(
    r"(openai/(audio|conversations|embeddings|files|images|models|moderations|rerank"
    r"|responses/(compact|input_tokens)|traces|uploads|vector_stores|videos)"
    r"|anthropic/(api/event_logging|files|messages/count_tokens|models))(/[\w-]+)*"
)
"""The paths whose answers never contain tool calls."""

ITEMS = {"chat": "messages", "responses": "input", "anthropic": "messages"}
"""The key with the list of messages in requests of a format."""

DEFAULT_BASES = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com/v1",
}
"""The default base URLs of the providers."""


def sent_body(path: str, body: str | None, items: Sequence[str]) -> Any:
    """Return the body of a request as a JSON value, from its separately recorded `items`."""
    sent, wire = read_json(body), WIRES.get(path)
    if items and wire is not None and isinstance(sent, dict):
        sent[ITEMS[wire]] = list(map(read_json, items))
    return sent


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
    of_suites = {each.type: each for each in reversed(list(providers))}
    found = {}
    for name, default in DEFAULT_BASES.items():
        settings = of_suites.get(name)
        variable = (settings and settings.api_key_env) or f"{name.upper()}_API_KEY"
        base = (settings and settings.base_url) or environ.get(f"{name.upper()}_BASE_URL")
        base = base or default
        base, key = base.rstrip("/"), environ.get(variable)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        if name == "anthropic":
            # Clients expect the base URL with or without the version.
            base = base.removesuffix("/v1") + "/v1"
            token = environ.get("ANTHROPIC_AUTH_TOKEN")
            if key:
                headers = {"x-api-key": key}
            elif token:
                headers = {"Authorization": f"Bearer {token}"}
        found[name] = Upstream(base, variable, headers)
    return found
