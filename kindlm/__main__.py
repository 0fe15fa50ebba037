"""`kindlm` and `python -m kindlm`."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line that this process was started with."""
    try:
        from kindlm.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        # Ctrl-C while the modules are loaded.
        code = 1
    sys.exit(code)


if __name__ == "__main__":
    main()
