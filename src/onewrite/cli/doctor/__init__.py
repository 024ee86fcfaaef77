"""What `onewrite doctor` is told, and how it tells what it found."""
