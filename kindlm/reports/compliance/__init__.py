"""Parts of the report `compliance`.

`compliance_facts` reads facts from the history, `rendering` renders a template with them, and
`reports/compliance_report.py` adds the hash of the text and makes a PDF.
"""
