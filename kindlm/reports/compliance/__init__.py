"""The compliance report: what was tested and how it came out, arranged for an auditor.

`compliance_facts` reads everything from the history, `rendering` puts it into the words of a
template, and `reports/compliance_report.py` adds the hash of the text, and makes a PDF.
"""
