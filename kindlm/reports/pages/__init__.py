"""HTML pages of the history: for `kindlm browse`, and for reports that are one file.

A page is a template, the values it shows, and the style sheets and scripts it needs. The same page
is served and written to files; what differs is where its links lead.
"""
