"""OpenTelemetry from agents: receives spans, assigns them to messages, and reads them.

`spans.py` reads and writes OTLP, `dialects.py` is the table of what attributes mean,
`trace_reading.py` finds tool calls and tokens in a trace, `receiver.py` is the HTTP, and
`otlp_observer.py` decides which spans belong to a message and whether all of them are there.
"""
