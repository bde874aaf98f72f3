"""SPU: two parties, Cheetah, a ring of 32 bits.

The matrix product is written in JAX and compiled before the clock starts. Both parties run as
threads with a link in memory, as in SPU's own simulator. Bytes are those that SPU's profile counts
on the link, and 4 for each distance that is opened to one party. Handing out the shares of the
inputs is not counted, since one of the two could come from a seed.

Here its product of the local shares (Eigen) sometimes ends in a crash or a wrong entry. The runner
tries again after a crash and reports both.
"""

from __future__ import annotations

import re
import threading

import numpy as np
from measure import Clock, arguments, distances, load, write
from spu import api, libspu
from spu.utils import frontend


def hamming(x, y):
    return x.sum(1)[:, None] + y.sum(1)[None, :] - 2 * (x @ y.T)


def main() -> None:
    args = arguments()
    x, y = (array.astype(np.int32) for array in load(args.data))
    log = args.data / "spu.log"
    log.unlink(missing_ok=True)
    options = libspu.logging.LogOptions()
    options.enable_console_logger = False
    options.system_log_path = str(log)
    libspu.logging.setup_logging(options)

    config = libspu.RuntimeConfig(protocol=libspu.ProtocolKind.CHEETAH, field=libspu.FieldType.FM32)
    config.enable_pphlo_profile = True
    secret = libspu.Visibility.VIS_SECRET
    program, _ = frontend.compile(
        frontend.Kind.JAX, hamming, (x, y), {}, ["x", "y"], [secret] * 2, lambda _: ["h"]
    )
    io = api.Io(2, config)
    description = libspu.link.Desc()
    for rank in range(2):
        description.add_party(f"party-{rank}", f"thread-{rank}")
    results, alive = [None, None], []

    with Clock() as clock:
        inputs = {"x": io.make_shares(x, secret, 0), "y": io.make_shares(y, secret, 1)}

        def party(rank: int) -> None:
            link = libspu.link.create_mem(description, rank)
            runtime = api.Runtime(link, libspu.RuntimeConfig(config))
            alive.append((link, runtime))  # until the other party has ended, too
            for name, shares in inputs.items():
                runtime.set_var(name, shares[rank])
            runtime.run(program)
            results[rank] = runtime.get_var("h")

        threads = [threading.Thread(target=party, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        h = io.reconstruct(results)

    counted = re.findall(r"total send bytes (\d+), recv bytes (\d+)", log.read_text())
    sent = sum(map(int, counted[0])) + 4 * h.size  # both directions, as one party sees them
    error = np.abs(h - distances(*load(args.data)))
    wrong = int((error > 0).sum())
    write(args, clock, sent=sent, exact=not wrong, wrong=wrong, largest_error=int(error.max()))


if __name__ == "__main__":
    main()
