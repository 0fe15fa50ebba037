"""The checks: each looks at a transcript and says whether what it expects is so.

One module holds one family of them; `base.Check` says what a check is.
"""

from kindlm.checks.base import Check
from kindlm.checks.runner import CheckRunner

__all__ = ["Check", "CheckRunner"]
