"""What is read from and written to the disk of a user."""
