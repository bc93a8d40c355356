"""The structured Gaussian process around the formula: sums of products of "same name" and "near in size".

A component says what two rows must have in common (``same``) and in which sizes they must be near (``near``). Its
variance, like every length, is learnt by marginal likelihood under weak priors. A row that shares nothing with the
training data keeps the full variance of every component, so intervals are narrow where there is data and wide
elsewhere.

Leaving a block of rows out has a closed form (``left_out``), which gives honest errors for kept-back layouts, pairings
or models without a second fit: the intervals and the trees are fitted to those.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize

from hcs.predict.steptime import StepTime
from hcs.predict.table import Floats, Index, Mask, Names, Table

_JITTER = 1e-8
_FREEDOM = 2.0  # of heavy tails


@dataclass(frozen=True)
class Component:
    """Rows with the same names in ``same`` and near in the sizes in ``near`` move together; ``sd`` is a first guess."""

    same: tuple[str, ...]
    near: tuple[str, ...]
    sd: float


COMPONENTS = (
    Component(("model",), ("batch",), 0.15),
    Component(("model", "batch"), (), 0.05),
    Component(("model", "batch"), ("layout",), 0.05),
    Component(("card",), ("batch",), 0.10),
    Component(("card",), ("layout",), 0.10),
    Component(("model",), ("layout",), 0.10),
    Component(("pairing",), ("batch",), 0.10),
    Component(("pairing", "batch"), (), 0.05),
    Component(("pairing",), ("layout",), 0.10),
    Component(("pairing",), ("batch", "layout"), 0.15),
    Component(("pairing", "batch"), ("layout",), 0.05),
    Component(("pairing", "shape"), (), 0.04),
    Component(("pairing", "shape"), ("batch",), 0.04),
    Component(("campaign",), ("layout",), 0.05),
    Component(("campaign", "pairing"), ("batch",), 0.10),
    Component(("campaign", "card"), ("layout",), 0.05),
)
_SIZES = {"batch": ("batch",), "layout": ("cards", "nodes", "largest", "uneven")}
_FEATURES = ("batch", "cards", "nodes", "largest", "uneven")
_LENGTHS = {"batch": 1.0, "cards": 1.0, "nodes": 1.0, "largest": 1.0, "uneven": 1.0}
_NOISE = 0.04


@dataclass(frozen=True)
class Settings:
    """Logarithms of what marginal likelihood learns: component deviations, lengths, noise, scales of the formula."""

    deviations: Floats
    lengths: Floats
    noise: float

    @classmethod
    def first(cls) -> "Settings":
        """Where learning starts, and the centre of the weak priors."""
        return cls(
            np.log([component.sd for component in COMPONENTS]),
            np.log([_LENGTHS[name] for name in _FEATURES]),
            float(np.log(_NOISE)),
        )

    def flat(self) -> Floats:
        """As one vector."""
        return np.concatenate([self.deviations, self.lengths, [self.noise]])

    @classmethod
    def of(cls, flat: Floats) -> "Settings":
        """From one vector."""
        k, f = len(COMPONENTS), len(_FEATURES)
        return cls(flat[:k], flat[k : k + f], float(flat[k + f]))


class Columns(Protocol):
    """Rows put through a formula: the logarithm it gives at some coefficients, and the derivative by each."""

    def at(self, coefficients: Floats) -> tuple[Floats, Floats]:
        """Value and Jacobian."""


class Formula(Protocol):
    """An analytic part: coefficients with a prior around 0, and what they give for rows."""

    @property
    def spreads(self) -> Floats:
        """Prior standard deviation of each coefficient."""

    @property
    def heavy(self) -> Mask:
        """Which coefficients have heavy tails: mostly near 0, a few far off (Student's t with two degrees of freedom).

        One odd pairing is then taken for odd, instead of moving what is believed of its model and its card.
        """

    def design(self, rows: Table) -> Columns:
        """The rows, ready for any coefficients."""


class Process:
    """The posterior of one training table."""

    def __init__(
        self,
        rows: Table,
        target: Floats,
        settings: Settings,
        passes: int = 6,
        at: Floats | None = None,
        formula: "Formula | None" = None,
    ) -> None:
        """Condition on rows and logarithms of seconds.

        The formula is linearised at the coefficients ``at``, or at its prior's, and anew in each of ``passes``; twice
        as many where it has heavy tails, whose spreads are found in the same passes.
        """
        self.rows, self.target, self.settings = rows, target, settings
        self.formula: Formula = formula or _formula(rows)
        first, heavy = self.formula.spreads, self.formula.heavy
        self.spreads = first
        self.coefficients = np.zeros(len(self.spreads)) if at is None else at
        self.level = float(np.median(target))
        design = self.formula.design(rows)
        residual = covariance(rows, rows, settings) + np.diag(noise(rows, settings))
        # The formula's best coefficients first, then all at once.
        self._factor = cho_factor(residual, lower=True, overwrite_a=True, check_finite=False)
        for _ in range(2 * passes if heavy.any() else passes):
            value, jacobian = design.at(self.coefficients)
            weighted = cho_solve(self._factor, jacobian, check_finite=False)
            wanted = target - self.level - value + jacobian @ self.coefficients
            precision = jacobian.T @ weighted + np.diag(self.spreads**-2)
            step = np.linalg.solve(precision, weighted.T @ wanted) - self.coefficients
            largest = float(np.max(np.abs(step)))
            self.coefficients = self.coefficients + step * min(1.0, 1.0 / max(largest, 1e-9))
            if heavy.any():
                # Expectation and maximisation: Student's t is a normal of unknown spread. Unseen ones keep the first.
                square = self.coefficients**2 + np.diag(np.linalg.inv(precision))
                widened = np.sqrt((_FREEDOM * first**2 + square) / (_FREEDOM + 1))
                self.spreads = np.where(heavy, widened, first)
            if largest < 1e-2:
                break
        value, jacobian = design.at(self.coefficients)
        weighted = cho_solve(self._factor, jacobian, check_finite=False)
        self._weighted = weighted
        self._posterior = np.linalg.inv(jacobian.T @ weighted + np.diag(self.spreads**-2))
        self._innovation = target - self.level - value + jacobian @ self.coefficients
        inner = self._posterior @ (weighted.T @ self._innovation)
        self.mean_coefficients = inner
        self._alpha = cho_solve(self._factor, self._innovation, check_finite=False) - weighted @ inner

    def predict(self, rows: Table) -> tuple[Floats, Floats]:
        """Mean and standard deviation (noise included) of the logarithm of seconds."""
        value, jacobian = self.formula.design(rows).at(self.coefficients)
        cross = covariance(rows, self.rows, self.settings)
        remaining = jacobian - cross @ self._weighted
        # K⁻¹ with the formula marginalised, by the matrix inversion lemma.
        mean = value + self.level + jacobian @ (self.mean_coefficients - self.coefficients)
        residual = self._innovation - self._jacobian_times(self.mean_coefficients)
        mean = mean + cross @ cho_solve(self._factor, residual, check_finite=False)
        half = solve_triangular(self._factor[0], cross.T, lower=True, check_finite=False)
        variance = prior(rows, self.settings) - np.sum(half * half, axis=0) + noise(rows, self.settings)
        variance = variance + np.sum((remaining @ self._posterior) * remaining, axis=1)
        return mean, np.sqrt(np.maximum(variance, _JITTER))

    def _jacobian_times(self, coefficients: Floats) -> Floats:
        _, jacobian = self.formula.design(self.rows).at(self.coefficients)
        return jacobian @ coefficients

    def precision(self) -> Floats:
        """Inverse of the covariance of all training targets, formula included."""
        inverse = cho_solve(self._factor, np.eye(len(self.rows)), check_finite=False)
        return inverse - self._weighted @ self._posterior @ self._weighted.T

    def left_out(self, blocks: Sequence[Index], precision: Floats | None = None) -> list[tuple[Floats, Floats]]:
        """For each block of rows: error and standard deviation had the block not been in training.

        The formula stays linearised where it is.
        """
        inverse = self.precision() if precision is None else precision
        answers = []
        for block in blocks:
            inner = np.linalg.inv(inverse[np.ix_(block, block)])
            answers.append((inner @ self._alpha[block], np.sqrt(np.maximum(np.diag(inner), _JITTER))))
        return answers


def learn(
    rows: Table, target: Floats, *, start: Settings | None = None, steps: int = 30, formula: Formula | None = None
) -> Settings:
    """Settings of the most marginal likelihood under weak priors, from a table of some hundred rows."""
    first = start or Settings.first()
    likelihood = _Likelihood(rows, target, first, formula)
    centre = Settings.first().flat()
    found = minimize(
        likelihood,
        first.flat(),
        jac=True,
        method="L-BFGS-B",
        bounds=[(middle - 3.5, middle + 3.5) for middle in centre],
        options={"maxiter": steps},
    )
    return Settings.of(np.asarray(found.x, dtype=np.float64))


class _Likelihood:
    """Negative logarithm of the posterior of settings, and its slope; the formula stays linearised where it is."""

    def __init__(self, rows: Table, target: Floats, first: Settings, formula: Formula | None = None) -> None:
        process = Process(rows, target, first, formula=formula)
        value, jacobian = process.formula.design(rows).at(process.coefficients)
        scaled = jacobian * process.spreads
        self.formula = scaled @ scaled.T
        self.wanted = target - process.level - value + jacobian @ process.coefficients
        self.same, self.squared = _parts(rows, rows)
        self.centre = Settings.first().flat()

    def __call__(self, flat: Floats) -> tuple[float, Floats]:
        now, count = Settings.of(flat), len(self.wanted)
        near = {name: _matern(self.squared, now.lengths, group) for name, group in _SIZES.items()}
        total = self.formula + np.diag(np.full(count, np.exp(2 * now.noise) + _JITTER))
        kernels = []
        for component, sd in zip(COMPONENTS, now.deviations, strict=True):
            kernel = self.same[component.same] * np.exp(2 * sd)
            for name in component.near:
                kernel = kernel * near[name][0]
            kernels.append(kernel)
            total += kernel
        factor = cho_factor(total, lower=True, check_finite=False)
        inverse = cho_solve(factor, np.eye(count), check_finite=False)
        alpha = inverse @ self.wanted
        pull = inverse - np.outer(alpha, alpha)
        loss = 0.5 * float(self.wanted @ alpha) + float(np.sum(np.log(np.diag(factor[0]))))
        slope = np.zeros_like(flat)
        lengthwise = {name: np.zeros_like(total) for name in _SIZES}
        for index, (component, kernel) in enumerate(zip(COMPONENTS, kernels, strict=True)):
            weighted = pull * kernel
            slope[index] = float(np.sum(weighted))
            for name in component.near:
                lengthwise[name] += weighted
        for name, group in _SIZES.items():
            common = lengthwise[name] * near[name][1]
            for feature in group:
                index = _FEATURES.index(feature)
                pulled = 0.5 * float(np.sum(common * self.squared[feature]))
                slope[len(COMPONENTS) + index] = pulled * np.exp(-2 * now.lengths[index])
        slope[-1] = float(np.trace(pull)) * np.exp(2 * now.noise)
        away = flat - self.centre
        return loss + 0.5 * float(np.sum(away**2)), slope + away


def covariance(left: Table, right: Table, settings: Settings) -> Floats:
    """Covariance of the residual between two tables."""
    same, squared = _parts(left, right)
    near = {name: _matern(squared, settings.lengths, group)[0] for name, group in _SIZES.items()}
    total = np.zeros((len(left), len(right)))
    for component, sd in zip(COMPONENTS, settings.deviations, strict=True):
        kernel = same[component.same] * np.exp(2 * sd)
        for name in component.near:
            kernel = kernel * near[name]
        total += kernel
    return total


def prior(rows: Table, settings: Settings) -> Floats:
    """Variance of the residual at each row before any data."""
    return np.full(len(rows), float(np.sum(np.exp(2 * settings.deviations))))


def noise(rows: Table, settings: Settings) -> Floats:
    """Variance of measuring each row once."""
    return np.full(len(rows), np.exp(2 * settings.noise) + _JITTER)


def _formula(rows: Table) -> StepTime:
    models = tuple(sorted({str(name) for name in rows.model}))
    cards = tuple(sorted({str(name) for name in rows.card}))
    reference = {}
    for name in models:
        batches = rows.batch[(rows.model == name) & (rows.batch > 0)]
        if len(batches):
            reference[name] = float(batches.min())
    return StepTime(models, cards, reference)


def _names(rows: Table, part: str) -> Names:
    if part == "shape":
        return rows.layout
    if part == "batch":
        return rows.batch.astype(np.str_)
    column: Names = getattr(rows, part)
    return column


def _sizes(rows: Table) -> dict[str, Floats]:
    return {
        "batch": np.log(np.where(rows.batch > 0, rows.batch, 1.0)),
        "cards": np.log(rows.cards),
        "nodes": np.log(rows.nodes),
        "largest": np.log(rows.largest),
        "uneven": np.log(rows.largest / rows.smallest),
    }


def _parts(left: Table, right: Table) -> tuple[dict[tuple[str, ...], Floats], dict[str, Floats]]:
    single: dict[str, Mask] = {}
    for part in {part for component in COMPONENTS for part in component.same}:
        both = np.unique(np.concatenate([_names(left, part), _names(right, part)]), return_inverse=True)[1]
        single[part] = both[: len(left), None] == both[None, len(left) :]
    same = {}
    for component in COMPONENTS:
        if component.same not in same:
            match = single[component.same[0]]
            for part in component.same[1:]:
                match = match & single[part]
            same[component.same] = match.astype(np.float64)
    ours, theirs = _sizes(left), _sizes(right)
    squared = {name: (ours[name][:, None] - theirs[name][None, :]) ** 2 for name in _FEATURES}
    return same, squared


npt_bool = np.ndarray


def _matern(squared: dict[str, Floats], lengths: Floats, group: tuple[str, ...]) -> tuple[Floats, Floats]:
    """Matérn 3/2 over the group's features, and its derivative by half the scaled squared distance."""
    total = sum(squared[name] * np.exp(-2 * lengths[_FEATURES.index(name)]) for name in group)
    radius = np.sqrt(3.0 * np.asarray(total))
    decay = np.exp(-radius)
    kernel = (1 + radius) * decay
    # dk/dlog l_d = 3 exp(-r) d²/l²; relative to k, because it multiplies whole products.
    return kernel, 3.0 / (1 + radius)
