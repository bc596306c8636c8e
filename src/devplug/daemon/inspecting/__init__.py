"""What a configuration would find on this host, and which one would find what is here."""
