"""The checks: each looks at a transcript and says whether what it expects is so.

A module is a section of `expect` in kindlm.yaml and the checks that it makes, or a family of checks
of other front ends. `base` says what a check is and finds them all; `check_runner` evaluates them.
"""
