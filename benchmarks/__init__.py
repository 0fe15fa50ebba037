"""What kindlm costs: time, memory and bytes. `python -m benchmarks` measures and prints a table."""
