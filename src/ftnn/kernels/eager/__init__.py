"""Plain torch: the reference, which is the oracle of every test, and matrix products."""
