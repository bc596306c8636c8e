"""CDI specs of resources: the folder with their files, and the names that containers were given."""
