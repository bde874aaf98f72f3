"""CrypTen: two parties, and the first of them deals the multiplication triples and is trusted.

Party 0 has x and learns h, party 1 has y; shares modulo 2^64. Each party is a process, they talk
over local sockets. The bytes are CrypTen's own count: the sum over both parties, halved.

CrypTen 0.4.1 imports a converter of ONNX models that recent versions of torch cannot load. It is
not used here, so an empty module stands in for it; and so do the dependencies that only it and the
tools for neural networks have.
"""

from __future__ import annotations

import sys
import types

converter = types.ModuleType("crypten.nn.onnx_converter")
for name in ("from_onnx", "from_pytorch", "from_tensorflow", "TF_AND_TF2ONNX"):
    setattr(converter, name, None)
sys.modules[converter.__name__] = converter

import crypten  # noqa: E402
import crypten.communicator as comm  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from crypten import mpc  # noqa: E402
from crypten.config import cfg  # noqa: E402
from measure import Clock, arguments, distances, load, write  # noqa: E402


@mpc.run_multiprocess(world_size=2)
def party(args):
    cfg.mpc.provider = "TFP"
    cfg.communicator.verbose = True
    x, y = (torch.from_numpy(array.astype(np.int64)) for array in load(args.data))
    torch.set_num_threads(max(1, torch.get_num_threads() // 2))
    comm.get().barrier()
    comm.get().reset_communication_stats()
    with Clock() as clock:
        left = crypten.cryptensor(x, src=0, precision=0)
        right = crypten.cryptensor(y, src=1, precision=0)
        weights = left.sum(1).unsqueeze(1) + right.sum(1).unsqueeze(0)
        h = (weights - left.matmul(right.t()) * 2).get_plain_text(dst=0)
    counted = comm.get().get_communication_stats()["bytes"]
    if comm.get().get_rank() == 0:
        np.save(args.data / "crypten.npy", h.numpy())
    return clock.seconds, clock.cpu, counted


def main() -> None:
    args = arguments()
    results = party(args)
    if not results:
        raise SystemExit("a party of CrypTen failed")
    h = np.load(args.data / "crypten.npy").astype(np.int64)
    clock = Clock()
    clock.seconds = max(seconds for seconds, _, _ in results)
    clock.cpu = sum(cpu for _, cpu, _ in results)
    sent = sum(counted for _, _, counted in results) // 2
    write(args, clock, sent=sent, exact=np.array_equal(h, distances(*load(args.data))))


if __name__ == "__main__":
    main()
