"""Model APIs. A provider is one module, `NAME_provider.py`, that makes a `ports.ModelClient`."""
