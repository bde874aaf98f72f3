"""Two programs in threads of this process, at the ends of one connection."""

import socket
import threading

from xclp_crypto.errors import XclpError


def both(door, mine, theirs, receiver, sender):
    """Run both ends of a door; return results or errors.

    `mine` and `theirs` are its arguments before the socket, a tuple if there are several.
    """
    results = {}

    def run(name, sock, rows, receives, options):
        with sock:
            try:
                results[name] = door(*rows, sock, receives=receives, timeout=20, **options)
            except XclpError as error:
                results[name] = error

    mine, theirs = (x if isinstance(x, tuple) else (x,) for x in (mine, theirs))
    ours, other = socket.socketpair()
    thread = threading.Thread(target=run, args=("sender", other, theirs, False, sender))
    thread.start()
    run("receiver", ours, mine, True, receiver)
    thread.join()
    return results["receiver"], results["sender"]
