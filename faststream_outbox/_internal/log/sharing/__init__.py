"""How members of a group share its slots: slots, spans, leases."""
