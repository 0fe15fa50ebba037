"""The command line: the only layer that prints, exits, and turns errors into words."""
