"""Finds out about a conversation what a weighted score is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kindlm.checks.output_patterns import count_unmatched
from kindlm.checks.output_schema import output_fits
from kindlm.checks.score_formulas import OutputFacts, tool_accuracy
from kindlm.checks.substrings import occurs
from kindlm.checks.tool_sequences import SequenceMode, sequence_progress
from kindlm.transcript import Transcript

__all__ = ["accuracy_of", "output_facts", "progress_of"]


def output_facts(params: Mapping[str, Any], text: str) -> OutputFacts:
    """Return how much of its checks an output meets; runs patterns, and a schema.

    Params: `query`; `contains` and `notContains`; `regexPatterns`; `jsonSchema`.
    """
    wanted, unwanted = params.get("contains") or (), params.get("notContains") or ()
    patterns, schema = params.get("regexPatterns") or (), params.get("jsonSchema")
    return OutputFacts(
        query=params.get("query") or "",
        output=text,
        contained=_share([occurs(needle, text) for needle in wanted]),
        avoided=_share([not occurs(needle, text) for needle in unwanted]),
        unmatched=count_unmatched(patterns, text) / len(patterns) if patterns else None,
        fits=None if schema is None else output_fits(schema, text),
    )


def accuracy_of(params: Mapping[str, Any], transcript: Transcript) -> float:
    """Return the accuracy of tools; params: `tools`, and `toolCategories` with their own tools."""
    categories: Mapping[str, Sequence[str] | None] = params.get("toolCategories") or {}
    kinds = [tools or () for tools in categories.values()]
    return tool_accuracy(params.get("tools") or (), kinds, _called(transcript))


def progress_of(params: Mapping[str, Any], transcript: Transcript) -> float:
    """Return how far the calls follow a sequence; params: `sequence`, `sequenceMode`."""
    mode = SequenceMode(params.get("sequenceMode") or SequenceMode.SUBSEQUENCE)
    return sequence_progress(params.get("sequence") or (), _called(transcript), mode).share


def _called(transcript: Transcript) -> list[str]:
    return [use.call.name for use in transcript.tool_uses]


def _share(met: Sequence[bool]) -> float | None:
    return sum(met) / len(met) if met else None
