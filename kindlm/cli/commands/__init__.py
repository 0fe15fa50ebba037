"""A module for each command, or for a few that belong together; a large one has a second module."""
