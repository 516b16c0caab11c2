"""The fast Hadamard transform."""

from __future__ import annotations

from blockmdp.kernels.jit import jit

__all__ = ["hadamard_transform"]


@jit
def hadamard_transform(x):
    """Multiply every row by Sylvester's Hadamard matrix, in place. x: (n, d), d a power of two."""
    n, d = x.shape
    for i in range(n):
        step = 1
        while step < d:
            for start in range(0, d, 2 * step):
                for j in range(start, start + step):
                    a = x[i, j]
                    b = x[i, j + step]
                    x[i, j] = a + b
                    x[i, j + step] = a - b
            step *= 2
