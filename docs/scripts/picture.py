"""Draws the picture of the README: what `kindlm demo` prints, as SVG.

Run: python docs/scripts/picture.py
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

PICTURE = Path(__file__).parents[1] / "images" / "demo.svg"
WIDTH = 92


def main() -> None:
    """Run the demo in an empty folder and draw what it printed."""
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
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(Text.from_ansi(f"$ kindlm demo\n{done.stdout}".rstrip()))
    drawn = console.export_svg(title="kindlm demo", unique_id="kindlm")
    # Fonts would be fetched from elsewhere; any monospaced one does.
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main()
