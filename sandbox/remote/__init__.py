"""Executions on other machines, over HTTP: a client and a service of the same API."""
