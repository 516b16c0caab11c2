"""The compiled network of PCID: its loss, its derivatives, and what it reaches."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor

import blockmdp as bm
from blockmdp import rng
from blockmdp.jit import interpreted, is_compiled
from blockmdp.oracles import _network
from blockmdp.simulators import make_simulator

ALPHA = 0.1


def data(n=60, d=5, outputs=4, seed=0):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(n, d))
    return x, np.eye(outputs)[(x[:, :outputs] + 0.5 * draw.normal(size=(n, outputs))).argmax(1)]


def train(x, y, units=3, max_iter=50, tol=1e-4, seed=0):
    return _network.train(x, y, units, ALPHA, max_iter, tol, rng.root(seed))


def sigmoid(y):
    return 1 / (1 + np.exp(-y))


def loss(x, y, W, b, V, v):
    errors = sigmoid(x @ W.T + b) @ V.T + v - y
    return ((errors**2).sum() + ALPHA * ((W**2).sum() + (V**2).sum())) / (2 * len(x))


def compiled_loss(x, y, net):
    theta = np.concatenate([part.ravel() for part in net])
    columns, targets = np.ascontiguousarray(x.T), np.ascontiguousarray(y.T)
    hidden, gradient = np.empty((len(net.b), len(x))), np.empty(len(theta))
    points = _network.Points(x, columns, targets, np.empty((0, len(x))))
    found = _network.loss_and_gradient(points, theta, ALPHA, hidden, gradient)
    return found, gradient


def test_the_sigmoid_is_exact_to_13_digits():
    y = np.linspace(-60, 60, 2001)
    found = np.array([_network.sigmoid(each) for each in y])
    assert found == pytest.approx(sigmoid(y), abs=1e-13)


def test_the_loss_and_its_derivatives_are_right():
    x, y = data()
    net = train(x, y, max_iter=3)
    found, gradient = compiled_loss(x, y, net)
    assert found == pytest.approx(loss(x, y, *net), rel=1e-12)
    theta, sizes = np.concatenate([p.ravel() for p in net]), np.cumsum([p.size for p in net])[:-1]

    def at(theta):
        parts = np.split(theta, sizes)
        return loss(x, y, *(part.reshape(old.shape) for part, old in zip(parts, net)))

    steps = 1e-5 * np.eye(len(theta))
    slopes = [(at(theta + step) - at(theta - step)) / 2e-5 for step in steps]
    assert gradient == pytest.approx(np.array(slopes), abs=1e-8)


def test_predictions_are_those_of_the_parameters():
    x, y = data()
    W, b, V, v = net = train(x, y)
    expected = sigmoid(x @ W.T + b) @ V.T + v
    assert _network.predict(x, net) == pytest.approx(expected, abs=1e-12)
    assert ((expected - y) ** 2).mean() < 0.5 * y.var(axis=0).mean()


def test_training_stops_where_no_derivative_is_larger_than_the_tolerance():
    x, y = data()
    for tol in (1e-2, 1e-6):
        gradient = compiled_loss(x, y, train(x, y, max_iter=2000, tol=tol))[1]
        assert 0.001 * tol < np.abs(gradient).max() <= tol


def test_every_iteration_lowers_the_loss():
    x, y = data()
    losses = [loss(x, y, *train(x, y, max_iter=n)) for n in range(30)]
    assert (np.diff(losses) < 0).all()


def test_parameters_start_as_in_scikit_learn():
    x, y = data(d=30, outputs=20)
    W, b, V, v = train(x, y, units=10, max_iter=0)
    for parameters, fans in ((np.append(W, b), 40), (np.append(V, v), 30)):
        bound = np.sqrt(2 / fans)
        assert 0.95 * bound < np.abs(parameters).max() <= bound
        assert parameters.std() == pytest.approx(bound / np.sqrt(3), rel=0.1)
        assert abs(parameters.mean()) < 0.15 * bound
    assert train(x, y, units=10, max_iter=0, seed=1).W[0, 0] != W[0, 0]


def lock_data(sigma, switch):
    """Observations of a level of a lock, and the actions that led there."""
    m = bm.lock_gaussian(10, switch, sigma, seed=1)
    pi = bm.Policy(np.full((10, 3, 4), 0.25))
    drawn = make_simulator(m, 0).rollout([pi], 300, "test")
    return drawn.x[:, 1].astype(float), np.eye(4)[drawn.actions[:, 0]]


@pytest.mark.parametrize("sigma", [0.1, 0.2])
@pytest.mark.parametrize("switch", [0.0, 0.2, 0.5])
def test_the_loss_is_as_low_as_with_scikit_learn(sigma, switch):
    x, y = lock_data(sigma, switch)
    ours, theirs = [], []
    for seed in range(3):
        net = MLPRegressor(
            hidden_layer_sizes=(3,),
            activation="logistic",
            solver="lbfgs",
            alpha=ALPHA,
            max_iter=200,
            random_state=seed,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            net.fit(x, y)
        (W, V), (b, v) = net.coefs_, net.intercepts_
        theirs.append(loss(x, y, W.T, b, V.T, v))
        ours.append(loss(x, y, *train(x, y, seed=seed)))
    assert np.mean(ours) < 1.02 * np.mean(theirs)


def test_the_network_is_the_same_without_the_compiler(monkeypatch):
    x, y = data(n=12, d=3, outputs=3)
    compiled = train(x, y, units=2, max_iter=15)
    predicted = _network.predict(x, compiled)
    for name, function in vars(_network).items():
        if is_compiled(function):
            monkeypatch.setattr(_network, name, interpreted(function))
    plain = train(x, y, units=2, max_iter=15)
    for one, other in zip(compiled, plain):
        assert one.tobytes() == other.tobytes()
    assert predicted.tobytes() == _network.predict(x, plain).tobytes()
