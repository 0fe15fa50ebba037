"""Workers of a coordinator in the process of the tests that are forks: none has to load kindlm.

What a test does while its coordinator runs, it does `beside` it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL

import loaded_kindlm
import pytest
from loaded_kindlm import Started

from kindlm.fleet import workers
from kindlm.keeper import PARENT


def fork_workers(monkeypatch: pytest.MonkeyPatch) -> list[Started]:
    """Fork what runs a shard; it does not end with the coordinator, which a fork cannot know.

    Returns the forks, to which each new one is added.
    """
    forks: list[Started] = []

    def test(
        job: str, arguments: Sequence[str], environ: dict[str, str], folder: str
    ) -> workers.ShardEnd:
        process = loaded_kindlm.start(
            ["test", *(argument for argument in arguments if argument != "--die-with-parent")],
            cwd=Path(folder),
            env={name: value for name, value in environ.items() if name != PARENT},
            stdout=DEVNULL,
            own_session=True,
        )
        forks.append(process)
        workers._processes[job] = process
        try:
            if job in workers._ended:
                process.kill()
            _, said = process.communicate()
        finally:
            del workers._processes[job]
            process.kill()
        return workers.ShardEnd(process.wait(), said.strip())

    monkeypatch.setattr(workers, "_test", test)
    return forks


@contextmanager
def beside(work: Callable[[], object]) -> Iterator[None]:
    """Do something in a thread of its own; it has to be done when this ends."""
    with ThreadPoolExecutor(1) as pool:
        doing = pool.submit(work)
        yield
        doing.result()
