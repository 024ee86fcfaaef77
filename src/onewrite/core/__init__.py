"""What the engines share, and users never name."""
