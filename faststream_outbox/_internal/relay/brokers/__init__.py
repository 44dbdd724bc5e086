"""Transports to FastStream's own brokers, a module for each client library, imported when it is used."""
