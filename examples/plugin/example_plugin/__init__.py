"""An example of what a package adds to kindlm: a check, a provider, an agent adapter, a report."""
