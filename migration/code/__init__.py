"""The migration of source code: one pure function, and what reads, writes and reports around it."""
