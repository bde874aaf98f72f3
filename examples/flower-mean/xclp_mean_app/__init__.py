"""The example app: a classifier of digits, trained where the digits are."""
