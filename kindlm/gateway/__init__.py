"""A loopback endpoint between agents and their model providers: it records what passes."""
