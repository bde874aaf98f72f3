"""Fuzz every decoder, guided by coverage: ``python -m tests.fuzz.run --runs 1000000``.

Needs atheris (``pip install -e '.[fuzz]'``), for CPython on Linux. Each decoder runs in a forked
process of its own, because libFuzzer ends its process; only the two packages are instrumented. An
untyped exception, a `Finding`, an input that takes 20 seconds, or 2 GiB of memory end it, and the
report names the file with the input. ``--work DIR`` keeps what was found to be interesting, from
where the next run goes on, and ``--keep`` reduces it to the corpus that the tests replay.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic

sys.path.insert(0, str(Path(__file__).parent))
import atheris

TIMEOUT = 20
MEMORY_MIB = 2048
STATUS = re.compile(r"^#(\d+)\s.*\bcov: (\d+)", flags=re.MULTILINE)
MEMORY = Path("/dev/shm")  # noqa: S108 - a folder in memory, for decoders that take files


def fuzz(decoder: Decoder, runs: int, seconds: int, work: Path) -> tuple[int, float, int, str]:
    """Fuzz one decoder.

    Args:
        decoder: what to fuzz.
        runs: inputs.
        seconds: at most; 0 for any.
        work: folder for the inputs that reach something new, and for reports.

    Returns:
        Inputs, inputs per second, edges that they reached, and what was found.
    """
    folder, report = work / decoder.name, work / f"{decoder.name}.log"
    folder.mkdir(parents=True, exist_ok=True)
    for i, data in enumerate((*decoder.seeds, *read_corpus(decoder.name))):
        (folder / f"seed-{i}").write_bytes(data)
    options = [
        sys.argv[0],
        str(folder),
        f"-runs={runs}",
        f"-max_total_time={seconds}",
        f"-max_len={decoder.max_input}",
        f"-timeout={TIMEOUT}",
        f"-rss_limit_mb={MEMORY_MIB}",
        f"-artifact_prefix={work}/{decoder.name}-",
        "-len_control=0",
    ]
    started = monotonic()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        with report.open("wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        atheris.Setup(options, lambda data: decoder.check(data) and None)
        atheris.Fuzz()
    try:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    taken = monotonic() - started
    text = report.read_text(encoding="utf-8", errors="replace")
    seen = STATUS.findall(text)
    inputs, edges = (int(n) for n in seen[-1]) if seen else (0, 0)
    return inputs, inputs / taken, edges, text[-5000:] if status or not seen else ""


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Give a folder, and remove it where it was made: a decoder's process may unwind to here."""
    owner, folder = os.getpid(), Path(tempfile.mkdtemp(prefix="xclp-fuzz-"))
    try:
        yield folder
    finally:
        if os.getpid() == owner:
            shutil.rmtree(folder)


def main(arguments: Sequence[str] | None = None) -> None:
    """Fuzz the decoders and print a table."""
    parser = argparse.ArgumentParser(description="Fuzz every decoder, guided by coverage.")
    parser.add_argument("--runs", type=int, default=1_000_000, help="inputs of each decoder")
    parser.add_argument("--seconds", type=int, default=0, help="of each decoder at most; 0: any")
    parser.add_argument("--only", nargs="+", help="these decoders")
    parser.add_argument("--work", type=Path, help="a folder that keeps what was found")
    parser.add_argument("--keep", action="store_true", help="write the corpus of the tests")
    chosen = parser.parse_args(arguments)
    with temporary_folder() as temporary:
        work = chosen.work or temporary
        every = decoders(temporary)
        unknown = set(chosen.only or ()) - set(every)
        if unknown:
            parser.error(f"there is no decoder {', '.join(unknown)}; there are {', '.join(every)}")
        print(f"{'decoder':22} {'inputs':>10} {'inputs/s':>9} {'edges':>6}  found", flush=True)
        bad = 0
        for name in chosen.only or every:
            inputs, rate, edges, found = fuzz(every[name], chosen.runs, chosen.seconds, work)
            bad += bool(found)
            result = "something" if found else "nothing"
            print(f"{name:22} {inputs:>10,} {rate:>9,.0f} {edges:>6}  {result}", flush=True)
            if found:
                print(found, flush=True)
            if chosen.keep:
                keep(every[name], [f.read_bytes() for f in sorted((work / name).iterdir())])
    sys.exit(f"{bad} decoders have findings" if bad else 0)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if MEMORY.is_dir():
        tempfile.tempdir = str(MEMORY)
    with atheris.instrument_imports(include=["xclp_crypto", "xclp_lp"]):
        from corpus import keep, read_corpus
        from decoders import Decoder
        from every import decoders
    main()
