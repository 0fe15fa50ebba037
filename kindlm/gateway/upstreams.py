"""The providers that the gateway forwards to: their addresses and keys.

They come from kindlm's environment, or from the `providers` of type `openai` and `anthropic` in the
suites. Agents never see these keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from kindlm.dataclass import dataclass
from kindlm.suite import ProviderSettings

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
