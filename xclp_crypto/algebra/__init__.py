"""Residues, groups, pseudo-random generators and the labels that separate their uses."""
