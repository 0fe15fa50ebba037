"""Measures the time, memory and storage that kindlm takes. Run it with `python -m benchmarks`."""
