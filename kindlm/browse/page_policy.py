"""The content security policy of Datasette's own pages: what its templates hold runs, nothing else.

What agents said is escaped on these pages, as all values are. The policy is for the day on which
something is not: a script in a cell would not run, and nothing could be sent elsewhere.

Datasette writes scripts into its pages, some with names of tables in them, and knows nothing of
policies. So `<script` is given a nonce where a template is compiled: in its source, which data
never is a part of.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from jinja2 import Environment
from jinja2.ext import Extension
from markupsafe import Markup

__all__ = ["Nonces", "page_nonce", "page_policy"]

_HANDLERS = ("openColumnChooser()",)
"""What attributes of templates of Datasette 1.0 call; handlers can not be given a nonce."""

_SCRIPT = re.compile(r"<script(?=[\s>])", re.IGNORECASE)

_nonce: ContextVar[str | None] = ContextVar("kindlm_nonce", default=None)


@contextmanager
def page_nonce() -> Iterator[str]:
    """Give the scripts of the page that is made meanwhile a new nonce, which nobody can guess."""
    nonce = secrets.token_urlsafe(16)
    # Plugins can ask Datasette for another page while they make one.
    before = _nonce.set(nonce)
    try:
        yield nonce
    finally:
        _nonce.reset(before)


def page_policy(nonce: str) -> str:
    """Return a content security policy under which Datasette's pages work.

    Their styles are inline; images are their own, or written into the styles.
    """
    scripts = " ".join([f"'nonce-{nonce}'", "'unsafe-hashes'", *map(_hash, _HANDLERS)])
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {scripts}",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data:",
            "connect-src 'self'",
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
        ]
    )


class Nonces(Extension):
    """Gives each script of a template the nonce of the page, on pages that have one."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        environment.globals["kindlm_nonce"] = _attribute

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        """Return the source of a template with a place for the nonce in each script."""
        del name, filename
        return _SCRIPT.sub(r"\g<0>{{ kindlm_nonce() }}", source)


def _attribute() -> Markup:
    nonce = _nonce.get()
    return Markup("") if nonce is None else Markup(' nonce="{}"').format(nonce)


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
