"""The agent of a shop, as a server, a program and a function use it.

AGENT in the environment sets its behaviour: `good`, the default; `rude`, which looks nothing up;
or `silent`, which never answers.
"""

import os
import re
import time
from typing import Any

ORDERS: dict[str, dict[str, Any]] = {
    "A-17": {"status": "late, and arrives on Friday", "total": 49.99},
    "B-42": {"status": "delivered on Tuesday", "total": 19.5},
}
LATEST = "A-17"  # The last order of the customer, who is logged in.


def chat(body: dict[str, Any]) -> dict[str, Any]:
    """Answer a request in JSON: over HTTP, or from a line of a program."""
    return answer([each["content"] for each in body["messages"] if each["role"] == "user"])


def answer(messages: list[str]) -> dict[str, Any]:
    """Answer the last of a customer's messages."""
    kind = os.environ.get("AGENT", "good")
    if kind == "silent":
        time.sleep(3600)
    return rude(messages) if kind == "rude" else good(messages)


def good(messages: list[str]) -> dict[str, Any]:
    """Look the order up, and refund it once the customer agrees."""
    text, earlier = messages[-1].lower(), " ".join(messages[:-1]).lower()
    if "policy" in text:
        return reply("I am happy to help: you can send everything back within 30 days.")
    order = [LATEST, *re.findall(r"\b[A-Z]-\d+\b", " ".join(messages))][-1]
    found = ORDERS.get(order)
    looked_up = tool("lookup_order", found, order_id=order)
    if found is None:
        return reply(f"I am sorry, I cannot find order {order}. Is that its number?", looked_up)
    total = found["total"]
    if "refund" in earlier and re.search(r"\b(yes|fine)\b", text):
        return reply(
            f"I have started the refund of {total} now. I cannot hurry your bank: please expect it"
            " within five days.",
            looked_up,
            tool("issue_refund", "ok", order_id=order, amount=total),
        )
    status = f"I am sorry for the trouble. Order {order} is {found['status']}."
    if "refund" in text:
        return reply(f"{status} I can start a refund of {total}. Shall I?", looked_up)
    return reply(status, looked_up)


def rude(messages: list[str]) -> dict[str, Any]:
    """Look nothing up, and promise anything."""
    if len(messages) == 1:
        return reply("Calm down. It comes when it comes, and a refund is not my problem.")
    return reply("You have it within the hour, guaranteed. Goodbye.")


def reply(text: str, *calls: dict[str, Any]) -> dict[str, Any]:
    """Return an answer with its tool calls, in the form that kindlm reads."""
    return {"message": text, "tool_calls": calls}


def tool(name: str, result: Any, **arguments: Any) -> dict[str, Any]:
    """Return a tool call, for `reply`."""
    return {"name": name, "arguments": arguments, "result": result}
