"""All warnings of a configuration, in one pass."""

from __future__ import annotations

from collections.abc import Mapping

from kindlm.config.advice.commands import warn_of_commands
from kindlm.config.advice.limits import warn_of_limits
from kindlm.config.advice.placeholders import warn_of_placeholders
from kindlm.config.advice.requests import warn_of_requests
from kindlm.config.advice.tests import warn_of_tests
from kindlm.config.advice.unused import warn_of_unused
from kindlm.config.credentials import written_in
from kindlm.config.diagnostics import Reporter
from kindlm.config.document import Path, dotted
from kindlm.config.files import ReferencedFiles
from kindlm.config.raw import Raw, items
from kindlm.config.schema import KindlmConfig


def warn(
    config: KindlmConfig,
    raw: Raw,
    reporter: Reporter,
    files: ReferencedFiles,
    environ: Mapping[str, str],
) -> None:
    """Report what has no effect, checks nothing, or cannot be meant.

    `raw` is the file that `config` was made of; some of it is easier to find there. `environ` may
    say where agents are.
    """
    for path, asked_for, message in _not_served(config):
        if asked_for:
            hint = f"Remove `{dotted(path)}`, or set it to false"
            reporter.warning(path, message, hint, reason="not_served")
    for path, agent in items(raw, "agents"):
        for key in ("headers", "env"):
            if written_in({"agents": [{key: agent.get(key)}]}):
                reporter.warning(
                    (*path, key),
                    "A credential is written out here: whoever has this file can use it",
                    "Put it into an environment variable or into .env, and write {{env.NAME}}",
                    reason="credential",
                )
    warn_of_tests(config, reporter)
    warn_of_commands(config, reporter)
    warn_of_requests(config, reporter, environ)
    if not reporter.has_errors:
        # What seems to be unused may be what a wrong reference means.
        warn_of_unused(config, reporter)
    warn_of_limits(config, reporter, files)
    warn_of_placeholders(config, raw, reporter, files)


def _not_served(config: KindlmConfig) -> tuple[tuple[Path, bool, str], ...]:
    """Return what the format has and nothing serves yet: key, whether it is on, what is missing."""
    return ((("upload", "enabled"), config.upload.enabled, "Nothing is uploaded yet"),)
