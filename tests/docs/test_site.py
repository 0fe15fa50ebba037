"""The site of the docs builds without a warning, and shows what GitHub shows of the same files."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CONFIG = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]
COUNTED = re.compile(r"<(li|tr|pre|h[1-6])\b")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the site, built from the files of this checkout."""
    folder = tmp_path_factory.mktemp("docs")
    shutil.copy(ROOT / "zensical.toml", folder)
    shutil.copytree(DOCS, folder / "docs")
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Warning" not in done.stdout + done.stderr
    return folder / "site"


def test_every_page_is_in_the_navigation() -> None:
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.glob("**/*.md")}
    assert set(_files(CONFIG["nav"])) == pages


def test_the_site_shows_what_github_shows(site: Path) -> None:
    """A list that needs a blank line or more spaces on the site is a paragraph there."""
    github = MarkdownIt("commonmark", {"html": True}).enable("table")
    for path in DOCS.glob("**/*.md"):
        page = path.relative_to(DOCS).with_suffix("")
        built = site / (page.parent if page.name == "index" else page) / "index.html"
        (article,) = re.findall(r"<article.*?</article>", built.read_text("utf-8"), re.DOTALL)
        expected = Counter(COUNTED.findall(github.render(path.read_text("utf-8"))))
        assert Counter(COUNTED.findall(article)) == expected, page


def test_only_pages_and_pictures_are_published(site: Path) -> None:
    assert not list(site.glob("scripts/**"))
    assert (site / "images" / "demo.svg").exists()


def _files(nav: list[Any]) -> Iterator[str]:
    for entry in nav:
        for inside in entry.values() if isinstance(entry, dict) else [entry]:
            yield from _files(inside) if isinstance(inside, list) else [inside]
