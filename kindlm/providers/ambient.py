"""Which settings of the environment reach a provider, and which must not.

The SDKs read more of the environment than a key: a base URL, an organization, further headers.
Users of a gateway count on that, so it holds as long as the configuration leaves `baseUrl` unset.
A configured `baseUrl` names another server: nothing ambient is sent there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping


def header_names(environ: Mapping[str, str], variable: str) -> Iterator[str]:
    """Return the names of the headers that an SDK takes from a variable of `name: value` lines."""
    for line in environ.get(variable, "").split("\n"):
        name, colon, _ = line.partition(":")
        if colon:
            yield name.strip()
