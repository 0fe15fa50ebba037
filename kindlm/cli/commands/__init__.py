"""A module for each command, of its name; the work of a large command is in a second module."""
