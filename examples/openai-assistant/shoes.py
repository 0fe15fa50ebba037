"""The assistant of a shop for shoes: what it says, and which tools it uses for that.

AGENT in the environment says how it behaves: `good`, the default, or `rude`, which looks nothing
up. There is no model behind it: it takes the sentence that shares most words with the question.
"""

import os
import re
from typing import Any

PARCEL = 4.5
FILES = {
    "returns.md": ["You can send shoes back within 30 days.", "Each parcel back costs 4.50."],
    "delivery.md": ["A parcel to Norway takes 5 days.", "It costs 12.00."],
}

Calls = list[dict[str, Any]]


def answer(said: list[str], found: set[str]) -> tuple[str, Calls]:
    """Answer the last message of a customer: the text, and the tool calls before it.

    `said` is all that the customer said in the thread, `found` the files that were found in it.
    """
    return rude(said) if os.environ.get("AGENT") == "rude" else good(said, found)


def good(said: list[str], found: set[str]) -> tuple[str, Calls]:
    """Search the files, once in a thread, and have a program compute what is computed."""
    file = max(FILES, key=lambda name: shared_words(" ".join(said), " ".join(FILES[name])))
    calls = [] if file in found else [file_search(file)]
    refund = re.search(r"(\d+) pairs of (\d+\.\d\d)", said[-1])
    if refund is None:
        return max(FILES[file], key=lambda sentence: shared_words(said[-1], sentence)), calls
    pairs, price = int(refund[1]), float(refund[2])
    amount = f"{pairs * price - PARCEL:.2f}"
    code = f"print(f'{{{pairs} * {price} - {PARCEL}:.2f}}')"
    return f"You get {amount} back.", [*calls, code_interpreter(code, amount)]


def rude(said: list[str]) -> tuple[str, Calls]:
    """Look nothing up, and compute nothing."""
    if len(said) == 1:
        return "That is on our website. Read it.", []
    return "You will see when it is there.", []


def shared_words(one: str, other: str) -> int:
    """Count the words that two texts have in common."""
    first, second = (set(re.findall(r"\w+", text.lower())) for text in (one, other))
    return len(first & second)


def file_search(name: str) -> dict[str, Any]:
    """Return a search that found a file, as the API reports it."""
    text = " ".join(FILES[name])
    content = [{"type": "text", "text": text}]
    result = {"file_id": f"file_{name}", "file_name": name, "score": 1.0, "content": content}
    return {"type": "file_search", "file_search": {"results": [result]}}


def code_interpreter(code: str, printed: str) -> dict[str, Any]:
    """Return a program that was run and what it printed, as the API reports it."""
    outputs = [{"type": "logs", "logs": printed}]
    return {"type": "code_interpreter", "code_interpreter": {"input": code, "outputs": outputs}}
