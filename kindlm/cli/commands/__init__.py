"""A module for each command, or for a few related ones; a large command has a second module."""
