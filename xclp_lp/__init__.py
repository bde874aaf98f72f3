"""Cross-client label propagation: label data jointly without showing it."""
