"""The providers that the gateway forwards to: their addresses and keys.

They come from the environment of kindlm, or from the `providers` of the suites of the type `openai`
or `anthropic`. Agents never see these keys.
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
"""The format of what is posted to a provider's path; other paths pass and are not understood."""

SILENT = re.compile(
    r"(openai/(audio|conversations|embeddings|files|images|models|moderations|rerank"
    r"|responses/(compact|input_tokens)|traces|uploads|vector_stores|videos)"
    r"|anthropic/(api/event_logging|files|messages/count_tokens|models))(/[\w-]+)*"
)
"""The paths where no model answers with a tool call."""

ITEMS = {"chat": "messages", "responses": "input", "anthropic": "messages"}
"""Where the list of messages stands in a request of a format."""


DEFAULT_BASES = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com/v1",
}
"""What comes before a path of a provider, where nothing else is said."""


def sent_body(path: str, body: str | None, items: Sequence[str]) -> Any:
    """Return the JSON value that was posted to a path; its messages are recorded one by one."""
    sent, wire = read_json(body), WIRES.get(path)
    if items and wire is not None and isinstance(sent, dict):
        sent[ITEMS[wire]] = list(map(read_json, items))
    return sent


@dataclass(frozen=True, slots=True)
class Upstream:
    """A provider; `base_url` is what comes before a path such as `chat/completions`.

    `key_variable` names the variable of its key, of kindlm's there and of the gateway's for agents.
    `headers` are empty without one.
    """

    base_url: str
    key_variable: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


def upstreams(
    environ: Mapping[str, str], providers: Iterable[ProviderSettings]
) -> dict[str, Upstream]:
    """Return the providers by name; what a suite says of one counts before the environment."""
    written = {each.type: each for each in reversed(list(providers))}
    found = {}
    for name, default in DEFAULT_BASES.items():
        said = written.get(name)
        variable = (said and said.api_key_env) or f"{name.upper()}_API_KEY"
        base = (said and said.base_url) or environ.get(f"{name.upper()}_BASE_URL") or default
        base, key = base.rstrip("/"), environ.get(variable)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        if name == "anthropic":
            # With and without its version: clients differ.
            base = base.removesuffix("/v1") + "/v1"
            token = environ.get("ANTHROPIC_AUTH_TOKEN")
            if key:
                headers = {"x-api-key": key}
            elif token:
                headers = {"Authorization": f"Bearer {token}"}
        found[name] = Upstream(base, variable, headers)
    return found


def lacks_keys(environ: Mapping[str, str], providers: Iterable[ProviderSettings]) -> bool:
    """Return whether no key is known, and calls go to OpenAI and Anthropic themselves."""
    return all(
        not upstream.headers and upstream.base_url == DEFAULT_BASES[name]
        for name, upstream in upstreams(environ, providers).items()
    )
