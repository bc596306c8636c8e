"""CDI specs of ours: what they say, the rules they keep, their files, and the names that were given out."""
