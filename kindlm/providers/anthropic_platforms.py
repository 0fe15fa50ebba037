"""What providers of Anthropic's models on Amazon Bedrock, Google Vertex and Foundry share.

The SDK has a class for each platform, which knows its paths and credentials. Signatures and tokens
differ from request to request, so the SDK sends each of them, and nothing is cached between runs.

With `baseUrl`, only the key that `apiKeyEnv` names is sent, or an AWS signature.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from kindlm.dataclass import replace
from kindlm.errors import Err, ErrorCode, KindlmError
from kindlm.plugins import Access, Provider
from kindlm.ports import ModelRequest
from kindlm.providers.anthropic_provider import WIRE, encode
from kindlm.providers.api_format import ApiFormat, ApiRequest
from kindlm.providers.client import WireClient
from kindlm.providers.provider_failures import Endpoint

if TYPE_CHECKING:
    from kindlm.providers.sdk_transport import AsyncSdk, Signing

_FIRST_MAJOR = 1
"""Older SDKs lack a class or a kind of credentials."""


class Platform(Provider):
    """A provider of Anthropic's models."""

    takes_seed: ClassVar[bool] = False
    takes_prefill: ClassVar[bool] = True


def platform_client(
    endpoint: Endpoint,
    make: Callable[..., AsyncSdk],
    wire: ApiFormat,
    *,
    headers: Mapping[str, str] | None = None,
    signing: Signing | None = None,
) -> WireClient | Err:
    """Return the client of a platform; `make` makes the SDK's: see `Sdk`."""
    import anthropic

    from kindlm.providers.sdk_transport import Sdk, SdkTransport, header_names

    if int(anthropic.__version__.partition(".")[0]) < _FIRST_MAJOR:
        message = f"{endpoint.title} needs version {_FIRST_MAJOR} or later of the package anthropic"
        hint = "Update it: pip install --upgrade anthropic"
        return Err(KindlmError(ErrorCode.PROVIDER_NOT_FOUND, message, hint))
    # The SDK itself reads this variable, and only from the process environment. It is Anthropic's.
    names = header_names(os.environ, "ANTHROPIC_CUSTOM_HEADERS")
    ours: dict[str, Any] = {name.lower(): anthropic.Omit() for name in names}
    sdk = Sdk(anthropic, make, ours | dict(headers or {}), signing)
    return WireClient(endpoint, wire, SdkTransport(wire.path, lambda: sdk))


def wire_of_version(version: str) -> ApiFormat:
    """Return Anthropic's wire format with the version in the body, as Bedrock and Vertex want it.

    The SDK would send the version of Anthropic's own API, which takes no sampling parameters.
    """

    def encode_with_version(request: ModelRequest, refused: frozenset[str]) -> ApiRequest:
        sent = encode(request, refused)
        return replace(sent, body={"anthropic_version": version, **sent.body})

    return replace(WIRE, encode=encode_with_version)


def missing_package(access: Access, package: str, extra: str) -> Err:
    """Return the error of a package that a platform needs for its credentials."""
    message = f"The provider {access.name} needs the package {package}, which is not installed"
    hint = f"Install it: pip install 'kindlm[{extra}]'"
    return Err(KindlmError(ErrorCode.PROVIDER_NOT_FOUND, message, hint))
