"""Parts of the report `compliance`: tests and their results, arranged for an auditor.

`compliance_facts` reads the facts from the history, `rendering` renders a template with them, and
`reports/compliance_report.py` adds the hash of the text and makes a PDF.
"""
