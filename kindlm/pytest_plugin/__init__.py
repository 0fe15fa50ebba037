"""Runs scenarios under pytest, and records them as `kindlm test` does.

`plugin` is what pytest loads, always: it imports nothing heavy, and with `--kindlm` it registers
the rest. pytest starts one test after the other, while the engine goes on in a thread of its own
(`live_run`). Workers of pytest-xdist record a run each, and `controller` ends them together.
"""
