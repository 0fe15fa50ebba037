"""Runs scenarios under pytest, and records them as `kindlm test` does.

pytest always loads `plugin`, which imports nothing heavy; with `--kindlm` it registers
`scenario_items`. pytest collects the scenarios, and `session_request` makes suites of them. pytest
starts one test after the other, while the engine goes on in a thread of its own (`driven_run`).
Workers of pytest-xdist record a run each, and `controller` ends them together.
"""
