"""The embeddings route: hashed bags of words, so that texts with common words are near."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import struct
from typing import Any

from kindlm.testing.conversation import estimate_tokens
from kindlm.testing.wire import Refusal

DEFAULT_DIMENSIONS = 256
MAX_DIMENSIONS = 4096
_WORD = re.compile(r"\w+")


def embed(text: str, dimensions: int) -> list[float]:
    """The text's vector of length one: a signed count of its words, hashed to positions."""
    vector = [0.0] * dimensions
    for word in _WORD.findall(text.casefold()):
        digest = hashlib.blake2b(word.encode("utf-8", "replace"), digest_size=8).digest()
        position = int.from_bytes(digest[:4], "big") % dimensions
        vector[position] += 1.0 if digest[4] & 1 else -1.0
    length = math.hypot(*vector)
    return [value / length for value in vector] if length else [1.0, *vector[1:]]


def refusal(body: dict[str, Any]) -> Refusal | None:
    """What is wrong with an embeddings request."""
    if not isinstance(body.get("model"), str):
        return _refuse("you must provide a model parameter")
    texts = _texts(body.get("input"))
    if not texts or not all(isinstance(text, str) and text for text in texts):
        return _refuse("'$.input' is invalid. Please check the API reference.", "input")
    dimensions = body.get("dimensions", DEFAULT_DIMENSIONS)
    if type(dimensions) is not int or not 1 <= dimensions <= MAX_DIMENSIONS:
        return _refuse(f"Invalid value for 'dimensions': {dimensions}", "dimensions")
    if body.get("encoding_format", "float") not in ("float", "base64"):
        return _refuse("Invalid value for 'encoding_format'", "encoding_format")
    return None


def _refuse(message: str, param: str | None = None) -> Refusal:
    return Refusal(400, "invalid_request_error", message, param)


def write(body: dict[str, Any], reported_model: str) -> bytes:
    """The response to an accepted embeddings request."""
    texts = _texts(body["input"])
    vectors = [embed(text, body.get("dimensions", DEFAULT_DIMENSIONS)) for text in texts]
    if body.get("encoding_format") == "base64":
        encoded: list[Any] = [_base64(vector) for vector in vectors]
    else:
        encoded = vectors
    tokens = sum(estimate_tokens(text) for text in texts)
    response = {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": vector}
            for index, vector in enumerate(encoded)
        ],
        "model": reported_model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    return json.dumps(response).encode("ascii")


def _texts(value: Any) -> list[Any]:
    if isinstance(value, str):
        return [value]
    return value if isinstance(value, list) else []


def _base64(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode("ascii")
