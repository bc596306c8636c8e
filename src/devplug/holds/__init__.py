"""Who holds what: the answers of PodResources and our own Allocates, kept as one ledger for the process."""
