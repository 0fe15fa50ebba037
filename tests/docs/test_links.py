"""No link is dead: in a page, as GitHub and the site show it, or in a message of kindlm."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from kindlm.errors import DOCS

ROOT = Path(__file__).parents[2]
PAGES = [
    path
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "store/*.md")
    for path in sorted(ROOT.glob(pattern))
]
NAMED = re.compile(r"\{DOCS\}/[\w/#-]+|(?<!/)docs/[a-z-]+/[a-z-]+\.md[\w#-]*")
SITE = f"{DOCS}/"
REPOSITORY = re.compile(r"https://github\.com/kindlm/kindlm/(tree|blob)/main/")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_pages_lead_somewhere(page: Path) -> None:
    for target in set(_links(_tokens(page))):
        inside = target.startswith("#")
        _assert_leads_somewhere(f"{page.name}{target}" if inside else target, page.parent)


def test_pages_that_messages_name_are_there() -> None:
    named = {
        target
        for module in (ROOT / "kindlm").glob("**/*.py")
        for target in NAMED.findall(module.read_text("utf-8"))
    }
    assert named
    for target in named:
        _assert_leads_somewhere(target.replace("{DOCS}/", SITE), ROOT)


def _assert_leads_somewhere(target: str, folder: Path) -> None:
    address, _, anchor = target.partition("#")
    if address.startswith(SITE):
        page = address.removeprefix(SITE).rstrip("/") or "index"
        address, folder = f"docs/{page}.md", ROOT
    elif found := REPOSITORY.match(address):
        address, folder = address[found.end() :], ROOT
    if re.match(r"[a-z]+:", address):
        return
    path = folder / address
    assert path.exists(), target
    if anchor:
        assert anchor in _anchors(path), target


def _links(tokens: list[Token]) -> Iterator[str]:
    for token in tokens:
        yield from _links(token.children or [])
        found = token.attrGet("href") or token.attrGet("src")
        if found:
            yield str(found)


@cache
def _anchors(page: Path) -> set[str]:
    tokens = _tokens(page)
    headings = [after for token, after in pairwise(tokens) if token.type == "heading_open"]
    texts = ("".join(part.content for part in heading.children or []) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in texts}


@cache
def _tokens(page: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(page.read_text("utf-8"))
