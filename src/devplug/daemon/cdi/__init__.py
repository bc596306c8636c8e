"""CDI specs: their text and rules, the folder with their files, and the names that containers were given."""
