"""Checks the schema and the running system, and names causes: what is wrong, what it costs, and what repairs it.

It only reads. The command line and the dashboard show its findings.
"""

from faststream_outbox._internal.doctor.doctor import Doctor
from faststream_outbox._internal.doctor.finding import JSON, SEVERITIES, Finding, Limits, Severity, worst

__all__ = ["JSON", "SEVERITIES", "Doctor", "Finding", "Limits", "Severity", "worst"]
