"""Reference solutions of the equations, and the random initial fields they start from."""
