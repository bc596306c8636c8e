"""The reasons why a pod does not run, or how it runs: rules on what the API server knows. Pure."""
