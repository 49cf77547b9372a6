"""One training step that changes nothing, and what happens in it as others may observe it."""
