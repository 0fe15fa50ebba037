"""A page in a real browser, and everything that went wrong on it."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.base import AxeResults
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Response

_SCHEMES = ("light", "dark")
_WIDTHS = {"wide": 1280, "narrow": 360}

_NAMES = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
)
"""The first has no window to draw: the same pages cost it half as much as they cost the second."""

_WCAG = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa")
_COLORS = "color-contrast"
_SIZES = ("target-size", "scrollable-region-focusable", "td-headers-attr", "th-has-data-cells")
"""Rules about what a narrow window changes: sizes, and how tables are laid out."""

_LOOKS = """() => {
  const read = (style) => [
    style.backgroundColor, style.backgroundImage, style.opacity, style.filter, style.mixBlendMode
  ];
  const looks = new Map();
  const alone = [];
  for (const one of document.body.querySelectorAll("*")) {
    const texts = [...one.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE);
    const text = texts.map((node) => node.data).join("").trim();
    const isControl = one.matches("input, select, textarea");
    if (!one.checkVisibility() || !(text || isControl)) continue;
    const { color, fontSize, fontWeight, textShadow } = getComputedStyle(one);
    const isText = /[\\p{L}\\p{N}]/u.test(text) && text.length > 1;
    const look = [color, fontSize, fontWeight, textShadow, isText];
    let isAlone = isControl || one.closest("button, label, [aria-disabled]") !== null;
    for (let over = one; over !== null; over = over.parentElement) {
      const style = getComputedStyle(over);
      look.push(...read(style));
      isAlone ||= ["absolute", "fixed", "sticky"].includes(style.position);
    }
    if (isAlone) alone.push(one);
    else if (!looks.has(look.join())) looks.set(look.join(), one);
  }
  return [...alone, ...looks.values()];
}"""
"""Finds one element of each look: text of the same colour and size on the same backgrounds.

What may lie over something else, and what may be disabled, is found each time.
"""


def find_chromium() -> str:
    """Return the installed Chromium; where there is none, skip the test or let it fail.

    `KINDLM_BROWSER=required` lets it fail.
    """
    for name in _NAMES:
        if (found := shutil.which(name)) is not None:
            return found
    told = f"no Chromium: none of {', '.join(_NAMES)} is on PATH"
    if os.environ.get("KINDLM_BROWSER") == "required":
        pytest.fail(f"{told}, and KINDLM_BROWSER=required", pytrace=False)
    pytest.skip(told)


@dataclass(frozen=True)
class Driven:
    """A browser whose driver's event loop is at rest while no test drives it.

    Between calls Playwright leaves its loop registered as the running one of this thread, where no
    other test could run a loop of its own.
    """

    browser: Browser
    loop: asyncio.AbstractEventLoop

    @contextmanager
    def awake(self) -> Iterator[Browser]:
        """Let the browser be driven."""
        asyncio._set_running_loop(self.loop)
        try:
            yield self.browser
        finally:
            asyncio._set_running_loop(None)


@dataclass
class Visit:
    """A page with what it did that no page of ours may do.

    `problems` are errors of the console (violations of the page's policy are told there), errors of
    scripts, requests that failed, and requests to anywhere else than where the page is from.
    """

    page: Page
    pictures: Path | None
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._seen: dict[Any, Any] = {
            "console": self._said,
            "pageerror": lambda error: self.problems.append(f"script: {error}"),
            "requestfailed": self._failed,
            "request": self._asked,
            "response": self._answered,
        }
        for event, see in self._seen.items():
            self.page.on(event, see)
        self._home = ""

    def open(self, address: str) -> Page:
        """Go to an address, from which on all requests have to go to where it is."""
        self._home = address.partition("#")[0] if address.startswith("file:") else _origin(address)
        self.page.goto(address)
        return self.page

    def leave(self) -> None:
        """Let the page be used for another visit."""
        self.page.goto("about:blank")
        for event, see in self._seen.items():
            self.page.remove_listener(event, see)

    def assert_clean(self) -> None:
        """Fail if anything went wrong so far."""
        assert self.problems == []

    def assert_accessible(
        self, *, colors: bool = True, others: bool = True, sizes: bool = False
    ) -> None:
        """Fail if a rule of WCAG 2.2, level A or AA, that a program can check is broken.

        Rules about colours take most of the time, so they are applied to one element of each look.
        They depend on light and dark, `sizes` on width, and others on neither.
        """
        axe = Axe()
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(axe.axe_script)
        if others:
            tags = {"type": "tag", "values": _WCAG}
            self._apply("document", {"runOnly": tags, "rules": {_COLORS: {"enabled": False}}})
        if sizes:
            self._apply("document", {"runOnly": {"type": "rule", "values": _SIZES}})
        if colors:
            found = f"({{ include: ({_LOOKS})() }})"
            self._apply(found, {"runOnly": {"type": "rule", "values": [_COLORS]}})

    def _apply(self, where: str, options: dict[str, Any]) -> None:
        """Apply rules of axe to what an expression of JavaScript finds."""
        run = f"(options) => axe.run({where}, options)"
        found = AxeResults(self.page.evaluate(run, {**options, "resultTypes": ["violations"]}))
        assert found.violations_count == 0, found.generate_report()

    def assert_looks_well(self, name: str) -> None:
        """Look at the page light and dark, wide and narrow, folded and unfolded.

        What is unfolded is looked at for what shuts people out: it holds what is folded, too.
        """
        for width in _WIDTHS:
            for scheme in _SCHEMES:
                self.look(width, scheme)
                self.picture(f"{name}-{width}-{scheme}")
            self.assert_fits()
        self.unfold()
        self.look("wide", "light")
        self.assert_fits()
        self.assert_accessible()
        self.look("wide", "dark")
        self.assert_accessible(others=False)
        self.look("narrow", "dark")
        self.assert_fits()
        self.assert_accessible(colors=False, others=False, sizes=True)

    def unfold(self) -> None:
        """Open all that is folded."""
        self.page.eval_on_selector_all("details", "all => all.forEach((one) => one.open = true)")

    def assert_fits(self) -> None:
        """Fail if the page as a whole has to be scrolled sideways."""
        wide, inner = self.page.evaluate(
            "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
        assert wide <= inner, f"{wide} px of content in a window of {inner} px"

    def look(self, width: str, scheme: str) -> None:
        """Be as wide as that, and light or dark."""
        self.page.set_viewport_size({"width": _WIDTHS[width], "height": 900})
        self.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")

    def picture(self, name: str) -> None:
        """Keep a picture of the whole page, if pictures are wanted."""
        if self.pictures:
            self.page.screenshot(path=self.pictures / f"{name}.png", full_page=True)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"console: {message.text}")

    def _failed(self, request: Request) -> None:
        self.problems.append(f"request: {request.url}: {request.failure}")

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((self._home, "data:")):
            self.problems.append(f"request to elsewhere: {request.url}")

    def _answered(self, response: Response) -> None:
        if response.status >= 400:
            self.problems.append(f"answer: {response.status} {response.url}")


def _origin(address: str) -> str:
    return "/".join(address.split("/")[:3]) + "/"
