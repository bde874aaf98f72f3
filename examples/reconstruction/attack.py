"""What a run gives away by its results, shown on pictures of digits.

docs/understand/reveals.md explains it. Three clients hold 120 pictures each. No protocol is broken:
each attack uses the output of a run, what the server computes from it, and what one client has
anyway.

    python attack.py              prints what each attack finds
    python attack.py digits.png   also draws pictures beside their reconstructions (needs pillow)
"""

import sys
from pathlib import Path

import numpy as np
from scipy.linalg import orthogonal_procrustes
from sklearn.datasets import load_digits

from xclp_crypto import secure_hamming
from xclp_crypto.params import FRACTION_BITS
from xclp_crypto.rng import SeededRng
from xclp_lp.graph import neighbour_graph
from xclp_lp.lsh import hash_bits, projection
from xclp_lp.propagation import influence

CLIENTS, ROWS, BITS = 3, 120, 4096
K, ALPHA, LABELLED = 5, 0.99, 12


def directions(vectors):
    """Return the rows at length 1: hashing forgets lengths."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def server_output(pictures):
    """Return what the server gets of a run: all distances. Clients hash by a secret projection."""
    rng = SeededRng(1)
    secret = projection(rng.bytes(32), BITS, pictures.shape[2])
    hashes = [hash_bits(rows, secret) for rows in pictures]
    return secure_hamming(hashes, backend="masked", rng=rng)[0].astype(float)


def geometry(distances, dimensions):
    """Place all points from their distances alone, up to a rotation or reflection.

    cos(π·H/L) estimates the matrix of inner products of the directions; its largest eigenvalues and
    their eigenvectors are coordinates that have these inner products (classical scaling).
    """
    values, vectors = np.linalg.eigh(np.cos(np.pi * distances / BITS))
    largest = slice(-dimensions, None)
    return directions(vectors[:, largest] * np.sqrt(np.maximum(values[largest], 0)))


def align(points, known, where):
    """Turn the points so that some of them fall on known ones, and all others onto theirs."""
    width = max(points.shape[1], known.shape[1])
    points, known = (
        np.pad(x, ((0, 0), (0, width - x.shape[1]))) for x in (points, directions(known))
    )
    rotation, _ = orthogonal_procrustes(points[where], known)
    return points @ rotation


def nearest_found(column, similarity, count):
    """Return the share of the true nearest rows among those with the largest influence."""
    guess, truth = (set(np.argsort(-x)[:count].tolist()) for x in (column, similarity))
    return len(guess & truth) / count


def solve_labels(influences, own_scores):
    """Return the classes of labelled rows from one client's scores, given all columns of S."""
    labels, *_ = np.linalg.lstsq(influences, own_scores, rcond=None)
    return labels.argmax(axis=1)


def draw(path, pictures, rebuilt):
    """Write pictures in one line and their reconstructions below, each pixel eightfold."""
    from PIL import Image

    lines = [np.hstack([np.pad(p.reshape(8, 8), 1) for p in x]) for x in (pictures, rebuilt)]
    grey = np.clip(np.vstack(lines), 0, None)
    image = Image.fromarray((255 - 255 * grey / grey.max()).astype(np.uint8))
    image.resize((8 * image.width, 8 * image.height), Image.Resampling.NEAREST).save(path)


def attacks():
    """Run once; return what each attack finds, by name, and pictures with reconstructions."""
    data, classes = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(data))[: CLIENTS * ROWS]
    pictures, classes = data[order].reshape(CLIENTS, ROWS, -1), classes[order]
    every = directions(pictures.reshape(CLIENTS * ROWS, -1))
    others = slice(ROWS, None)  # the rows of all but the first client
    distances = server_output(pictures)

    # The server alone: angles, and a map of all points up to rotation.
    points = geometry(distances, 30)
    inner = every @ every.T
    pairs = np.triu_indices(len(every), 1)
    angles = np.abs(np.pi * distances / BITS - np.arccos(np.clip(inner, -1, 1)))[pairs]
    found = {
        "error of an angle, degrees": float(np.degrees(angles.mean())),
        "correlation of inner products": float(
            np.corrcoef((points @ points.T)[pairs], inner[pairs])[0, 1]
        ),
    }

    # The server and the first client, which hands over its raw pictures: the others' pictures.
    rebuilt = align(points, pictures[0], slice(0, ROWS))[others, : every.shape[1]]
    likeness = (directions(rebuilt) * every[others]).sum(axis=1)
    blind = directions(pictures[0]).mean(axis=0) @ every[others].T
    blind /= np.linalg.norm(directions(pictures[0]).mean(axis=0))
    found["cosine of a picture and its reconstruction"] = float(likeness.mean())
    found["cosine of a picture and the known ones' mean"] = float(blind.mean())

    # A client alone: the column of S of one labelled row tells who is near to it.
    labelled = np.concatenate([np.arange(LABELLED) + c * ROWS for c in range(CLIENTS)])
    graph = neighbour_graph(distances.astype(np.uint16), BITS, K)
    columns = influence(graph, labelled, ALPHA).astype(np.float32).astype(float)  # as they travel
    mine = range(LABELLED)
    near = [nearest_found(columns[others, i], inner[others, i], 10) for i in mine]
    found["share of the 10 nearest rows of others found"] = float(np.mean(near))
    found["the same by chance"] = 10 / len(every[others])

    # The server and the first client, which hands over the scores of its rows: all labels.
    scores = columns @ np.eye(10)[classes[labelled]]
    scores = np.rint(scores * 2**FRACTION_BITS) / 2**FRACTION_BITS  # the sum is in fixed point
    solved = solve_labels(columns[:ROWS], scores[:ROWS])
    right = solved[LABELLED:] == classes[labelled[LABELLED:]]
    found["share of the others' labels solved for"] = float(right.mean())

    best = directions(rebuilt)[:12] * np.linalg.norm(pictures[1, :12], axis=1, keepdims=True)
    return found, pictures[1, :12], best


def main(arguments):
    """Print what the attacks find, and draw if a path is given."""
    found, pictures, rebuilt = attacks()
    for what, value in found.items():
        print(f"{what}: {value:.3f}")
    if arguments:
        draw(Path(arguments[0]), pictures, rebuilt)


if __name__ == "__main__":
    main(sys.argv[1:])
