"""Renders a page as one HTML document that needs no other file.

The template engine escapes all values. In case it misses one, the document's own policy (CSP)
forbids foreign scripts and resources. The same page is served and written into files; `Links`
defines where its links lead.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from kindlm.dataclass import dataclass
from kindlm.reports.conversation import pretty
from kindlm.reports.figures import duration, money, percent, score
from kindlm.reports.untrusted import bounded, one_line, visible
from kindlm.wording import count


class Links:
    """The addresses of pages and of Datasette's `tables`, None for those that cannot be reached.

    `account` is the name of the reader and where they log out, None without a login. This class
    reaches no page: it serves a file that contains a single page.
    """

    tables: str | None = None
    account: tuple[str, str] | None = None

    def page(self, *parts: str, **query: str) -> str | None:  # noqa: ARG002
        """Return the address of a page, by its path such as `"run", "k3f9x2ab"` and its query."""
        return None


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request for a page of `history`, a file: the name in its path, its query, and its links.

    `regression_threshold` is how far a mean score may fall, None for the default.
    """

    name: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    history: Path = Path()
    links: Links = Links()
    regression_threshold: float | None = None

    @property
    def page(self) -> int:
        """The requested page of a list, from 1; an invalid number counts as 1."""
        written = self.query.get("page", "")
        return max(int(written), 1) if _PAGE.fullmatch(written) else 1


_PAGE = re.compile(r"\d{1,6}", re.ASCII)

_SHOWN_CHARACTERS = 6_000
"""How much text the filter `text` shows if a template gives no other number."""

SIGNS = {"passed": "✓", "failed": "✗", "errored": "!", "skipped": "-"}

MOODS = {
    "passed": "good",
    "failed": "bad",
    "errored": "bad",
    "skipped": "soft",
    "inconclusive": "unsure",
    "running": "soft",
    "interrupted": "unsure",
    "aborted": "unsure",
    "killed": "unsure",
    "incomplete": "unsure",
}
"""The style for the status of a run, a test or an execution, and for an outcome."""


@dataclass(frozen=True, slots=True)
class Document:
    """A page: a template with its values, style sheets and scripts.

    `styles` and `scripts` are names of files beside this module; every page has the style `base`.
    `status` is the HTTP status with which the page is served.
    """

    template: str
    title: str
    values: Mapping[str, Any]
    styles: Sequence[str] = ()
    scripts: Sequence[str] = ()
    status: int = 200


def render(document: Document, links: Links) -> Iterator[str]:
    """Return the whole page in pieces."""
    template = _templates().get_template(document.template)
    return template.generate(
        document.values,
        title=document.title,
        links=links,
        # Files of this package need no escaping.
        style=Markup(_style(document)),  # noqa: S704
        script=Markup(_script(document)),  # noqa: S704
        policy=policy(document),
    )


def render_part(document: Document, links: Links) -> str:
    """Return only the title and the content of a page, which its script replaces to update it."""
    template = _templates().get_template(document.template)
    return template.render(document.values, title=document.title, links=links, part=True)


def render_fragment(template: str, values: Mapping[str, Any]) -> Markup:
    """Return a part of a page, escaped by its template."""
    return Markup(_templates().get_template(template).render(values))  # noqa: S704


def policy(document: Document) -> str:
    """Return the Content-Security-Policy of a page.

    A page with scripts may connect to its own server, to update itself.
    """
    rules = ["default-src 'none'", "base-uri 'none'", "img-src data:"]
    rules.append(f"style-src '{_digest(_style(document))}'")
    if document.scripts:
        rules += [f"script-src '{_digest(_script(document))}'", "connect-src 'self'"]
    rules.append("form-action 'self'")
    return "; ".join(rules)


def _style(document: Document) -> str:
    return "".join(_file(f"styles/{name}.css") for name in ("base", *document.styles))


def _script(document: Document) -> str:
    return "".join(_file(f"scripts/{name}.js") for name in document.scripts)


@lru_cache
def _file(path: str) -> str:
    return files(__package__).joinpath(path).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


@lru_cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("kindlm.reports.pages", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        count=count,
        duration=duration,
        money=money,
        percent=percent,
        pretty=pretty,
        score=score,
        shown=one_line,
        text=lambda text, characters=_SHOWN_CHARACTERS: visible(bounded(text, characters)),
        when=_when,
    )
    environment.globals.update(moods=MOODS, signs=SIGNS)
    return environment


def _when(at: str) -> Markup:
    """Return a recorded time, UTC in ISO 8601, as `2026-01-31 14:05 UTC`."""
    return Markup('<time datetime="{}">{} {} UTC</time>').format(at, at[:10], at[11:16])


def notice_page(
    title: str, message: str, hint: str | None = None, *, status: int = 200
) -> Document:
    """Return a page with a message. `message` and `hint` may contain untrusted text."""
    return Document("notice.html", title, {"message": message, "hint": hint}, status=status)
