"""Permits: whether an execution that has started may go on, and its end where it may not.

Three things end it before it is over. Where a limit of costs is passed, no further call is made: no
turn, no retry, no judge. Nor is one made to a provider or an agent that takes none for longer than
is waited. Where a run is asked to stop, nobody waits any longer for a turn or for
the next try, since what is worth its grace is only what is being done. Either way the execution
has not finished: what it paid for is recorded, and a run that is resumed runs it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Permit", "Permits"]


class Permits:
    """The permits of all executions of a run.

    Args:
        is_spent: Tells whether the suite at a position, or the run, has spent more than it may.
        is_stopping: Tells whether what is in flight has been asked to end.
    """

    def __init__(
        self,
        is_spent: Callable[[int], bool] = lambda _ordinal: False,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._is_spent = is_spent
        self._is_stopping = is_stopping
        self._waiting: dict[Permit, int] = {}

    def issue(self, ordinal: int) -> Permit:
        """Return the permit of one execution of the suite at a position, for the current task."""
        return Permit(self, ordinal)

    def may_call(self, ordinal: int) -> bool:
        """Tell whether an execution may make one more call."""
        return not self._is_spent(ordinal)

    def review(self) -> None:
        """Cut off who waits for what will not come any more: a limit was passed, or a stop came."""
        for permit in list(self._waiting):
            self._look_at(permit)

    @contextmanager
    def waiting(self, permit: Permit) -> Iterator[None]:
        """Hold a permit as one whose execution waits."""
        self._waiting[permit] = self._waiting.get(permit, 0) + 1
        # Later, since most turns are there already: nobody has waited then.
        asyncio.get_running_loop().call_soon(self._look_at, permit)
        try:
            yield
        finally:
            self._waiting[permit] -= 1
            if not self._waiting[permit]:
                del self._waiting[permit]

    def _look_at(self, permit: Permit) -> None:
        is_of_no_use = self._is_stopping() or not self.may_call(permit.ordinal)
        if is_of_no_use and permit in self._waiting:
            permit.cut_off()


class Permit:
    """Lets the task that it was made in go on with an execution, or cancels it."""

    def __init__(self, permits: Permits, ordinal: int) -> None:
        self.ordinal = ordinal
        self._permits = permits
        self._task = asyncio.current_task()
        self._is_cut_off = False

    async def to_call(self, *, is_answered: bool = True) -> None:
        """Return if one more call may be made; otherwise the execution is cut off.

        `is_answered` tells whether who is to be called takes calls.
        """
        if self._is_cut_off or not is_answered or not self._permits.may_call(self.ordinal):
            self.cut_off()
            await asyncio.get_running_loop().create_future()  # until the cancellation arrives

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Be cut off meanwhile if what is waited for can not be of use any more."""
        with self._permits.waiting(self):
            yield

    def cut_off(self) -> None:
        """Cancel the execution, once."""
        if not self._is_cut_off and self._task is not None:
            self._is_cut_off = True
            self._task.cancel()

    def takes_back(self) -> bool:
        """Tell whether the task was cancelled by this alone; if so, it goes on."""
        return self._is_cut_off and self._task is not None and self._task.uncancel() == 0
