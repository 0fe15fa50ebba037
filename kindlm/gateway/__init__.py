"""A loopback endpoint between agents and their model providers, which records their calls."""
