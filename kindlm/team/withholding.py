"""Withholds content of a pushed run: all texts, or those that a pattern matches.

The settings `upload` recorded with the suites decide. Of several suites, the strictest settings
apply.

A withheld text is sent as its reference alone. The reference reveals nothing, since its salt is not
sent either. The data of an event is part of the hash chain, so nothing can be left out of it: an
event whose data contains something to withhold is not sent.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, get_args

from kindlm.dataclass import dataclass
from kindlm.errors import Err, Ok, Result, misuse
from kindlm.events import EVENTS
from kindlm.events.codec import values_in
from kindlm.events.execution_events import PaceReason, ProviderPaced, ProviderRequested
from kindlm.events.run import SuiteSkipped, SuiteStarted
from kindlm.patterns import PatternError, matcher
from kindlm.ports import Purpose
from kindlm.suite import Upload
from kindlm_store import REDACTED, RecordedEvent

QUOTES = frozenset({"warnings[]", "reason", "evidence[].excerpt"})
"""Keys under which events of earlier versions may quote a model or an agent."""

_REASONS_OF_PACE = frozenset(get_args(PaceReason))

MADE_UP = re.compile(
    r"gen_ai\.(tool\.(name|call\.id)|(request|response)\.model|provider\.name)"
    r"|path|content_type|tool_calls\[\]\.(id|name)|messages\[\]\.(tool_call_id|tool_calls\[\]\.(id|name))"
)
"""Keys of names that may come from a model or an agent; see `_is_chosen`."""

_OF_SUITES = frozenset({SuiteStarted.type, SuiteSkipped.type})
_ASKED_BY_KINDLM = frozenset(Purpose) - {Purpose.AGENT}
_CONFIGURED = frozenset({"gen_ai.provider.name", "gen_ai.request.model"})

_IN_NAME = rf"(?:[\w.:=/@+<>|#~-]|{re.escape(REDACTED)})"
_NAME = re.compile(_IN_NAME + r'{1,100}(; ?[\w=."-]{1,30})*|', re.ASCII)
"""A name, as opposed to a sentence; or an empty text."""


@dataclass(eq=False, kw_only=True)
class Withholding:
    """Decides which texts are withheld, and which events cannot be sent; by default, all is sent.

    Attributes:
        every_text: Whether to withhold all texts.
        patterns: Regular expressions; texts that match one are withheld.
        pulled: By stream, the last event that came from a server, whose texts are withheld.
        redacts: Whether only patterns withhold texts that were recorded here.
        has_withheld: Whether a text was withheld for another reason than a pattern.

    Raises:
        PatternError: A pattern cannot be used.
    """

    every_text: bool = False
    patterns: Sequence[str] = ()
    pulled: Mapping[str, int] = field(default_factory=dict)
    has_withheld: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.redacts = bool(self.patterns) and not self.every_text
        self._matchers = list(map(matcher, self.patterns))
        if (number := self._pattern_of("")) is not None:
            message = (
                f"{self.patterns[number - 1]!r} matches the empty text, and with it every other"
            )
            raise PatternError(message)

    def __call__(self, text: str) -> bool:
        """Return whether a text is withheld."""
        return self.always(text) if self.every_text else self._pattern_of(text) is not None

    def always(self, _text: str) -> bool:
        """Withhold any text, and note that."""
        self.has_withheld = True
        return True

    def objection(self, event: RecordedEvent) -> str | None:
        """Return why an event cannot be sent, None if it can."""
        data = event.data
        for key, string in values_in(data):
            if not isinstance(string, str):
                continue
            if self.every_text:
                if event.type not in EVENTS:
                    return f"this kindlm does not know what `{key}` of {event.type} holds"
                # kindlm's own words for why a pace changed.
                is_of_pace = event.type == ProviderPaced.type and string in _REASONS_OF_PACE
                if key in QUOTES and not is_of_pace:
                    return f"`{key}` may quote an answer, as recorded by an earlier kindlm"
                is_made_up = MADE_UP.fullmatch(key) and not _is_chosen(event.type, data, key)
                if is_made_up and not _NAME.fullmatch(string):
                    return (
                        f"`{key}` was made up by a model or an agent, and may be more than a name"
                    )
            if (number := self._pattern_of(string)) is not None:
                return f"`{key}` matches pattern {number} of redactPatterns"
        return None

    def _pattern_of(self, text: str) -> int | None:
        """Return the number, from 1, of a pattern that matches or takes too long; None without."""
        for number, matches in enumerate(self._matchers, 1):
            try:
                if matches(text):
                    return number
            except PatternError:
                return number
        return None


def _is_chosen(event_type: str, data: Mapping[str, Any], key: str) -> bool:
    """Return whether a person chose the value under a key of `MADE_UP`.

    These are paths of suites, and the providers and models that kindlm itself calls.
    """
    if event_type in _OF_SUITES:
        return key == "path"
    is_ours = event_type == ProviderRequested.type and data.get("purpose") in _ASKED_BY_KINDLM
    return is_ours and key in _CONFIGURED


_CONFIGS = """
SELECT c.body, s.front_end, s.path, s.project, s.name
  FROM suites s LEFT JOIN contents c ON c.ref = s.config_ref
 WHERE s.run IN (SELECT value FROM json_each(?)) AND s.config_ref IS NOT NULL
 ORDER BY s.run, s.ordinal
"""


_PULLED = """
SELECT pulled.key, max(pulled.value) FROM event_log e, json_each(e.data, '$.streams') pulled
 WHERE e.type = 'streams.pulled'
 GROUP BY pulled.key
"""


def common_url(uploads: Iterable[Upload]) -> Result[str | None]:
    """Return the server of suites that are sent together; None if they name no server."""
    urls = list(dict.fromkeys(each.url for each in uploads if each.url is not None))
    if len(urls) > 1:
        what = f"Suites have different values of upload.apiUrl: {urls[0]} and {urls[1]}."
        hint = "Use one server for the suites of a run, run them apart, or name it with --url."
        return Err(misuse(what, hint))
    return Ok(urls[0] if urls else None)


UploadNow = Callable[[str, str, str], Upload | None]
"""Returns the current settings of a suite by its path, project and name; None if it is gone."""


def recorded_rule(
    db: sqlite3.Connection,
    runs: Sequence[str],
    also: Sequence[Upload] = (),
    now: UploadNow = lambda *_: None,
    *,
    texts: bool,
) -> Result[Withholding]:
    """Return what to withhold of runs: by their settings, or with `texts` by their patterns alone.

    `also` are settings that apply in addition. If the settings of a suite are lost, such as in a
    purge, its patterns are those of `now` with `texts`; otherwise all content is withheld.

    Without `texts`, pulled content is withheld: pulled events may refer to any text here, and claim
    any settings.
    """
    uploads: list[Upload | None] = [*also]
    for body, front_end, path, project, name in db.execute(_CONFIGS, (json.dumps([*runs]),)):
        if body not in (None, REDACTED):
            uploads.append(_upload_of(body))
        elif front_end != "kindlm":
            uploads.append(Upload())  # other formats have no such settings
        else:
            uploads.append(now(path, project, name) if texts else None)
    known = [upload for upload in uploads if upload is not None]
    includes = texts or (bool(known) and all(upload.include_texts for upload in known))
    every_text = not includes or len(known) < len(uploads)
    patterns = dict.fromkeys(each for upload in known for each in upload.patterns)
    try:
        pulled = {} if texts else dict(db.execute(_PULLED).fetchall())
        return Ok(Withholding(every_text=every_text, patterns=[*patterns], pulled=pulled))
    except PatternError as error:
        what = f"upload.redactPatterns cannot be used: {error}."
        return Err(misuse(what, "Nothing of the run is sent without them."))


def _upload_of(text: str) -> Upload:
    """Return what a recorded configuration says about content, the default if it says nothing."""
    try:
        settings: Any = json.loads(text)["config"]["upload"]
        return Upload(
            include_texts=settings["includeArtifacts"] is True,
            patterns=tuple(str(each) for each in settings["redactPatterns"]),
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return Upload()
