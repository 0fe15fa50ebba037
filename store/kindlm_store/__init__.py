"""An append-only, hash-chained event store on SQLite."""
