"""`kindlm history export`: write a run to a file for another history, or as a trace.

The file also has the runs from which this one was derived, the repeats that `kindlm settle` added
to them, and the events of journals about them.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, TypeAlias

from kindlm.cli.console import fail, note, refuse, warn
from kindlm.cli.history import existing_history, named_run, open_tables
from kindlm.cli.options import DATABASE, RUN_NAMES, argument, flag, option
from kindlm.cli.reporters import STDOUT, is_history, open_output
from kindlm.errors import broken
from kindlm.history.runs import streams_of
from kindlm.recording.export_file import write_export
from kindlm.recording.secrets import redactor
from kindlm.wording import count
from kindlm_store.database import snapshot, translated

if TYPE_CHECKING:
    from kindlm.telemetry.spans import OutSpan


_Format: TypeAlias = Literal["kindlm", "otlp"]

_VERSION = "SELECT version FROM streams WHERE name = ?"


def export_command(
    run: str = argument("RUN", RUN_NAMES, default="latest"),
    form: _Format = option("--format", "otlp is an OpenTelemetry trace.", default="kindlm"),
    after: int = option(
        "--after VERSION", "Only the events of the run after this version.", default=0, min=0
    ),
    output: Path | None = option("--output -o FILE", "Write to FILE; - is stdout."),
    to: str | None = option(
        "--to URL",
        "Send the trace to an OTLP endpoint, with the headers in OTEL_EXPORTER_OTLP_HEADERS.",
    ),
    contents: bool = flag("--contents", "Add prompts, answers and tool calls to the trace."),
    db: Path | None = DATABASE,
) -> None:
    """Write a run to a file, or send it as an OpenTelemetry trace.

    The default format is for `kindlm history import`. It includes content, labels, reviews and
    baselines.
    """
    if form != "kindlm" and after:
        refuse("--after is for the default format.", "Leave out --format or --after.")
    if form == "kindlm" and (to is not None or contents):
        needs_otlp = "--contents" if to is None else "--to"
        refuse(f"{needs_otlp} needs --format otlp.", "Add --format otlp.")
    if to is not None and output is not None:
        refuse("Only one of --to and -o is possible.", "Leave one of them out.")
    if output == STDOUT:
        output = None
    path = existing_history(db).database
    missing = list[str]()
    with closing(open_tables(path)) as reader, snapshot(reader, path):
        named = named_run(reader, run)
        runs, unit = [named], "event"
        write: Callable[[BinaryIO], int]
        if form == "kindlm":
            runs, streams, missing = streams_of(reader, named)
            (version,) = reader.execute(_VERSION, (f"run/{named}",)).fetchone()
            if after > version:
                there = f"Run {named} has {count(version, 'event')}, so there is no version"
                hint = f"Name a version up to {version:,}, or leave out --after."
                refuse(f"{there} {after:,}.", hint)
            begin = {f"run/{named}": after}
            write = partial(write_export, run=named, streams=streams, log=reader, after=begin)
        else:
            from kindlm.cli.otlp_spans import trace_of_run
            from kindlm.telemetry.spans import batches

            unit, redact = "span", redactor() if contents else None
            spans = batches(trace_of_run(reader, named, redact))
            if to is not None:
                with translated(path):
                    _send(named, spans, to, contents=contents)
                return
            write = partial(_write_spans, spans=spans)
        if output is None:
            with translated(path):
                written = write(sys.stdout.buffer)
        elif is_history(output, path):
            refuse(f"{output} is the history.", "Name another file with -o.")
        else:
            with open_output(output) as file, translated(path):
                written = write(file)
    sys.stdout.buffer.flush()
    for source in missing:
        warn(f"Run {source}, which {runs[0]} was derived from, is not in this history.")
    if output is not None:
        note(f"{', '.join(runs)}: {count(written, unit)} written to {output}.")
        if form == "kindlm":
            name = shlex.quote(str(output))
            note(f"To add it to another history, use kindlm history import {name}")
        elif not contents:
            note(_BARE)


_BARE = "It holds no prompts, answers or tool arguments; --contents adds them."


def _write_spans(out: BinaryIO, spans: Iterable[list[OutSpan]]) -> int:
    """Write one request per line; return the number of spans."""
    from kindlm.cli.otlp_spans import resource_of
    from kindlm.telemetry.spans import as_json

    about, written = resource_of(os.environ), 0
    for part in spans:
        out.write(as_json(part, about) + b"\n")
        written += len(part)
    return written


def _send(run: str, spans: Iterable[list[OutSpan]], to: str, *, contents: bool) -> None:
    from kindlm.cli.otlp_sending import receiver, send
    from kindlm.cli.otlp_spans import resource_of

    address = receiver(to, os.environ)
    sent = asyncio.run(send(spans, resource_of(os.environ), address))
    note(f"{run}: {count(sent.spans, 'span')} sent to {address.shown}.")
    if sent.rejected:
        what = f"The receiver rejected {count(sent.rejected, 'span')}"
        fail([broken(f"{what}: {sent.why or 'it gives no reason'}.")])
    if sent.why:
        warn(f"The receiver says: {sent.why}")
    if not contents:
        note(_BARE)
