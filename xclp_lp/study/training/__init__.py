"""Federated semi-supervised learning: the paper's Algorithm 2, and what it is compared with.

Needs PyTorch, the extra ``ssl``; nothing else in xclp imports this package.
"""

from importlib.util import find_spec

from xclp_crypto.errors import ParameterError

if find_spec("torch") is None:
    raise ParameterError(
        "federated semi-supervised learning needs PyTorch; install it with: pip install 'xclp[ssl]'"
    )

from xclp_lp.study.training.client import ClientRows, Training
from xclp_lp.study.training.neural_networks import NETWORKS, Network, network
from xclp_lp.study.training.trainer import FederatedTrainer

__all__ = ["NETWORKS", "ClientRows", "FederatedTrainer", "Network", "Training", "network"]
