"""Whose connection runs a statement: the caller's own, or a dedicated one of ours."""
