"""The page of what can not be shown: why, and what to do about it."""

from __future__ import annotations

from kindlm.reports.pages.document import Document


def notice_page(title: str, message: str, hint: str | None = None) -> Document:
    """Return the page; `message` and `hint` are untrusted texts."""
    return Document("notice.html", title, {"message": message, "hint": hint})
