"""A scikit-learn-style front: all clients in this process, through the real protocols."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from textwrap import TextWrapper
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from xclp_crypto.errors import DataError, ParameterError
from xclp_crypto.front import client_names
from xclp_crypto.params import FRACTION_BITS
from xclp_crypto.privacy import LabelPrivacy, RandomizedResponse
from xclp_crypto.protocols.hamming import HammingBackend
from xclp_crypto.rng import Rng
from xclp_crypto.transport.driver import Progress
from xclp_lp import labels
from xclp_lp.accuracy import ClientPrior, ValidationKind
from xclp_lp.dataframes import column_names, index_of, labels_by_index, like_labels
from xclp_lp.diagnostics import CautionWarning
from xclp_lp.dropouts import checked_drop
from xclp_lp.graph import Ties
from xclp_lp.input_data import check_features, require_lists
from xclp_lp.labels import ClassWeight
from xclp_lp.lsh import Projection
from xclp_lp.parameters import Arguments
from xclp_lp.plan import Plan, Result
from xclp_lp.predictor import Predictor
from xclp_lp.scaling import Missing, Scale
from xclp_lp.summary import result_lines, unknown_lines
from xclp_lp.validation import meaning
from xclp_lp.wording import count


class CrossClientLabelPropagation(BaseEstimator):  # type: ignore[misc]  # sklearn is untyped
    """Label the unlabelled rows of several clients jointly (paper, Algorithm 1).

    Every client and the server run in this process and exchange the real, encrypted messages. The
    labels are those of label propagation over the pooled data.

    The arguments are the fields of `xclp_lp.parameters.Arguments`, which say what each is for, and
    the names of the clients.

    Args:
        client_names: one name per client, for errors and costs.

    Attributes:
        classes_: (C,) class labels.
        transduction_: list over clients of (n_j,) labels for *all* rows; −1 (integers) or None
            where no label reaches a row. For a client with a data frame it is a series with its
            index and, where that can hold what came out, the dtype of its labels; such a series
            has a missing value in the place of −1, if its dtype has one.
        labelled_: list of (n_j,) booleans: which rows had a label.
        confidence_: list of (n_j,) float64 in [0, 1]: how probably each label is right, from 13
            labels in all on; with fewer, or without `validation`, 1 minus the normalised entropy.
        validation_: list over clients of what leaving out each labelled row found, the same for
            all of a group but for their own parts; None where it was not measured. See
            `xclp_lp.accuracy.Validation`.
        label_distributions_: list of (n_j, C) float64, rows sum to 1.
        contributors_: names of the clients whose labels are counted.
        dropouts_: clients that dropped out, when, and what that means for whom; see
            `xclp_lp.dropouts.Dropout`. Without `drop` there are none.
        cost_: measured bytes, rounds and seconds; of groups, their sums, and the most rounds.
        groups_: clients by group, empty without `groups`.
        client_names_: names used.
        n_features_in_: d.
        feature_names_in_: (d,) names of the columns, if there are data frames and all their
            columns have names.

    Examples:
        >>> import numpy as np
        >>> from xclp_lp import CrossClientLabelPropagation
        >>> Xs = [np.array([[1.0, 0.1], [0.9, 0.0]]), np.array([[0.0, 1.0], [0.1, 0.8]]),
        ...       np.array([[1.0, 0.0], [0.0, 0.9]])]
        >>> ys = [[0, -1], [1, -1], [-1, -1]]
        >>> xclp = CrossClientLabelPropagation(n_bits=512, k=2, random_state=0).fit(Xs, ys)
        >>> xclp.transduction_[2].tolist()
        [0, 1]
    """

    def __init__(
        self,
        n_bits: int = 4096,
        k: int = 10,
        alpha: float | Literal["auto"] = "auto",
        *,
        gamma: float | Literal["auto"] = "auto",
        scale: Scale | Literal["auto"] = "auto",
        missing: Missing = "refuse",
        winsorise: float | None = None,
        projection: Projection = "random",
        hamming: str | HammingBackend = "rlwe",
        include_self: bool = False,
        ties: Ties = "all",
        classes: Sequence[Any] | None = None,
        fraction_bits: int = FRACTION_BITS,
        threshold: int | None = None,
        post_quantum: bool = True,
        class_weight: ClassWeight | Literal["auto"] = "auto",
        client_prior: ClientPrior = "none",
        validation: ValidationKind | Literal["auto"] = "auto",
        privacy: LabelPrivacy | RandomizedResponse | None = None,
        preset: Literal["default", "paper"] = "default",
        reset_labelled: bool = False,
        relative_confidence: bool = False,
        min_confidence: float = 0.0,
        groups: int | Sequence[str] | None = None,
        random_state: int | None = None,
        client_names: Sequence[str] | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.k = k
        self.alpha = alpha
        self.gamma = gamma
        self.scale = scale
        self.missing = missing
        self.winsorise = winsorise
        self.projection = projection
        self.hamming = hamming
        self.include_self = include_self
        self.ties = ties
        self.classes = classes
        self.fraction_bits = fraction_bits
        self.threshold = threshold
        self.post_quantum = post_quantum
        self.class_weight = class_weight
        self.client_prior = client_prior
        self.validation = validation
        self.privacy = privacy
        self.preset = preset
        self.reset_labelled = reset_labelled
        self.relative_confidence = relative_confidence
        self.min_confidence = min_confidence
        self.groups = groups
        self.random_state = random_state
        self.client_names = client_names

    def fit(
        self,
        Xs: Sequence[ArrayLike],
        ys: Sequence[ArrayLike | None],
        *,
        drop: Mapping[str, str] | None = None,
        rng: Rng | None = None,
        progress: Callable[[Progress], None] | None = None,
        row_names: Sequence[Sequence[str] | None] | None = None,
        keep_distances: bool = False,
    ) -> Self:
        """Run the protocol on the data of all clients: `plan` and `Plan.run`, which say more.

        Args:
            Xs: one (n_j, d) array per client; n_j may be 0.
            ys: one (n_j,) array of labels per client, or None.
            drop: clients that drop out, and before which step.
            rng: source of keys and masks.
            progress: called before each computation.
            row_names: names of rows, for errors.
            keep_distances: whether the server keeps them, 2·n² bytes, so that `update` can follow.

        Returns:
            This estimator.

        Raises:
            XclpError: as from `plan` and `Plan.run`.
        """
        require_lists(Xs=Xs, ys=ys)
        checked_drop(drop, client_names(len(Xs), self.client_names))
        plan = self.plan(Xs, ys, row_names)
        series: Sequence[Any] = [y if hasattr(y, "iloc") else None for y in ys]
        self._given = [y if y is None else y.iloc[:0] for y in series]
        self.__dict__.pop("feature_names_in_", None)  # of an earlier fit
        for caution in plan.cautions():
            warnings.warn(caution, CautionWarning, stacklevel=2)
        self._show(plan.run(progress=progress, drop=drop, rng=rng, keep=keep_distances))
        return self

    def _show(self, result: Result) -> None:
        """Set what is known after a run, and warn of what looks wrong."""
        plan = result.plan
        unknown = (line for own in result.validations.values() for line in unknown_lines(own))
        for line in (*result_lines(result), *unknown):
            warnings.warn(line, CautionWarning, stacklevel=3)  # whoever called fit
        predictions = [result.predictions[name] for name in plan.data]
        self._predictor = Predictor.of(result)
        self._updatable = result if result.distances else None
        self.classes_ = labels.class_array(plan.params.classes)
        self.transduction_ = [
            like_labels(result.labels(name), plan.indices[name], y)
            for name, y in zip(plan.data, self._given, strict=True)
        ]
        self.labelled_ = [own.class_ids != labels.UNLABELLED for own in plan.data.values()]
        self.confidence_ = [p.confidence for p in predictions]
        self.validation_ = [p.validation for p in predictions]
        self.label_distributions_ = [p.distribution for p in predictions]
        self.contributors_ = result.participation.contributors
        self.dropouts_ = result.participation.dropouts
        self.cost_ = result.cost
        self.groups_ = dict(plan.groups) if plan.grouped else {}
        self.client_names_ = tuple(plan.data)
        self.n_features_in_ = plan.features
        if plan.columns is not None:
            self.feature_names_in_ = np.array(plan.columns, dtype=object)

    def update(
        self,
        Xs: Sequence[ArrayLike],
        ys: Sequence[ArrayLike | None] | None = None,
        *,
        progress: Callable[[Progress], None] | None = None,
        rng: Rng | None = None,
    ) -> Self:
        """Label old and new rows anew; only distances of new rows are computed: `xclp_lp.update`.

        New labels and rows count for everybody, as if all had been fitted at once; features are
        scaled as they were in `fit`. All attributes are then those of old and new rows, the old
        ones of each client first. Rows of data frames with names that are there already, other than
        numbers from 0, are refused, since they would count twice. It needs a `fit` with
        `keep_distances=True`, and can be repeated.

        Args:
            Xs: one (m_j, d) array of new rows per client, as in `fit`; m_j may be 0.
            ys: one (m_j,) array of their labels per client, or None; their classes are those of
                `fit`.
            progress: called before each computation.
            rng: source of keys and masks.

        Returns:
            This estimator.

        Raises:
            NotFittedError: there are no results yet, or they are from a pickle.
            ParameterError: `fit` kept no distances, the back end is none of masked, plain, rlwe, or
                the sums have noise.
            DataError: the new rows or labels are not like those of `fit`.
        """
        self._require_kept()
        before: Result | None = self._updatable
        if before is None:
            raise ParameterError("fit kept no distances; call fit(…, keep_distances=True) first")
        ys = [None] * len(Xs) if ys is None else ys
        require_lists(Xs=Xs, ys=ys)
        plan = before.plan.followed_by(Xs, ys)
        self._warn_of_arrays(Xs)
        for caution in plan.cautions():
            warnings.warn(caution, CautionWarning, stacklevel=2)
        self._show(plan.run(progress=progress, rng=rng, since=before))
        return self

    def plan(
        self,
        Xs: Sequence[ArrayLike],
        ys: Sequence[ArrayLike | None],
        row_names: Sequence[Sequence[str] | None] | None = None,
    ) -> Plan:
        """Check all data and parameters, and compute nothing.

        Args:
            Xs: one (n_j, d) array, sparse matrix, tensor or data frame per client; n_j may be 0.
                Columns of data frames are matched by name.
            ys: one (n_j,) array of labels per client, or a series, which is matched by index with
                a data frame, and may have no entry for some of its rows; −1, None, NaN or a mask
                marks rows without. None instead of an array stands for a client without labels.
            row_names: one sequence of n_j names per client, or None: what errors and warnings call
                its rows; by default what the index of a data frame does, else their numbers from 0.

        Returns:
            What can be run, and the sizes that its cost follows from.

        Raises:
            DataError: NaN, infinity, ragged or unequal shapes, unknown class or no label at all;
                names client, row and column.
            ParameterError: a parameter is out of range, or `privacy` is asked for and
                dp-accounting is not installed.
        """
        arguments = Arguments(**{f.name: getattr(self, f.name) for f in fields(Arguments)})
        return Plan.of(arguments, Xs, ys, names=self.client_names, row_names=row_names)

    def fit_predict(
        self, Xs: Sequence[ArrayLike], ys: Sequence[ArrayLike | None]
    ) -> list[NDArray[Any]]:
        """Run `fit` and return `transduction_`."""
        transduction: list[NDArray[Any]] = self.fit(Xs, ys).transduction_
        return transduction

    def predict(
        self,
        Xs: Sequence[ArrayLike],
        *,
        progress: Callable[[Progress], None] | None = None,
        rng: Rng | None = None,
    ) -> list[Any]:
        """Label rows that come later, from distances to those that were fitted: `xclp_lp.later`.

        Nothing is solved anew, and fitted rows keep their labels. Confidences are calibrated as
        those of `fit`. Sets `predicted_confidence_` and `predict_cost_`, like `confidence_` and
        `cost_`. What was kept for this is secret: it is not in a pickle or copy of this estimator.
        After a fit on data frames an array is warned of, as scikit-learn does, since its columns
        are taken in the order of fit.

        Args:
            Xs: one (m_j, d) array of new rows per client, as in `fit`; m_j may be 0.
            progress: called before each computation.
            rng: source of keys and masks.

        Returns:
            A list like `transduction_`, of the new rows.

        Raises:
            NotFittedError: there are no results yet, or this is a copy or from a pickle.
            DataError: the new rows are not like those of `fit`.
            ParameterError: the back end is none of masked, plain, rlwe.
        """
        self._require_kept()
        require_lists(Xs=Xs)
        names = self.client_names_
        if len(Xs) != len(names):
            raise DataError(f"fit had {count(len(names), 'client')}; give new rows of each, or []")
        vectors = check_features(
            Xs,
            names,
            list(getattr(self, "feature_names_in_", ())),
            missing=self._predictor.params.missing == "mean",
        )
        if vectors[0].shape[1] != self.n_features_in_:
            raise DataError(
                f"the new rows have {count(vectors[0].shape[1], 'feature')}, those of fit "
                f"{self.n_features_in_}"
            )
        self._warn_of_arrays(Xs)
        own, classes = dict(zip(names, vectors, strict=True)), self._predictor.params.classes
        for caution in self._predictor.cautions(own, getattr(self, "feature_names_in_", None)):
            warnings.warn(caution, CautionWarning, stacklevel=2)
        found, self.predict_cost_ = self._predictor.run(own, progress=progress, rng=rng)
        self.predicted_confidence_ = [found[name].confidence for name in names]
        return [
            like_labels(labels.decode(found[name].class_ids, classes), index_of(x), y)
            for name, x, y in zip(names, Xs, self._given, strict=True)
        ]

    def _require_kept(self) -> None:
        """Refuse to go on without what the clients kept of fit."""
        check_is_fitted(self)
        if not hasattr(self, "_predictor"):
            raise NotFittedError(
                "this estimator is a copy or from a pickle, and what the clients kept to label new "
                "rows is secret, so it is neither copied nor pickled; use the estimator that was "
                "fitted, or call fit again. Labels and confidences are still here"
            )

    def _warn_of_arrays(self, Xs: Sequence[ArrayLike]) -> None:
        """Warn of new rows whose columns have no names where those of fit had, as scikit-learn."""
        for name, x in zip(self.client_names_, Xs, strict=True):
            if hasattr(self, "feature_names_in_") and column_names([x]) is None and np.size(x):
                warnings.warn(
                    f"client {name!r}: X does not have valid feature names, but "
                    f"{type(self).__name__} was fitted with feature names; its columns are taken "
                    "in their order",
                    UserWarning,
                    stacklevel=3,  # whoever called predict or update
                )

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        if "_predictor" in state:
            warnings.warn(
                "the copy or pickle has labels and confidences, but can neither predict nor "
                "update: what the clients kept for that is secret",
                UserWarning,
                stacklevel=3,
            )
        return {
            name: value for name, value in state.items() if name not in ("_predictor", "_updatable")
        }

    def score(self, Xs: Sequence[ArrayLike], ys: Sequence[ArrayLike | None]) -> float:
        """Return which share of the rows that had no label in `fit` it labelled as they should be.

        Nothing is computed anew: it is of the rows that were fitted. Rows without a label count as
        wrong.

        Args:
            Xs: the features that were fitted, by whose index a series of `ys` is matched.
            ys: one (n_j,) array of true labels per client, as in `fit`; −1, None, NaN or a mask
                where the truth is not known.

        Raises:
            NotFittedError: there are no results yet.
            DataError: these are not the clients and rows that were fitted, or their labels cannot
                be compared with its labels, or none is of a row that had no label.
        """
        check_is_fitted(self)
        require_lists(Xs=Xs, ys=ys)
        names, right = self.client_names_, []
        if not len(Xs) == len(ys) == len(names):
            raise DataError(f"fit had {count(len(names), 'client')}; give all of them, in order")
        true, found = [], []
        for name, x, y, own in zip(names, Xs, ys, self.transduction_, strict=True):
            given = np.full(len(own), None) if y is None else labels_by_index(index_of(x), y, name)
            true.append(labels.marked_values(given, name))
            found.append(labels.marked_values(own, name))
            if len(true[-1][0]) != len(own):
                raise DataError(
                    f"client {name!r}: {count(len(true[-1][0]), 'label')}, fit had "
                    f"{count(len(own), 'row')}; score is of the rows that were fitted"
                )
        known = [(self.classes_.tolist(), np.ones(len(self.classes_), dtype=bool)), *true]
        classes = labels.class_values(known, None, ["classes_", *names])
        for had, own, (values, there) in zip(self.labelled_, found, true, strict=True):
            same = labels.encode(values, there, classes) == labels.encode(*own, classes)
            right.append(same[there & ~had])
        if not sum(map(len, right)):
            raise DataError("ys says nothing of any row that had no label")
        return float(np.concatenate(right).mean())


def _with_meanings(doc: str) -> str:
    """Return the docstring with what every argument is for, from where it is declared."""
    wrapped = TextWrapper(100, initial_indent=" " * 8, subsequent_indent=" " * 12)
    told = [wrapped.fill(f"{f.name}: {meaning(Arguments, f.name)}.") for f in fields(Arguments)]
    return doc.replace("    Args:\n", "\n".join(["    Args:", *told, ""]))


CrossClientLabelPropagation.__doc__ = _with_meanings(str(CrossClientLabelPropagation.__doc__))
