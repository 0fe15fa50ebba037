"""One run on many processes or machines: a coordinator, its workers, and what they agree on."""
