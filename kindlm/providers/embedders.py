"""Who turns texts into vectors: the target's own provider if it can, else another of the suite.

A provider that can embed is one module and one line here, as in the registry of clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import TypeAlias

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.ports import Embedder
from kindlm.providers.local_embedder import LOCAL_MODEL_VARIABLE, local_embedder
from kindlm.providers.registry import check_settings
from kindlm.suite import ProviderSettings, Suite

__all__ = ["find_embedder", "may_embed"]

Maker: TypeAlias = Callable[[ProviderSettings, str | None, Mapping[str, str]], Embedder]

_MAKERS = {
    "openai": "kindlm.providers.openai_client:openai_embedder",
    "ollama": "kindlm.providers.ollama_client:ollama_embedder",
}


def find_embedder(suite: Suite, target: str, *, environ: Mapping[str, str]) -> Result[Embedder]:
    """Return the embedder for a target; bind `environ` to get a `ports.EmbedderFactory`.

    The order: the target's own provider, the suite's other providers, the local model that
    KINDLM_EMBEDDING_MODEL names. One that lacks its key is passed over while there is another.
    Error: none of them can (PROVIDER_NOT_FOUND), or the first that could lacks its key.
    """
    first_error: KindlmError | None = None
    for settings in _candidates(suite, target):
        key = check_settings(settings, environ)
        if isinstance(key, Ok):
            module, _, name = _MAKERS[settings.type].partition(":")
            maker: Maker = getattr(import_module(module), name)
            return Ok(maker(settings, key.value, environ))
        first_error = first_error or key.error
    folder = environ.get(LOCAL_MODEL_VARIABLE, "").strip()
    if folder:
        return local_embedder(folder)
    return Err(first_error or _nobody())


def may_embed(suite: Suite, environ: Mapping[str, str]) -> bool:
    """Tell whether a suite names anybody who can embed texts, whatever keys there are."""
    local = environ.get(LOCAL_MODEL_VARIABLE, "").strip()
    return bool(local) or any(item.type in _MAKERS for item in suite.providers.values())


def _candidates(suite: Suite, target: str) -> Iterator[ProviderSettings]:
    """Return the providers that can embed, the target's own first."""
    model = suite.models.get(target)
    own = None if model is None else suite.providers.get(model.provider)
    if own is not None and own.type in _MAKERS:
        yield own
    for settings in suite.providers.values():
        if settings.type in _MAKERS and settings is not own:
            yield settings


def _nobody() -> KindlmError:
    return KindlmError(
        ErrorCode.PROVIDER_NOT_FOUND,
        "No provider of this suite can embed texts",
        "Add `openai` or `ollama` to `providers`, or name a local model in "
        f"{LOCAL_MODEL_VARIABLE} (pip install 'kindlm[embeddings]'); or use method: judge",
    )
