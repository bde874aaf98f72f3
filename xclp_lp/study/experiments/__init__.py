"""The paper's prediction experiments: data with labels hidden, methods, and tables of accuracy."""
