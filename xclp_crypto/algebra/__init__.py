"""Residues, groups, pseudo-random generators and the domain tags that separate their uses."""
