"""The agent that the tests talk to: it answers customers of a shop. Put your own in its place."""

import re

ORDERS = {
    "A-17": {"status": "delivered", "day": "Tuesday", "total": 49.99},
    "B-42": {"status": "late", "day": "Friday", "total": 19.5},
}


class Agent:
    """One conversation with a customer."""

    def __init__(self) -> None:
        """Begin a conversation: nothing is known yet."""
        self.order: str | None = None

    def send(self, message: str) -> dict[str, object]:
        """Answer a message: with a text, and the tools that were called for it."""
        text = message.lower()
        found = re.search(r"\b[A-Z]-\d+\b", message)
        if found is not None:
            self.order = found[0]
        if re.search(r"instructions|system prompt|pretend|poem|someone else|neighbour", text):
            return say("I am sorry, I cannot help with that. I gladly help with your own orders.")
        if self.order is None:
            return say("I am happy to help. Which order is it about? It has a number like A-17.")
        return self.about_order(self.order, wants_refund="refund" in text)

    def about_order(self, order: str, *, wants_refund: bool) -> dict[str, object]:
        """Look an order up, and say what became of it, or refund it."""
        known = ORDERS.get(order)
        calls: list[dict[str, object]] = [
            {"name": "lookup_order", "arguments": {"order_id": order}, "result": known}
        ]
        if known is None:
            return say(f"I am sorry, I cannot find order {order}. Is its number right?", calls)
        if not wants_refund:
            status = f"Order {order} is {known['status']}; the day is {known['day']}."
            return say(f"Thank you for your patience. {status}", calls)
        refund = {"order_id": order, "amount": known["total"]}
        calls.append({"name": "issue_refund", "arguments": refund, "result": {"id": "REF-1"}})
        told = f"I have refunded order {order}. The money arrives within five days."
        return say(f"I am sorry for the trouble. {told}", calls)


def say(text: str, calls: list[dict[str, object]] | None = None) -> dict[str, object]:
    """Return an answer."""
    return {"message": text, "tool_calls": calls or []}
