"""A program that answers in lines and exports the span of a tool call, with nothing but Python.

Its argument says when: `good` before it answers, `slow` after its input has ended, `dead` to where
nothing listens.
"""

import json
import os
import sys
import time
import urllib.request
from contextlib import suppress


def spans() -> dict[str, object]:
    _, trace, parent, _ = os.environ["TRACEPARENT"].split("-")
    arguments = {"key": "gen_ai.tool.call.arguments", "value": {"stringValue": "{}"}}
    tool = {"key": "gen_ai.tool.name", "value": {"stringValue": "lookup_order"}}
    operation = {"key": "gen_ai.operation.name", "value": {"stringValue": "execute_tool"}}
    now = str(time.time_ns())
    common = {"traceId": trace, "startTimeUnixNano": now, "endTimeUnixNano": now}
    answer = {"spanId": "a" * 16, "parentSpanId": parent, "name": "answer"}
    call = {"spanId": "b" * 16, "parentSpanId": "a" * 16, "name": "execute_tool lookup_order"}
    found = [common | answer, common | call | {"attributes": [operation, tool, arguments]}]
    return {"resourceSpans": [{"scopeSpans": [{"spans": found}]}]}


def export(url: str) -> None:
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(url, json.dumps(spans()).encode(), headers)
    with suppress(OSError):
        urllib.request.urlopen(request).close()


mode = sys.argv[1] if len(sys.argv) > 1 else "good"
endpoint = os.environ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]
for _ in sys.stdin:
    if mode != "slow":
        export(endpoint if mode == "good" else "http://127.0.0.1:9/v1/traces")
    print(json.dumps({"text": "Done."}), flush=True)  # noqa: T201 - to kindlm
if mode == "slow":
    export(endpoint)
