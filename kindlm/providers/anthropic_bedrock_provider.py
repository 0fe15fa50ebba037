"""The `anthropic-bedrock` provider: Anthropic's models on Amazon Bedrock.

Requests are signed with AWS credentials, or have a Bedrock API key:
https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-anthropic-claude-messages-request-response.html
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from kindlm.errors import Err
from kindlm.plugins import Access, Maybe, Provider
from kindlm.providers.anthropic_provider import missing_package, platform_client, wire_of_version
from kindlm.providers.client import WireClient
from kindlm.providers.provider_failures import Endpoint, bad_address_part
from kindlm.section import HostPart

_WIRE = wire_of_version("bedrock-2023-05-31")
_HINT = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run: aws sso login"


class AnthropicBedrock(Provider):
    """Calls Amazon Bedrock. boto3 finds the credentials in variables, a profile or a role."""

    takes_seed: ClassVar[bool] = False
    takes_prefill: ClassVar[bool] = True
    address_variable: ClassVar[str] = "ANTHROPIC_BEDROCK_BASE_URL"

    region: Maybe[HostPart] = Field(default=None, examples=["us-east-1"])
    """The AWS region. Required for `bedrock`; for `anthropic-bedrock`, by default AWS_REGION,
    AWS_DEFAULT_REGION, or the region of the profile."""

    def connect(self, access: Access) -> WireClient | Err:
        from kindlm.providers.sdk_transport import Signing

        environ, key = access.environ, access.key
        if key is None and access.base_url is None:
            key = environ.get("AWS_BEARER_TOKEN_BEDROCK") or None
        # Variables may be empty, as that of a secret that a CI does not have.
        key_id = environ.get("AWS_ACCESS_KEY_ID") or None
        profile = None if key_id else environ.get("AWS_PROFILE") or None
        region = self.region or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
        try:
            import boto3
            from botocore.exceptions import BotoCoreError, ClientError
        except ImportError:
            if key is None:
                return missing_package(access, "boto3", "bedrock")
            signing = Signing((), _HINT)
        else:
            # The SDK raises a RuntimeError if boto3 finds no credentials.
            signing = Signing((BotoCoreError, ClientError, RuntimeError), _HINT)
            if region is None:
                try:
                    region = boto3.Session(profile_name=profile).region_name
                except BotoCoreError as error:
                    return Err(Endpoint(access.name, "").without_credentials(str(error), _HINT))
        if wrong := bad_address_part(access.name, "region", region):
            return wrong
        base_url = access.base_url or self.ambient_address(environ)
        base_url = base_url or f"https://bedrock-runtime.{region}.amazonaws.com"
        variable = access.key_variable or ("AWS_PROFILE" if profile else "AWS_ACCESS_KEY_ID")
        endpoint = Endpoint(access.name, base_url, variable, key or "")

        def make(**settings: Any) -> Any:
            from anthropic import AsyncAnthropicBedrock

            client = AsyncAnthropicBedrock(aws_region=region, base_url=base_url, **settings)
            # Set afterwards, as they would clash with variables that the constructor reads.
            client.api_key = key
            client.aws_profile, client.aws_access_key = profile, key_id
            if key_id is not None:
                client.aws_secret_key = environ.get("AWS_SECRET_ACCESS_KEY")
                client.aws_session_token = environ.get("AWS_SESSION_TOKEN")
            return client

        return platform_client(endpoint, make, _WIRE, signing=signing)
