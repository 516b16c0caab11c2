"""Compiled loops of the network of PCID and of the auto-encoder.

It has one hidden layer of logistic units and linear outputs.
The network is f(x) = V sigmoid(W x + b) + v, and its loss
(sum of |f(x) - y|^2 + alpha (|W|^2 + |V|^2)) / 2n. L-BFGS (Nocedal and Wright 2006, Algorithm 7.5)
minimises it. The inner loops run over what is not summed: over points, or over the coordinates of
one point. So the compiler vectorises them without changing the order of any sum. The sigmoid
consists of sums and products. So all CPUs give the same network.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from blockmdp.jit import inlined, interpreted, jit
from blockmdp.rng import uniform

__all__ = ["Network", "predict", "train"]

Floats = NDArray[np.float64]

MEMORY = 10  # steps that L-BFGS remembers


class Network(NamedTuple):
    """The parameters of a network, or the derivatives of its loss."""

    W: Any  # (units, d)
    b: Any  # (units,)
    V: Any  # (outputs, units)
    v: Any  # (outputs,)


class Points(NamedTuple):
    """What a network learns from: n points."""

    rows: Any  # (n, d)
    columns: Any  # (d, n), the same
    targets: Any  # (outputs, n)
    noise: Any  # (units, n), added to the hidden units; (0, n) if there is none


def train(
    x: Floats,
    y: Floats,
    units: int,
    alpha: float,
    max_iter: int,
    tol: float,
    key: np.uint64,
    noise: float = 0.0,
) -> Network:
    """Fit a `Network` to x (n, d) and y (n, outputs).

    Each hidden unit gets a number within `noise` of 0 added for each row, always the same. It stops
    when no derivative is larger than `tol`. Parameters start uniformly within
    sqrt(2 / (inputs + outputs of their layer)) of 0 (Glorot and Bengio 2010), as in scikit-learn.
    """
    theta = best_parameters(x, y, units, alpha, max_iter, tol, key, noise)
    net: Network = interpreted(unpack)(theta, x.shape[1], units, y.shape[1])
    return net


@jit
def best_parameters(x, y, units, alpha, max_iter, tol, key, noise):
    """Return the parameters of the network, (units * (d + 1) + outputs * (units + 1),)."""
    d, outputs = x.shape[1], y.shape[1]
    theta = np.empty(units * (d + 1) + outputs * (units + 1))
    for i in range(len(theta)):
        fans = d + units if i < units * (d + 1) else units + outputs
        theta[i] = (2.0 * uniform(key, i) - 1.0) * math.sqrt(2.0 / fans)
    columns, targets = np.ascontiguousarray(x.T), np.ascontiguousarray(y.T)
    added = np.empty((units if noise > 0.0 else 0, len(x)))
    for m in range(len(added)):
        for i in range(len(x)):
            added[m, i] = (2.0 * uniform(key, len(theta) + m * len(x) + i) - 1.0) * noise
    minimise(Points(x, columns, targets, added), units, alpha, max_iter, tol, theta)
    return theta


@jit
def predict(x, net):
    """Return f(x) for each row of x (n, d), (n, outputs)."""
    hidden = np.empty((len(net.b), len(x)))
    activate(np.ascontiguousarray(x.T), net, hidden)
    out = np.empty((len(x), len(net.v)))
    for i in range(len(x)):
        for o in range(len(net.v)):
            out[i, o] = net.v[o]
            for m in range(len(hidden)):
                out[i, o] += net.V[o, m] * hidden[m, i]
    return out


@jit
def unpack(theta, d, units, outputs):
    """Return the parts of a vector of parameters, as views."""
    i = units * d
    j = i + units
    k = j + outputs * units
    return Network(
        theta[:i].reshape(units, d), theta[i:j], theta[j:k].reshape(outputs, units), theta[k:]
    )


@jit
def minimise(points, units, alpha, max_iter, tol, theta):
    """Minimise the loss by L-BFGS. theta: all parameters, changed in place."""
    size = len(theta)
    hidden = np.empty((units, len(points.rows)))
    gradient = np.empty(size)
    S = np.empty((MEMORY, size))  # the last steps
    Y = np.empty((MEMORY, size))  # what they added to the gradient
    loss = loss_and_gradient(points, theta, alpha, hidden, gradient)
    new_theta = np.empty(size)
    new_gradient = np.empty(size)
    for n in range(max_iter):
        if np.abs(gradient).max() <= tol:
            break
        step = direction(gradient, S, Y, n)
        slope = dot(step, gradient)
        low = 0.0
        high = np.inf
        t = 1.0 if n > 0 else min(1.0, 1.0 / math.sqrt(-slope))
        found = False
        for _ in range(30):  # look for a t that meets the conditions of Wolfe, by bisection
            for i in range(size):
                new_theta[i] = theta[i] + t * step[i]
            new = loss_and_gradient(points, new_theta, alpha, hidden, new_gradient)
            if new > loss + 1e-4 * t * slope:
                high = t
            elif dot(step, new_gradient) < 0.9 * slope:
                low = t
            else:
                found = True
                break
            t = 0.5 * (low + high) if high < np.inf else 2.0 * t
        if not found:
            break  # no progress beyond rounding errors
        loss = new
        for i in range(size):
            S[n % MEMORY, i] = new_theta[i] - theta[i]
            Y[n % MEMORY, i] = new_gradient[i] - gradient[i]
            theta[i] = new_theta[i]
            gradient[i] = new_gradient[i]


@jit
def direction(gradient, S, Y, n):
    """Return minus the inverse of the Hessian times the gradient, as the last of n steps show it.

    S, Y: (MEMORY, size), see `minimise`.
    """
    q = -gradient
    a = np.empty(MEMORY)
    for step in range(n - 1, max(n - MEMORY, 0) - 1, -1):
        m = step % MEMORY
        a[m] = dot(S[m], q) / dot(S[m], Y[m])
        for i in range(len(q)):
            q[i] -= a[m] * Y[m, i]
    if n > 0:
        m = (n - 1) % MEMORY
        q *= dot(S[m], Y[m]) / dot(Y[m], Y[m])
    for step in range(max(n - MEMORY, 0), n):
        m = step % MEMORY
        c = a[m] - dot(Y[m], q) / dot(S[m], Y[m])
        for i in range(len(q)):
            q[i] += c * S[m, i]
    return q


@jit
def loss_and_gradient(points, theta, alpha, hidden, gradient):
    """Return the loss, and write its derivatives to `gradient`. hidden: (units, n), overwritten.

    Several sums over points grow side by side, so that no term waits for the one before.
    """
    rows, columns, targets, noise = points
    n, d = rows.shape
    units, outputs = len(hidden), len(targets)
    net = unpack(theta, d, units, outputs)
    slope = unpack(gradient, d, units, outputs)
    activate(columns, net, hidden)
    noisy = hidden + noise if len(noise) > 0 else hidden
    error = np.empty(n)
    squares = np.zeros(n)
    back = np.zeros((units, n))  # derivatives of the sum of squares / 2 by the hidden units
    gradient[:] = 0.0
    penalty = 0.0
    for o in range(outputs):
        for i in range(n):
            error[i] = net.v[o] - targets[o, i]
        for m in range(units):
            for i in range(n):
                error[i] += net.V[o, m] * noisy[m, i]
        for i in range(n):
            squares[i] += error[i] * error[i]
        for m in range(units):
            for i in range(n):
                back[m, i] += net.V[o, m] * error[i]
        for i in range(n):
            slope.v[o] += error[i]
            for m in range(units):
                slope.V[o, m] += noisy[m, i] * error[i]
        slope.v[o] /= n
        for m in range(units):
            slope.V[o, m] = (slope.V[o, m] + alpha * net.V[o, m]) / n
            penalty += net.V[o, m] * net.V[o, m]
    for m in range(units):
        for i in range(n):
            back[m, i] *= hidden[m, i] * (1.0 - hidden[m, i])
    for i in range(n):
        for m in range(units):
            slope.b[m] += back[m, i]
            for j in range(d):
                slope.W[m, j] += back[m, i] * rows[i, j]
    for m in range(units):
        slope.b[m] /= n
        for j in range(d):
            slope.W[m, j] = (slope.W[m, j] + alpha * net.W[m, j]) / n
            penalty += net.W[m, j] * net.W[m, j]
    return 0.5 * (total(squares) + alpha * penalty) / n


@jit
def activate(columns, net, hidden):
    """Write sigmoid(W x + b) to `hidden` (units, n)."""
    d, n = columns.shape
    for m in range(len(hidden)):
        hidden[m, :] = net.b[m]
        for j in range(d):
            for i in range(n):
                hidden[m, i] += net.W[m, j] * columns[j, i]
        for i in range(n):
            hidden[m, i] = sigmoid(hidden[m, i])


@inlined
def sigmoid(y):
    """Return 1 / (1 + exp(-y)). exp(-y) is the Taylor series of exp(-y / 256), squared 8 times."""
    t = max(-40.0, min(40.0, -y)) / 256.0
    e = 1 / 24 + t * (1 / 120 + t * (1 / 720))
    e = 1.0 + t * (1.0 + t * (1 / 2 + t * (1 / 6 + t * e)))
    for _ in range(8):
        e *= e
    return 1.0 / (1.0 + e)


@inlined
def dot(a, b):
    """Return a . b, summed in order."""
    sums = 0.0
    for i in range(len(a)):
        sums += a[i] * b[i]
    return sums


@inlined
def total(a):
    """Return the sum of a, in order."""
    sums = 0.0
    for i in range(len(a)):
        sums += a[i]
    return sums
