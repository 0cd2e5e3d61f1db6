"""Transactions: publishes and settlements that happen together or not at all."""
