"""kindlm.yaml: from a file to a `Suite`, or to diagnostics with line and column."""

from kindlm.config.credentials import credential_variables, literal_secrets
from kindlm.config.diagnostics import Diagnostic
from kindlm.config.interpolation import bind_services, bind_suite, unset_variables
from kindlm.config.load import LoadedSuite, load_suite, suite_identity
from kindlm.config.published import json_schema, schema_with_packages

__all__ = [
    "Diagnostic",
    "LoadedSuite",
    "bind_services",
    "bind_suite",
    "credential_variables",
    "json_schema",
    "literal_secrets",
    "load_suite",
    "schema_with_packages",
    "suite_identity",
    "unset_variables",
]
