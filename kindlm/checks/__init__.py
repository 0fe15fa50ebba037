"""The checks: each looks at a transcript and says whether what it expects is so.

One module holds one family of them; `base.Check` says what a check is, `runner` evaluates them.
"""
