"""The history in the browser: Datasette, with descriptions, saved queries and links."""
