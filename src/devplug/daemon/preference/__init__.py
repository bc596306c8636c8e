"""Which devices go together when there is a choice."""
