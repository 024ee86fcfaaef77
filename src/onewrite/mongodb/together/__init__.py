"""Several writes as one transaction."""
