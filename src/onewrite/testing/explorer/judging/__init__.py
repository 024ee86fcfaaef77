"""What is right: the states that undisturbed processing reaches, and what is said about a schedule that ends otherwise."""
