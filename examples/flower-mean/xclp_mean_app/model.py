"""Softmax regression of scikit-learn's digits, in NumPy."""

import numpy as np

PIXELS, DIGITS = 64, 10
STEPS, RATE = 30, 0.5


def zeros():
    """Return the model to begin with."""
    return {
        "weight": np.zeros((PIXELS, DIGITS), np.float32),
        "bias": np.zeros(DIGITS, np.float32),
    }


def share(part, parts):
    """Return the pixels (n, 64) and digits of a node, and those that it keeps for its tests."""
    from sklearn.datasets import load_digits

    pixels, digits = load_digits(return_X_y=True)
    rows = np.array_split(np.random.default_rng(0).permutation(len(pixels)), parts)[part]
    X, y = (pixels[rows] / 16).astype(np.float32), digits[rows]
    cut = len(rows) * 4 // 5
    return (X[:cut], y[:cut]), (X[cut:], y[cut:])


def probabilities(model, X):
    scores = X @ model["weight"] + model["bias"]
    shifted = np.exp(scores - scores.max(1, keepdims=True))
    return shifted / shifted.sum(1, keepdims=True)


def train(model, X, y):
    """Return the model after some steps of gradient descent, and its loss."""
    weight, bias = model["weight"].copy(), model["bias"].copy()
    for _ in range(STEPS):
        wrong = probabilities({"weight": weight, "bias": bias}, X)
        wrong[np.arange(len(y)), y] -= 1
        weight -= RATE * X.T @ wrong / len(y)
        bias -= RATE * wrong.mean(0)
    trained = {"weight": weight, "bias": bias}
    chances = probabilities(trained, X)[np.arange(len(y)), y]
    return trained, float(-np.log(chances).mean())


def accuracy(model, X, y):
    return float((probabilities(model, X).argmax(1) == y).mean())
