"""The views of a node: its status and a moment become rows, sentences and screens. Pure."""
