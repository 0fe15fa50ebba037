"""Renders a page as one HTML document that needs no other file.

The template engine escapes all values. If something unescaped slipped through, the document's own
policy would still prevent foreign scripts and loading. The same page is served and written into
files; `Links` defines where its links lead.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from kindlm.dataclass import dataclass
from kindlm.reports.conversation import pretty
from kindlm.reports.figures import duration, money, percent, score
from kindlm.reports.untrusted import bounded, one_line, visible
from kindlm.wording import count


class Links:
    """Says where something is shown, as a URL; None where a page cannot lead there.

    These are the links of a file that shows one thing: they lead nowhere.
    """

    def runs(self) -> str | None:
        """Return where all runs are listed."""
        return self._page("runs")

    def run(self, run: str) -> str | None:
        """Return where a run is shown, by its id."""
        return self._page("run", run)

    def execution(self, execution: str) -> str | None:
        """Return where an execution is shown, by its id."""
        return self._page("execution", execution)

    def review(self, execution: str) -> str | None:
        """Return where a review of an execution is posted to; None for somebody who only reads."""
        return self._page("review", execution)

    def outputs(self, run: str) -> str | None:
        """Return where the outputs of a run are shown side by side, by its id."""
        return self._page("outputs", run)

    def diff(self, before: str, after: str) -> str | None:
        """Return where two runs are compared, by their ids."""
        return self._page("diff", before=before, after=after)

    def test(self, project: str, suite: str, name: str, target: str) -> str | None:
        """Return where a test is shown over time."""
        return self._page("test", project=project, suite=suite, name=name, target=target)

    def search(self) -> str | None:
        """Return where texts are searched."""
        return self._page("search")

    def tables(self) -> str | None:
        """Return where the tables themselves are shown."""
        return None

    def account(self) -> tuple[str, str] | None:
        """Return who looks, and where they log out; None where there is no login."""
        return None

    def _page(self, *parts: str, **query: str) -> str | None:  # noqa: ARG002
        """Return the address of a page by its kind, what it shows, and what is asked of it."""
        return None


_TEXT = 6_000
"""So many characters of a text are shown where nothing else is said."""

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
"""What the status of a run, a test or an execution, or an outcome, means to a reader."""


@dataclass(frozen=True, slots=True)
class Document:
    """What makes a page: a template with what it shows, style sheets, scripts.

    `styles` and `scripts` are names of files beside this module; every page has the style `base`.
    `status` is that of HTTP, where the page is served.
    """

    template: str
    title: str
    values: Mapping[str, Any]
    styles: Sequence[str] = ()
    scripts: Sequence[str] = ()
    status: int = 200


def render(document: Document, links: Links) -> Iterator[str]:
    """Yield the whole page, piece by piece."""
    style, script = _style(document), _script(document)
    yield from (
        _templates()
        .get_template(document.template)
        .generate(
            document.values,
            title=document.title,
            links=links,
            # The page's own: they are parts of this package.
            style=Markup(style),  # noqa: S704
            script=Markup(script),  # noqa: S704
            policy=policy(document),
        )
    )


def render_part(document: Document, links: Links) -> str:
    """Return the title and the content of a page, nothing around them: what a page renews."""
    return "".join(
        _templates()
        .get_template(document.template)
        .generate(document.values, title=document.title, links=links, part=True)
    )


def render_fragment(template: str, values: Mapping[str, Any]) -> Markup:
    """Return a piece of a page, escaped by its template."""
    return Markup(_templates().get_template(template).render(values))  # noqa: S704


def policy(document: Document) -> str:
    """Return the Content-Security-Policy of a page.

    It may connect to where it came from if it has scripts: to renew itself.
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
        text=_text,
        when=_when,
    )
    environment.globals.update(moods=MOODS, signs=SIGNS)
    return environment


def _text(text: str, characters: int = _TEXT) -> str:
    return visible(bounded(text, characters))


def _when(at: str) -> Markup:
    """Return a time of the log, UTC in ISO 8601, as people read it."""
    return Markup('<time datetime="{}">{} {} UTC</time>').format(at, at[:10], at[11:16])


def notice_page(
    title: str, message: str, hint: str | None = None, *, status: int = 200
) -> Document:
    """Return the page; `message` and `hint` are untrusted texts."""
    return Document("notice.html", title, {"message": message, "hint": hint}, status=status)


def page_number(query: Mapping[str, str]) -> int:
    """Return which page of a list is asked for, from 1; it is 1 if that is not a number."""
    written = query.get("page", "")
    if not written.isascii() or not written.isdigit() or len(written) > 6:
        return 1
    return max(int(written), 1)
