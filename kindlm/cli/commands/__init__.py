"""One module for each command: its options and its work; a large one has a second module."""
