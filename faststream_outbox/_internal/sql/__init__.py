"""Named statements, the rows that they return, and what fills in names and parameters."""
