"""One module for each command: its options and what it prints, nothing heavy at import."""
