"""Leases: parts of SSDs for programs that ask for them, each a drive of its own (docs/guide/orchestrate.md)."""
