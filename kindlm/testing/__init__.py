"""A loopback stand-in for model providers: real sockets and wire formats, no key, no network.

`LoopbackServer` runs it in a thread; `python -m kindlm.testing.server` runs it as a program.
"""

from kindlm.testing.loopback import LoopbackServer
from kindlm.testing.node import ScriptError

__all__ = ["LoopbackServer", "ScriptError"]
