"""The checks: each looks at a transcript and says whether an expectation was met.

One module holds one family of them. A module of this package that defines a function decorated
with `check` adds that check; there is no list to keep.
"""

from kindlm.checks.registry import Check, check, discover
from kindlm.checks.runner import CheckRunner

__all__ = ["Check", "CheckRunner", "check", "discover"]
