"""A provider: `providers: { bird: { type: parrot, prefix: "You said: " } }`."""

import time

from kindlm import plugins


class Parrot(plugins.Provider):
    """Repeats the last message."""

    prefix: str = ""
    """What comes before it."""

    def connect(self, access: plugins.Access) -> plugins.ModelClient:
        return ParrotClient(self.prefix)


class ParrotClient(plugins.ModelClient):
    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    async def complete(self, request: plugins.ModelRequest) -> plugins.Result[plugins.ModelReply]:
        started = time.perf_counter()
        text = self._prefix + request.messages[-1].text
        took_ms = (time.perf_counter() - started) * 1000
        usage = plugins.Usage(input_tokens=1, output_tokens=len(text.split()))
        return plugins.Ok(plugins.ModelReply(text, raw=text, latency_ms=took_ms, usage=usage))

    async def aclose(self) -> None:
        """Close connections here; there are none."""
