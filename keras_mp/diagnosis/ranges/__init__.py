"""`range_report`: how large the numbers of a model are, measured, judged, written and drawn."""
