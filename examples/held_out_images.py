"""Learn a lock from images of handwritten digits, and judge the policy on images never seen.

`python held_out_images.py 20` does it for 20 locks, each with digits of its own.
"""

import sys

import blockmdp as bm

locks = int(sys.argv[1]) if len(sys.argv) > 1 else 2
near_optimal = 0
for seed in range(locks):
    lock = bm.lock_digits(horizon=10, images="train", seed=seed)
    agent = bm.URL(bm.oracles.images(), batch=1000, iterations=1)
    agent.fit(lock, episodes=50_000, seed=seed)

    same_lock = bm.lock_digits(horizon=10, images="test", seed=seed)
    held_out = agent.value(on=same_lock)
    near_optimal += held_out >= 0.9 * lock.optimal_value()
    print(
        f"lock {seed:>2}, digits {lock.emission.digits}: value {agent.value():.3f} on the images "
        f"learnt from, {held_out:.3f} on others; the optimum is {lock.optimal_value()}"
    )
print(f"near-optimal on held-out images (90 % of the optimum): {near_optimal} of {locks}")
