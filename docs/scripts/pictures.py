"""Makes the pictures of the docs from a demo: what it prints, as SVG, and pages of its history.

Run: python docs/scripts/pictures.py
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.text import Text

PICTURES = Path(__file__).parents[1] / "images"
WIDTH = 92


def main() -> None:
    """Run the demo in an empty folder; draw what it printed, and what its pages show."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "kindlm", "demo"],
            cwd=folder,
            env={**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(WIDTH)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
        )
        _draw(done.stdout)
        _photograph(Path(folder, "kindlm-demo", ".kindlm", "kindlm.db"))


def _draw(printed: str) -> None:
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(Text.from_ansi(f"$ kindlm demo\n{printed}".rstrip()))
    drawn = console.export_svg(title="kindlm demo", unique_id="kindlm")
    # Fonts would be fetched from elsewhere; any monospaced one does.
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)
    (PICTURES / "demo.svg").write_text(drawn, encoding="utf-8")


def _photograph(history: Path) -> None:
    command = [sys.executable, "-m", "kindlm", "browse", "--no-open", "--port", "0", "--db"]
    with (
        subprocess.Popen([*command, str(history)], stdout=subprocess.PIPE, text=True) as server,
        sync_playwright() as playwright,
    ):
        assert server.stdout
        runs = server.stdout.readline().strip()
        with playwright.chromium.launch(executable_path=shutil.which("chromium")) as browser:
            page = browser.new_page(viewport={"width": 1100, "height": 820})
            page.goto(runs)
            page.locator("table a[href*='/run/']").first.click()
            page.screenshot(path=PICTURES / "browse-run.png")
            page.set_viewport_size({"width": 1100, "height": 1120})
            page.emulate_media(color_scheme="dark")
            page.locator("a.repeat").first.click()
            page.screenshot(path=PICTURES / "browse-execution.png")
        server.terminate()


if __name__ == "__main__":
    main()
