"""The history in the browser: a Datasette plugin, and the server that runs it."""
