"""What is wrong with what a plugin said, as functions on values: each returns faults in sentences. Pure."""
