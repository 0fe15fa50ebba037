"""What `kindlm gen --from-trace` and `--from-run` do: read, replace personal data, and write."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kindlm.cli.commands.gen import GenOptions, argument_of
from kindlm.cli.commands.init import agent_at
from kindlm.cli.console import fail, make_console, note, or_fail
from kindlm.cli.history import no_execution, open_view, project_here
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result, misuse
from kindlm.generate.forms import slug
from kindlm.generate.recorded_suite import Target, recorded_suite
from kindlm.generate.recordings import MAX_BYTES, Recording, read_recordings
from kindlm.generate.recordings.own_run import read_execution
from kindlm.generate.stand_ins import StandIns
from kindlm.generate.suite_text import suite_text
from kindlm.generate.test_writing import write_file
from kindlm.patterns import PatternError
from kindlm.recording.project import run_environment
from kindlm.recording.secrets import suite_secrets
from kindlm.reports.untrusted import one_line
from kindlm.wording import count
from kindlm_store import Redactor

_PLACE = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")


def write_recorded(options: GenOptions) -> int:
    """Write a suite of recordings and return the exit code."""
    console = make_console()
    target = or_fail(target_of(options))
    recordings, origin = _recordings(options)
    project = project_here(options.database)
    redact = Redactor(suite_secrets(run_environment([project.root], os.environ), []))
    stand_ins = StandIns(redact, keep_personal_data=options.keep_personal_data)
    try:
        recordings = [stand_ins.recording(each) for each in recordings]
    except PatternError as error:
        fail([misuse(f"Personal data cannot be found: {error}.", "Use --keep-personal-data.")])
    stem = recordings[0].name if options.from_trace is None else options.from_trace.stem
    file = Path(options.output, f"{slug(stem)}.yaml")
    made = recorded_suite(recordings, target, redact(origin), file, failed=options.failed)
    for line in made.left_out:
        note(f"Left out: {one_line(line)}", console)
    if made.document is None:
        note("No test was written.", console)
        return 1
    written = write_suite(options, made.document, file, len(made.names))
    for name in made.unfinished:
        note(f"Skipped until you write its criterion: {one_line(name)}", console)
    if stand_ins.replaced:
        kinds = (f"{count(number, kind)}" for kind, number in stand_ins.replaced.items())
        note(f"Replaced: {', '.join(kinds)}.", console)
    if not options.keep_personal_data:
        note("Names, addresses and dates of birth are not recognised: read the file.", console)
    tell_command(options, written)
    return 0


def write_suite(options: GenOptions, document: Mapping[Any, Any], file: Path, tests: int) -> Path:
    """Write a suite, print where it stands, and return that."""
    text = or_fail(suite_text(document, file))
    try:
        written = write_file(file, text, force=options.force)
    except OSError as error:
        fail([misuse(f"{file} cannot be written: {error.strerror}.", "Use --output DIR.")])
    sys.stdout.write(f"{one_line(str(written))}  {count(tests, 'test')}\n")
    return written


def tell_command(options: GenOptions, written: Path) -> None:
    """Print the command that runs a suite."""
    command = options.command(f"kindlm test {shlex.quote(argument_of(written))}")
    sys.stdout.write(f"\nRun: {command}\n")


def _recordings(options: GenOptions) -> tuple[list[Recording], str]:
    """Return what was recorded, and where it is from."""
    if options.from_run is not None:
        run, number = options.from_run
        with open_view(options.database, run) as view:
            execution = view.execution(number)
            if execution is None:
                fail([no_execution(number, view)])
            recording = read_execution(view.db, execution)
            return [recording], f"run {view.id}, execution {execution.number}"
    assert options.from_trace is not None
    try:
        with options.from_trace.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    except OSError as error:
        why = f"{options.from_trace} cannot be read: {error.strerror}"
        fail([KindlmError(ErrorCode.CONFIG_NOT_FOUND, why, "Check the path")])
    found = or_fail(read_recordings(data, options.from_trace))
    return found, options.from_trace.name


def target_of(options: GenOptions) -> Result[Target]:
    """Return what the tests run on, as the options say."""
    if (options.provider is None) != (options.model is None):
        return Err(misuse("--provider and --model go together.", "Pass both, or neither."))
    model = None if options.model is None else f"{options.provider}/{options.model}"
    if options.agent is None:
        return Ok(Target(model=model))
    agent = _agent(options.agent, Path(options.output))
    return agent if isinstance(agent, Err) else Ok(Target(agent.value, model))


def _agent(given: str, folder: Path) -> Result[str | dict[str, Any]]:
    """Return the agent as it stands in a suite in a folder."""
    kind, _, place = given.partition(":")
    if kind == "python" and place.count(":"):
        file, _, name = place.rpartition(":")
        path = os.path.relpath(Path(file).parent, folder)
        return Ok({"adapter": "python", "endpoint": f"{Path(file).stem}:{name}", "path": path})
    if "://" in given:
        found = agent_at(given)
        return found if isinstance(found, Err) else Ok(given)
    if _PLACE.fullmatch(given):
        return Ok(given)
    hint = "Write a URL, module:name, or python:FILE:NAME."
    return Err(misuse(f"--agent {one_line(given)} names no agent.", hint))
