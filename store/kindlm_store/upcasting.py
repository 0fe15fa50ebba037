"""Upcasters: old payloads are lifted to the newest schema when read; stored bytes never change."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kindlm_store.canonical import canonical_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from kindlm_store.events import RecordedEvent

Data = dict[str, Any]


class Upcasters:
    """Steps from one schema of an event type to the next, chained as far as they reach."""

    def __init__(self) -> None:
        self._steps: dict[tuple[str, int], Callable[[Data], Data]] = {}

    def register(
        self,
        type: str,  # noqa: A002 - the name of the event's field
        from_schema: int,
    ) -> Callable[[Callable[[Data], Data]], Callable[[Data], Data]]:
        """Decorate the function that lifts a payload from a schema to the one after it.

        Raises:
            ValueError: The step is registered already.
        """

        def registered(step: Callable[[Data], Data]) -> Callable[[Data], Data]:
            if (type, from_schema) in self._steps:
                message = f"{type} has an upcaster from schema {from_schema} already"
                raise ValueError(message)
            self._steps[type, from_schema] = step
            return step

        return registered

    def lift(self, type: str, schema: int, data: Data) -> tuple[int, Data]:  # noqa: A002
        """A payload in the newest schema its type has, and that schema."""
        while step := self._steps.get((type, schema)):
            data = step(data)
            schema += 1
        return schema, data

    def __bool__(self) -> bool:
        """Whether anything is lifted at all."""
        return bool(self._steps)

    def lift_text(self, type: str, schema: int, data: str) -> str:  # noqa: A002
        """A stored payload in the newest schema its type has, as JSON."""
        if (type, schema) not in self._steps:
            return data
        return canonical_json(self.lift(type, schema, json.loads(data))[1])

    def lift_event(self, event: RecordedEvent) -> RecordedEvent:
        """An event with its payload in the newest schema."""
        if (event.type, event.schema) not in self._steps:
            return event
        schema, data = self.lift(event.type, event.schema, event.data)
        return event._replace(schema=schema, data=data)
