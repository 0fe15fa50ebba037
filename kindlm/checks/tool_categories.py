"""The check of tool categories: some tool of a kind was called, whichever it was.

The built-in categories are those of EvalView 0.8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from kindlm.checks.registry import check
from kindlm.checks.results import failed, passed
from kindlm.outcome import CheckResult, FailureCode
from kindlm.suite import Expectation
from kindlm.transcript import Transcript
from kindlm.wording import bounded, shown

__all__ = ["BUILT_IN_CATEGORIES", "tool_category", "tools_of"]

BUILT_IN_CATEGORIES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "file_read": (
            *("bash", "text_editor", "read_file", "read", "view", "cat", "view_file"),
            "str_replace_editor",
        ),
        "file_write": (
            *("bash", "text_editor", "write_file", "write", "edit_file", "create_file"),
            "str_replace_editor",
        ),
        "file_list": (
            *("bash", "list_directory", "list_dir", "ls", "find", "directory_tree", "analyze"),
        ),
        "search": (
            *("bash", "grep", "ripgrep", "rg", "search", "search_files", "code_search"),
            *("find_in_files", "analyze"),
        ),
        "shell": ("bash", "shell", "terminal", "execute", "run_command", "exec", "developer"),
        "web": ("web_search", "browse", "fetch_url", "http_request", "curl", "wget"),
        "git": ("bash", "git", "git_commit", "git_push", "git_pull", "git_status", "github"),
        "python": ("bash", "python", "python_repl", "execute_python", "ipython", "jupyter"),
    }
)


@check("tool_category")
def tool_category(expectation: Expectation, transcript: Transcript) -> list[CheckResult]:
    """Some tool of a category was called.

    Params: `category`; `tools`, the names of its tools if it is one of the project's own. A
    category that is neither has no tools, and is never satisfied.
    """
    category: str = expectation.params["category"]
    tools = tools_of(category, expectation.params.get("tools"))
    called = list(dict.fromkeys(use.call.name for use in transcript.tool_uses))
    if satisfied(tools, called):
        return [passed(expectation)]
    wanted = f"a tool of the category {shown(category)} ({shown(list(tools))})"
    if not tools:
        wanted = f"a tool of the category {shown(category)}, which has none"
    message = f"Expected {wanted}, called were {shown(called)}."
    if not called:
        message = f"Expected {wanted}, but no tool was called."
    code = FailureCode.TOOL_CATEGORY_MISSING
    expected = {"category": category, "tools": list(tools)}
    return [failed(expectation, code, message, expected=expected, actual=bounded(called))]


def tools_of(category: str, own: Sequence[str] | None) -> tuple[str, ...]:
    """Return the tools of a category: those of the project's `own`, else the built-in ones."""
    return tuple(own) if own is not None else BUILT_IN_CATEGORIES.get(category, ())


def satisfied(tools: Iterable[str], called: Iterable[str]) -> bool:
    """Tell whether one of the tools of a category was called."""
    return not set(tools).isdisjoint(called)
