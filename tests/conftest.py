"""Hypothesis looks at no clock: how long an example may take depends on what else is running."""

from hypothesis import settings

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
