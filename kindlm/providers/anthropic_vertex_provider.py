"""The `anthropic-vertex` provider: Anthropic's models on Google Vertex AI.

Requests have an access token, from Google's Application Default Credentials or from the variable
that `apiKeyEnv` names:
https://cloud.google.com/vertex-ai/generative-ai/docs/partner-models/claude/use-claude
"""

from __future__ import annotations

import os
from typing import Any, ClassVar

from pydantic import Field

from kindlm.errors import Err, ErrorCode, KindlmError
from kindlm.plugins import Access, Maybe, Provider, Text
from kindlm.providers.anthropic_provider import missing_package, platform_client, wire_of_version
from kindlm.providers.client import WireClient
from kindlm.providers.provider_failures import Endpoint, bad_address_part
from kindlm.section import HostPart

_WIRE = wire_of_version("vertex-2023-10-16")
_HINT = "Run: gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS"
_FILE = "GOOGLE_APPLICATION_CREDENTIALS"


class AnthropicVertex(Provider):
    """Calls Google Vertex AI. google-auth finds the credentials."""

    takes_seed: ClassVar[bool] = False
    takes_prefill: ClassVar[bool] = True
    address_variable: ClassVar[str] = "ANTHROPIC_VERTEX_BASE_URL"

    location: Maybe[HostPart] = Field(default=None, examples=["global"])
    """Where the models run: a region, or `global`. Required for `vertex`; for `anthropic-vertex`,
    by default CLOUD_ML_REGION."""

    project: Maybe[Text] = Field(default=None, examples=["my-project"])
    """The id of the Google Cloud project. Required for `vertex`; for `anthropic-vertex`, by default
    ANTHROPIC_VERTEX_PROJECT_ID, or GOOGLE_CLOUD_PROJECT."""

    def connect(self, access: Access) -> WireClient | Err:
        from kindlm.providers.sdk_transport import Signing

        environ = access.environ
        location = self.location or environ.get("CLOUD_ML_REGION")
        project = self.project or environ.get("ANTHROPIC_VERTEX_PROJECT_ID")
        project = project or environ.get("GOOGLE_CLOUD_PROJECT")
        if wrong := bad_address_part(access.name, "location", location):
            return wrong
        if wrong := bad_address_part(access.name, "project", project):
            return wrong
        assert location is not None
        assert project is not None
        if access.base_url is not None and access.key is None:
            message = f"kindlm sends no Google credentials to the baseUrl of {access.name}"
            key = f"providers.{access.name}.apiKeyEnv (api_key_env of [llm] in kindlm.toml)"
            hint = f"Name a variable with an access token: {key}"
            return Err(KindlmError(ErrorCode.PROVIDER_AUTH_ERROR, message, hint))
        base_url = access.base_url or self.ambient_address(environ) or _address(location)
        endpoint = Endpoint(access.name, base_url, access.key_variable or _FILE, access.key or "")
        file = environ.get(_FILE)
        if access.key is None and file and file != os.environ.get(_FILE):
            # google-auth would take other credentials, and another account would pay.
            message = f"{_FILE} is only in .env, where google-auth does not read it"
            return Err(endpoint.without_credentials(message, f"Export {_FILE} in your shell"))
        try:
            from google.auth.exceptions import GoogleAuthError
        except ImportError:
            if access.key is None:
                return missing_package(access, "google-auth", "vertex")
            signing = Signing((), _HINT)
        else:
            # The SDK raises a RuntimeError if the credentials yield no token.
            signing = Signing((GoogleAuthError, RuntimeError), _HINT)

        def make(**settings: Any) -> Any:
            import anthropic

            return anthropic.AsyncAnthropicVertex(
                region=location,
                project_id=project,
                access_token=access.key,
                base_url=base_url,
                **settings,
            )

        return platform_client(endpoint, make, _WIRE, signing=signing)


def _address(location: str) -> str:
    match location:
        case "global":
            return "https://aiplatform.googleapis.com/v1"
        case "us" | "eu":
            return f"https://aiplatform.{location}.rep.googleapis.com/v1"
        case _:
            return f"https://{location}-aiplatform.googleapis.com/v1"
