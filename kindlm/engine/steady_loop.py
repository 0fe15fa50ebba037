"""The event loop of a run, which goes on if code under test stops the clock."""

from __future__ import annotations

import asyncio
from time import monotonic


class SteadyLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock goes on if tests or fixtures, as by freezegun, stop `time`.

    They replace the names of modules, and not the attributes of classes.
    """

    time = staticmethod(monotonic)
