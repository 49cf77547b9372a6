"""`find_overflow`: the first op of a step whose values leave the range of their dtype."""
