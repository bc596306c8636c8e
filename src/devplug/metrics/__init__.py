"""The metrics of a process: the catalogue, how numbers are gathered, and their text for Prometheus."""
