"""OpenTelemetry from agents: receives spans, assigns them to messages, and reads them.

`spans.py` reads and writes OTLP, `dialects.py` is the table of attributes, `messages.py` reads
messages in all forms, `trace_reading.py` finds tool calls and tokens in a trace, `receiver.py` is
the HTTP endpoint, and `otlp_observer.py` decides which spans belong to a message and whether they
are complete.
"""
