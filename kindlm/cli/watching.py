"""`kindlm watch`: run the tests, and again whenever a file changes that matters to them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kindlm.cli.console import fail, note, set_verbose, show
from kindlm.cli.history import or_fail
from kindlm.cli.reporters import parse_reporters, spare
from kindlm.cli.request import TestOptions
from kindlm.cli.rounds import Rounds
from kindlm.config import Diagnostic
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.recording.loading import default_paths, load_paths
from kindlm.recording.project import find_project
from kindlm.recording.watched_files import Stamps, WatchedFiles, changed, watched_files
from kindlm.reports.untrusted import one_line
from kindlm.wording import count

__all__ = ["Watch", "Watched", "settled", "watch_tests"]

_LOOK_EVERY_S = 0.3
_QUIET_S = 0.2
"""So long nothing has to change before a round: an editor saves in several steps."""

_SHOWN_NAMES = 3

Problem = KindlmError | Diagnostic


@dataclass(frozen=True, slots=True)
class Watched:
    """What is watched, and the errors for which it can not be tested."""

    files: WatchedFiles
    errors: tuple[Problem, ...] = ()


def watch_tests(options: TestOptions, arguments: Sequence[str]) -> int:
    """Run `kindlm test` with the arguments again and again until a signal ends it.

    Returns the exit code of the last round. Faults of the options end the command through `fail`,
    and so do paths where there is nothing to test; faults in the files are shown and waited out.
    """
    set_verbose(options.verbose)
    if (wrong := _no_rounds(options)) is not None:
        fail([wrong])
    reporters = or_fail(parse_reporters(options.reporters, options.output))
    project = or_fail(find_project(Path.cwd(), database=options.database, environ=os.environ))
    paths = options.paths or or_fail(default_paths(Path()))
    loaded = or_fail(load_paths(paths, project.root, strict=options.strict))
    or_fail(spare(reporters, project.database, loaded.files, loaded.referenced))
    rounds = Rounds(arguments)
    watch = Watch(
        look=lambda: look(options),
        run_round=rounds.run,
        tell=note if options.warnings else lambda _line: None,
        show=show,
    )
    return asyncio.run(_watch(watch, rounds))


async def _watch(watch: Watch, rounds: Rounds) -> int:
    with rounds.ended_by_signals():
        return await watch.until(rounds.stop)


def look(options: TestOptions) -> Watched:
    """Return what matters to the tests now, and what is wrong with it."""
    project = find_project(Path.cwd(), database=options.database, environ=os.environ)
    if isinstance(project, Err):
        return Watched(WatchedFiles(), (project.error,))
    paths = _paths(options)
    if isinstance(paths, Err):
        return Watched(WatchedFiles(), (paths.error,))
    loaded = load_paths(paths.value, project.value.root, strict=options.strict)
    if isinstance(loaded, Err):
        return Watched(WatchedFiles(), (loaded.error,))
    errors = tuple(found for found in loaded.value.diagnostics if found.severity == "error")
    return Watched(watched_files(paths.value, loaded.value, project.value.root), errors)


def _paths(options: TestOptions) -> Result[tuple[Path, ...]]:
    return Ok(options.paths) if options.paths else default_paths(Path())


async def settled(stamps: Callable[[], Stamps], before: Stamps) -> Stamps:
    """Wait until the files are not as they were before, and change no more; return how they are."""
    loop = asyncio.get_running_loop()
    while True:
        begun = loop.time()
        now = stamps()
        if now != before:
            break
        # Of many files, or slow ones, no more than a tenth of the time is spent on looking.
        await asyncio.sleep(max(_LOOK_EVERY_S, 10 * (loop.time() - begun)))
    while True:
        await asyncio.sleep(_QUIET_S)
        later = stamps()
        if later == now:
            return later
        now = later


@dataclass(slots=True)
class Watch:
    """Rounds of tests, and what they wait for.

    Attributes:
        look: tells what is to be watched, by loading it.
        run_round: runs the tests and returns the exit code.
        tell: shows a line.
        show: shows errors.
    """

    look: Callable[[], Watched]
    run_round: Callable[[], Awaitable[int]]
    tell: Callable[[str], None]
    show: Callable[[Iterable[Problem]], None]

    _watched: Watched = field(default=Watched(WatchedFiles()), init=False)
    _stamps: Stamps = field(default_factory=dict, init=False)
    _rounds: int = field(default=0, init=False)
    _repeated_for: frozenset[Path] = field(default=frozenset(), init=False)

    async def until(self, stop: asyncio.Event) -> int:
        """Run a round whenever something has changed; return the exit code of the last one."""
        code = 1
        self._look_again()
        is_due = self._is_sound()
        while not stop.is_set():
            if is_due:
                code = await self._round(stop)
            if not await self._changed(stop):
                break
            is_due = self._take_changes()
        return code

    async def _round(self, stop: asyncio.Event) -> int:
        self._rounds += 1
        self.tell(f"── Round {self._rounds} ──")
        code = await self.run_round()
        if stop.is_set():
            return code
        self.tell(f"Round {self._rounds} {'passed' if code == 0 else 'did not pass'}.")
        self._spare_what_tests_write()
        if self._repeated_for:
            self.tell(f"Changed while it ran: {_names(self._repeated_for)}. Testing again.")
        else:
            self._tell_waiting()
        return code

    def _spare_what_tests_write(self) -> None:
        """Remember what changed while a round ran, but not what did so in the round before, too.

        Tests that write what is watched would run for ever.
        """
        now = self._watched.files.stamps()
        during = frozenset(filter(self._watched.files.matters, changed(self._stamps, now)))
        written = during & self._repeated_for
        if written:
            self.tell(
                f"Changed in both of the last rounds: {_names(written)}. If the tests did not write"
                " that, save it once more."
            )
            others = {path: stamp for path, stamp in self._stamps.items() if path not in written}
            self._stamps = others | {path: now[path] for path in written if path in now}
        self._repeated_for = during - written

    async def _changed(self, stop: asyncio.Event) -> bool:
        """Wait for changes; return False if it is stopped before."""
        waiting = asyncio.ensure_future(settled(self._watched.files.stamps, self._stamps))
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait((waiting, stopping), return_when=asyncio.FIRST_COMPLETED)
        for task in (waiting, stopping):
            task.cancel()
        await asyncio.gather(waiting, stopping, return_exceptions=True)
        return not stop.is_set()

    def _take_changes(self) -> bool:
        """Look at what has changed; tell whether a round is due."""
        before, stamps = self._watched, self._stamps
        paths = changed(stamps, before.files.stamps())
        self._look_again()
        mattering = frozenset(filter(before.files.matters, paths))
        suites = before.files.suites ^ self._watched.files.suites
        if not mattering and not suites and before.errors == self._watched.errors:
            return False
        if news := (mattering or suites or paths) - self._repeated_for:
            self.tell(f"Changed: {_names(news)}")
        return self._is_sound()

    def _look_again(self) -> None:
        """Load what is watched, until that was not changed meanwhile."""
        known = self._watched.files
        while True:
            before = known.stamps()
            found = self.look()
            if known.stamps() == before:
                break
        # Of what is wrong now, not all can be known: it may be mended in any of the files before.
        files = known.joined(found.files) if found.errors else found.files
        # What an agent is made of is only known while it is there, and it may come back.
        files = replace(files, files=files.files | self._gone())
        self._watched = Watched(files, found.errors)
        self._stamps = files.stamps()

    def _gone(self) -> frozenset[Path]:
        """Return the files that mattered and are not there."""
        known = self._watched.files
        mattered = known.files.union(filter(known.matters, self._stamps))
        return frozenset(path for path in mattered if not path.exists())

    def _is_sound(self) -> bool:
        """Tell whether everything can be tested; show what is wrong, if not."""
        if not self._watched.errors:
            return True
        self._repeated_for = frozenset()
        self.show(self._watched.errors)
        self.tell("Nothing is tested until that is mended. Waiting for changes; Ctrl-C ends.")
        return False

    def _tell_waiting(self) -> None:
        files = sum(map(self._watched.files.matters, self._stamps))
        self.tell(f"Waiting for changes to {count(files, 'file')}; Ctrl-C ends.")


def _names(paths: Iterable[Path]) -> str:
    """Return the files as they are written from here, the first of many."""
    names = sorted(one_line(os.path.relpath(path)) for path in paths)
    more = len(names) - _SHOWN_NAMES
    return ", ".join(names[:_SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")


def _no_rounds(options: TestOptions) -> KindlmError | None:
    """Return what is wrong with options that mean nothing for one round after the other."""
    given = {
        "--resume": options.resume is not None,
        "--force-resume": options.force_resume,
        "--dry-run": options.dry_run,
    }
    name = next((name for name, is_given in given.items() if is_given), None)
    if name is None:
        return None
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f"{name} does something once, and --watch runs the tests again and again.",
        f"Leave out one of the two: kindlm test {name}",
    )
