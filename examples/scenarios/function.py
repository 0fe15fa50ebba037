"""The agent as a function, which kindlm calls with the whole conversation."""

from typing import Any

from shop import answer

from kindlm.ports import AgentRequest


def respond(request: AgentRequest) -> dict[str, Any]:
    """Answer the last message of a conversation."""
    return answer([each.text for each in request.messages if each.role == "user"])
