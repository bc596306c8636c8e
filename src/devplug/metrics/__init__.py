"""What a process tells Prometheus: which metrics there are, how numbers are gathered, and their text."""
