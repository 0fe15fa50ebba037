"""Runs scenarios under pytest, and records them as `kindlm test` does.

pytest always loads `plugin`, which imports nothing heavy; with `--kindlm` it registers
`scenario_items`. pytest collects the scenarios, and `session_request` makes suites of them. pytest
starts one test after another, and the engine runs them in its own thread (`driven_run`). Each
worker of pytest-xdist records a run, and `controller` ends these runs together.
"""
