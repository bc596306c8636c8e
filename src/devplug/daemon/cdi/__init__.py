"""CDI specs of ours: their text and rules, the folder they are in, and the names that were given out."""
