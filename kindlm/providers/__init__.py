"""Model APIs. A provider is one module that makes a `ports.ModelClient`, and a registry line."""
