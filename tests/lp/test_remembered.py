"""Labels that are randomised once and kept in a file, so that a retry spends no ε."""

from dataclasses import replace

import numpy as np
import pytest
from session_runs import SMALL, federation, predictions

from xclp_crypto.errors import LogError, LogRolledBack, ParameterError
from xclp_crypto.privacy import LabelPrivacy, RandomizedResponse
from xclp_crypto.rng import SeededRng
from xclp_crypto.transport.log import Log, LogKey
from xclp_lp.files.clients import LoadedClient
from xclp_lp.files.remembered import randomised_once
from xclp_lp.parameters import Parameters
from xclp_lp.session import ClientData
from xclp_lp.summary import retry_cautions

KEY = LogKey(bytes(range(32)))
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((60, 3)), RNG.integers(0, 3, 60)
Y[40:] = -1
X[1], Y[1] = X[0], Y[0]  # two rows that nothing tells apart


def params(epsilon=1.0, classes=("a", "b", "c")):
    return Parameters(classes=classes, privacy=RandomizedResponse(epsilon))


def entered(path, x=X, y=Y, ids=None, name="north", agreed=None, key=KEY):
    """The classes that a client enters."""
    loaded = LoadedClient(
        name, x, y, list(range(len(x))) if ids is None else ids, id_column=ids and "id"
    )
    data = ClientData(x, y)
    data, _ = randomised_once(path, key, loaded, data, agreed or params(), SeededRng(0))
    assert data.randomised
    return data.class_ids


@pytest.mark.parametrize("with_ids", [False, True])
def test_a_retry_enters_the_same_labels_whatever_the_order_and_draws_only_new_ones(
    tmp_path, with_ids
):
    names = [f"row {i}" for i in range(60)] if with_ids else None
    some = np.arange(30)
    first = entered(tmp_path / "labels", X[some], Y[some], names and names[:30])
    order = np.random.default_rng(1).permutation(60)
    order = np.concatenate([[0, 1], order[order > 1]])  # equal rows in their order
    x = X[order].astype(np.float32).astype(float) if with_ids else X[order]
    again = entered(tmp_path / "labels", x, Y[order], names and [names[i] for i in order])
    back = np.empty_like(again)
    back[order] = again
    assert np.array_equal(back[:30], first)
    assert (back[40:] == -1).all()
    assert np.isin(back[30:40], [0, 1, 2]).all()
    size = (tmp_path / "labels").stat().st_size
    assert np.array_equal(entered(tmp_path / "labels", X, Y, names), back)
    assert (tmp_path / "labels").stat().st_size == size
    assert b"north" not in (tmp_path / "labels").read_bytes()
    assert (tmp_path / "labels").stat().st_mode & 0o777 == 0o600


def test_who_averages_200_retries_learns_no_more_than_from_one(tmp_path):
    """Without a file the most frequent label of a row is the true one."""
    right = {}
    for keeps in (False, True):
        votes = np.zeros((40, 3))
        for i in range(200):
            if keeps:
                drawn = entered(tmp_path / "labels")[:40]
            else:
                drawn = params().privacy.randomize(Y[:40], 3, SeededRng(i))
            votes[np.arange(40), drawn] += 1
        right[keeps] = (votes.argmax(axis=1) == Y[:40]).sum()
        assert (votes.max(axis=1) == 200).all() == keeps
    assert right[False] == 40
    assert right[True] < 35  # 23 of 40 are expected, with a standard deviation of 3


def test_rows_that_are_equal_have_draws_of_their_own(tmp_path):
    x, y = np.zeros((400, 1)), np.zeros(400, dtype=np.int64)
    drawn = entered(tmp_path / "labels", x, y)
    assert abs((drawn == 0).sum() - 400 * np.e / (np.e + 2)) < 5 * 10


OTHER_LABEL = np.concatenate([(Y[:1] + 1) % 3, Y[1:]])


@pytest.mark.parametrize(
    ("changed", "kind", "words"),
    [
        ({"agreed": params(2.0)}, ParameterError, "of epsilon 1.0, not 2.0; give back"),
        ({"agreed": params(classes=("b", "a", "c"))}, ParameterError, "of classes .*, not "),
        ({"name": "south"}, ParameterError, "of client 'north', not 'south'"),
        ({"y": OTHER_LABEL}, ParameterError, "1 row has another label than the one that"),
        ({"key": LogKey(bytes(32))}, LogError, "another key was given"),
        (
            {"agreed": Parameters(classes=("a", "b", "c"), privacy=LabelPrivacy(1, 0.1, 1))},
            ParameterError,
            "is for labels that are randomised, and these are not",
        ),
    ],
)
def test_what_would_spend_epsilon_again_is_refused(tmp_path, changed, kind, words):
    first = entered(tmp_path / "labels")
    with pytest.raises(kind, match=words):
        entered(tmp_path / "labels", **changed)
    assert np.array_equal(entered(tmp_path / "labels"), first)


def test_a_file_that_is_cut_off_older_or_of_something_else_is_refused(tmp_path):
    path = tmp_path / "labels"
    entered(path, X[:30], Y[:30])
    older = path.read_bytes()
    entered(path)
    whole = path.read_bytes()
    for data in (older, whole[:-1], whole[: len(older) - 5], whole[:30], whole[:20], b""):
        path.write_bytes(data)
        for _ in range(2):
            with pytest.raises(LogRolledBack):
                entered(path)
    path.write_bytes(whole)
    entered(path)
    other = Log.open(tmp_path / "other", KEY)
    list(other.replay())
    other.append(1, b"of a role")
    other.sync()
    other.close()
    with pytest.raises(LogError, match="is not what a client has randomised; name another file"):
        entered(tmp_path / "other")


def test_labels_that_are_randomised_already_enter_as_they_are():
    """ε is so small that a draw would be of any class."""
    data = {c: ClientData(X[i : i + 20], Y[i : i + 20]) for c, i in (("a", 0), ("b", 20))}
    drawn = {c: replace(own, randomised=True) for c, own in data.items()}
    kept = predictions(federation(drawn, replace(SMALL, privacy=RandomizedResponse(1e-6))))
    plain = predictions(federation(data, SMALL))
    for client, own in plain.items():
        assert np.array_equal(kept[client].distribution, own.distribution)


def test_who_keeps_none_is_told_that_each_session_spends_epsilon():
    data = ClientData(X, Y)
    (line,) = retry_cautions(params(), data)
    assert "each spends epsilon = 1; --remember FILE" in line
    assert not list(retry_cautions(params(), ClientData(X, Y, randomised=True)))
    assert not list(retry_cautions(Parameters(classes=("a", "b")), data))
