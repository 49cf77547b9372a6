"""See what mixed precision does in a run: its loss scale, its overflows, its ranges."""
