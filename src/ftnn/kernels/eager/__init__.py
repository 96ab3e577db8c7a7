"""Plain torch: matrix products, and the reference that tests compare everything with."""
