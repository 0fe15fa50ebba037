"""Scenarios: tests that are code, or YAML, of conversations with an agent.

`api`, `persona`, `reply`, `checks` and `trial` are what a test uses, and can be imported from
`kindlm`; `script` runs such a test as the engine asks for it. The rest is the front end that turns
files into suites.
"""
