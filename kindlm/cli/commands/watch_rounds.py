"""Runs the tests, and again whenever a relevant file changes: the work of `kindlm watch`.

Each round is `kindlm test` in a new process. So it does exactly what that command does, and loads
Python agents anew.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path

from kindlm.cli.commands.watch import NOT_WATCHED
from kindlm.cli.console import note, or_fail, show
from kindlm.cli.ending import handling
from kindlm.cli.history import project_here
from kindlm.cli.options import TestOptions, given_again, refuse_together
from kindlm.cli.reporters import parse_reporters, spare
from kindlm.config.diagnostics import Diagnostic
from kindlm.errors import Err, KindlmError, Ok
from kindlm.guard import guard
from kindlm.keeper import KINDLM
from kindlm.recording.loading import load_paths
from kindlm.recording.project import default_paths
from kindlm.recording.watched_files import Stamps, WatchedFiles, changed, watched_files
from kindlm.reports.untrusted import one_line
from kindlm.wording import count, first_of

_LOOK_EVERY_S = 0.3
_QUIET_S = 0.2
"""How long nothing must change before a round, since an editor saves in several steps."""

_SHOWN_NAMES = 3

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Problem = KindlmError | Diagnostic


def watch_tests(options: TestOptions) -> int:
    """Run `kindlm test` after each change until a signal; return the exit code of the last round.

    Invalid options, and paths without tests, end the command. Errors in files are shown, and then a
    change is awaited.
    """
    refuse_together("--watch", options, *NOT_WATCHED)
    reporters = parse_reporters(options.reporters, options.output)
    project = project_here(options.database)
    paths = options.paths or or_fail(default_paths(Path()))
    loaded = or_fail(load_paths(paths, project.root, strict=options.strict))
    or_fail(spare(reporters, project.database, loaded.files, loaded.referenced))
    tell = note if options.warnings else lambda _line: None
    others = (field.name for field in fields(options) if field.name not in ("paths", "watch"))
    arguments = [*given_again(options, others), "--", *map(str, options.paths)]

    async def watch() -> int:
        rounds, loop = _Rounds(arguments), asyncio.get_running_loop()
        # Signals stay ignored, as with nohup or in the background.
        numbers = [each for each in _SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
        with handling(numbers, lambda number, _: loop.call_soon_threadsafe(rounds.end, number)):
            watch = Watch(lambda: look(options, project.root), rounds.run, tell, show)
            return await watch.until(rounds.stop)

    return asyncio.run(watch())


def look(options: TestOptions, root: Path) -> tuple[WatchedFiles, tuple[Problem, ...]]:
    """Return the files that the tests depend on, and the errors that prevent a round."""
    paths = Ok(options.paths) if options.paths else default_paths(Path())
    if isinstance(paths, Err):
        return WatchedFiles(), (paths.error,)
    loaded = load_paths(paths.value, root, strict=options.strict)
    if isinstance(loaded, Err):
        return WatchedFiles(), (loaded.error,)
    errors = tuple(found for found in loaded.value.diagnostics if found.severity == "error")
    return watched_files(paths.value, loaded.value, root), errors


@dataclass(slots=True)
class Watch:
    """Runs a round of tests after each change.

    Attributes:
        look: Loads the files; returns those to watch, and the errors.
        run_round: Runs the tests and returns the exit code.
        tell: Shows a line.
        show: Shows errors.
    """

    look: Callable[[], tuple[WatchedFiles, tuple[Problem, ...]]]
    run_round: Callable[[], Awaitable[int]]
    tell: Callable[[str], None]
    show: Callable[[Iterable[Problem]], None]

    _files: WatchedFiles = field(default=WatchedFiles(), init=False)
    _errors: tuple[Problem, ...] = field(default=(), init=False)
    _stamps: Stamps = field(default_factory=dict, init=False)
    _repeated_for: frozenset[Path] = field(default=frozenset(), init=False)

    async def until(self, stop: asyncio.Event) -> int:
        """Run a round after each change; return the exit code of the last one."""
        code, rounds = 1, 0
        self._load()
        is_due = self._is_sound()
        while not stop.is_set():
            if is_due:
                rounds += 1
                self.tell(f"── Round {rounds} ──")
                code = await self.run_round()
                if stop.is_set():
                    break
                self.tell(f"Round {rounds} {'passed' if code == 0 else 'did not pass'}.")
                self._spare_what_tests_write()
            if await self._changed(stop):
                is_due = self._take_changes()
        return code

    def _spare_what_tests_write(self) -> None:
        """Ignore files that changed during this round and the one before.

        Tests that write watched files would otherwise run forever.
        """
        now = self._files.stamps()
        during = frozenset(filter(self._files.matters, changed(self._stamps, now)))
        if written := during & self._repeated_for:
            self.tell(
                f"Changed in both of the last rounds: {_names(written)}. If the tests did not write"
                " that, save it once more."
            )
            others = {path: stamp for path, stamp in self._stamps.items() if path not in written}
            self._stamps = others | {path: now[path] for path in written if path in now}
        self._repeated_for = during - written
        if self._repeated_for:
            self.tell(f"Changed while it ran: {_names(self._repeated_for)}. Testing again.")
        else:
            files = sum(map(self._files.matters, self._stamps))
            self.tell(f"Waiting for changes to {count(files, 'file')}; Ctrl-C ends.")

    async def _changed(self, stop: asyncio.Event) -> bool:
        """Wait for changes, and until there are no more; return False if stopped before."""
        loop = asyncio.get_running_loop()
        last = self._stamps
        while not stop.is_set():
            begun = loop.time()
            now = self._files.stamps()
            if now == last != self._stamps:
                return True
            # With many or slow files, looking takes at most a tenth of the time.
            waits = _QUIET_S if now != last else max(_LOOK_EVERY_S, 10 * (loop.time() - begun))
            last = now
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), waits)
        return False

    def _take_changes(self) -> bool:
        """Load changed files; return whether a round is due."""
        errors, paths = self._errors, changed(self._stamps, self._files.stamps())
        self._load()
        relevant = frozenset(filter(self._files.matters, paths))
        if not relevant and errors == self._errors:
            return False
        if new := (relevant or paths) - self._repeated_for:
            self.tell(f"Changed: {_names(new)}")
        return self._is_sound()

    def _load(self) -> None:
        """Load the files, again if they change meanwhile."""
        while True:
            before = self._files.stamps()
            found, self._errors = self.look()
            if self._files.stamps() == before:
                break
        # Keep earlier files: a removed one may come back, and an error may be fixed in one.
        self._files = self._files.joined(found)
        self._stamps = self._files.stamps()

    def _is_sound(self) -> bool:
        """Return whether the tests can run; if not, show the errors."""
        if self._errors:
            self._repeated_for = frozenset()
            self.show(self._errors)
            self.tell("No tests run until that is fixed. Waiting for changes; Ctrl-C ends.")
        return not self._errors


class _Rounds:
    """Runs rounds until a signal, which the current round also gets.

    A round has a session of its own. Otherwise it would get Ctrl-C twice: from the terminal, and
    from here.
    """

    def __init__(self, arguments: Iterable[str]) -> None:
        self.stop = asyncio.Event()
        self._command = [*KINDLM, "test", *arguments]
        self._process: asyncio.subprocess.Process | None = None

    async def run(self) -> int:
        """Run one round, with its output on these streams; return its exit code."""
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=asyncio.subprocess.DEVNULL, start_new_session=True
        )
        if self.stop.is_set():  # the signal came while it was started
            self._process.send_signal(signal.SIGINT)
        return await self._process.wait()

    def end(self, number: int) -> None:
        """Pass a signal to the current round, and start no other one."""
        if guard.is_new_signal():
            self.stop.set()
            if self._process is not None:
                with suppress(ProcessLookupError):
                    self._process.send_signal(number)


def _names(paths: Iterable[Path]) -> str:
    return first_of(sorted(one_line(os.path.relpath(path)) for path in paths), _SHOWN_NAMES)
