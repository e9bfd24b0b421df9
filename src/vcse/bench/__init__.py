"""What `vcse bench` measures: one file per claim of speed or memory."""
