"""What to claim next: lanes with their floors, keys, and the plan of one worker. Decides; the claimer does the I/O."""
