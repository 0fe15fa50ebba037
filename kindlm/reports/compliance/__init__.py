"""The compliance report: what was tested and how it came out, arranged for an auditor.

`facts` reads everything from the history, `articles` says what testing can show of a law, a
template puts it into words, and `document` adds the hash of what it says.
"""

from kindlm.reports.compliance.report import REPORT

__all__ = ["REPORT"]
