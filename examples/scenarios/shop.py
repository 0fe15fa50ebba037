"""The agent of a shop: what it answers, whichever way it is talked to.

AGENT in the environment says how it behaves: `good`, the default; `rude`, which looks nothing up;
or `silent`, which gives no answer at all.
"""

import os
import re
import time
from typing import Any

ORDERS: dict[str, dict[str, Any]] = {
    "A-17": {"status": "late, and arrives on Friday", "total": 49.99},
    "B-42": {"status": "delivered on Tuesday", "total": 19.5},
}
LATEST = "A-17"  # Customers are logged in: what they ordered last is known.


def chat(body: dict[str, Any]) -> dict[str, Any]:
    """Answer a request that came as JSON: over HTTP, or as a line for a program."""
    return answer([each["content"] for each in body["messages"] if each["role"] == "user"])


def answer(said: list[str]) -> dict[str, Any]:
    """Answer the last message of a customer, given all that they said."""
    kind = os.environ.get("AGENT", "good")
    if kind == "silent":
        time.sleep(3600)
    return rude(said) if kind == "rude" else good(said)


def good(said: list[str]) -> dict[str, Any]:
    """Look the order up, and refund it once the customer agrees."""
    text, earlier = said[-1].lower(), " ".join(said[:-1]).lower()
    if "policy" in text:
        return reply("I am happy to help: you can send everything back within 30 days.")
    order = [LATEST, *re.findall(r"\b[A-Z]-\d+\b", " ".join(said))][-1]
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


def rude(said: list[str]) -> dict[str, Any]:
    """Look nothing up, and promise anything to be left alone."""
    if len(said) == 1:
        return reply("Calm down. It comes when it comes, and a refund is not my problem.")
    return reply("You have it within the hour, guaranteed. Goodbye.")


def reply(text: str, *calls: dict[str, Any]) -> dict[str, Any]:
    """Return an answer as kindlm reads it, with the tools that were called for it."""
    return {"message": text, "tool_calls": calls}


def tool(name: str, result: Any, **arguments: Any) -> dict[str, Any]:
    """Return a tool call, for `reply`."""
    return {"name": name, "arguments": arguments, "result": result}
