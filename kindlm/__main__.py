"""`kindlm` and `python -m kindlm`."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line that this process was started with."""
    from kindlm.cli.app import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
