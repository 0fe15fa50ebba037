"""The protocols between rooms: what the engine and the checks need of the outside world.

Rooms meet here and nowhere else: the engine is handed clients, simulators, a checker and a
recorder that fit these protocols, and imports none of the modules that implement them.
"""

from __future__ import annotations

from kindlm.ports.agents import Agent, AgentFactory, AgentReply, AgentRequest, ConversationSpoilt
from kindlm.ports.checks import Aside, Ask, BaselineLookup, CheckContext, Checker, Embed, Question
from kindlm.ports.models import (
    ClientFactory,
    Embedder,
    EmbedderFactory,
    Embedding,
    ModelClient,
    ModelReply,
    ModelRequest,
    Pricing,
    Provenance,
    Purpose,
    Quota,
    ResponseSchema,
    ToolDefinition,
)
from kindlm.ports.recorded import (
    AnswerSource,
    Asked,
    HeldConversation,
    NothingHeld,
    RecordedAnswers,
    TranscriptSource,
)
from kindlm.ports.recording import Clock, Recorder
from kindlm.ports.scripts import Stage
from kindlm.ports.tools import (
    AnsweredCall,
    AnswerTool,
    SimulatedAnswer,
    SimulatorFactory,
    ToolSimulator,
)

__all__ = [
    "Agent",
    "AgentFactory",
    "AgentReply",
    "AgentRequest",
    "AnswerSource",
    "AnswerTool",
    "AnsweredCall",
    "Aside",
    "Ask",
    "Asked",
    "BaselineLookup",
    "CheckContext",
    "Checker",
    "ClientFactory",
    "Clock",
    "ConversationSpoilt",
    "Embed",
    "Embedder",
    "EmbedderFactory",
    "Embedding",
    "HeldConversation",
    "ModelClient",
    "ModelReply",
    "ModelRequest",
    "NothingHeld",
    "Pricing",
    "Provenance",
    "Purpose",
    "Question",
    "Quota",
    "RecordedAnswers",
    "Recorder",
    "ResponseSchema",
    "SimulatedAnswer",
    "SimulatorFactory",
    "Stage",
    "ToolDefinition",
    "ToolSimulator",
    "TranscriptSource",
]
