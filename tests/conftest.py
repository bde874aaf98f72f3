"""Settings and fixtures of all tests.

Hypothesis looks at no clock: how long an example may take depends on what else is running.
"""

from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


@pytest.fixture
def one_thread() -> Iterator[None]:
    """PyTorch with one thread: how sums are split among threads changes their last bits."""
    import torch  # other tests do without

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
