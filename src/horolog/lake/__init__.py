"""The lake: scheduled messages of the far future in a Delta table, and how they come and go."""
