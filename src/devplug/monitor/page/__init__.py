"""The web page of a node or a sandbox: what it shows, and the server that shows it."""
