"""The claims once more, from the formulas, in plain loops: nothing here is shared with `evarl.certify`."""

from math import comb, log, sqrt


def wealths(x, m, alpha, sequential=False, cap=0.5):
    """K_t(m) of x in [0, 1]."""
    n, total, squares, k, found = len(x), 0.5, 0.25, 1.0, []
    for i, value in enumerate(x, start=1):
        variance = squares / i
        bet = sqrt(2 * log(1 / alpha) / ((i * log(1 + i) if sequential else n) * variance))
        if m > 0:
            bet = min(bet, cap / m)
        k *= 1 + bet * (value - m)
        total += value
        squares += (value - total / (i + 1)) ** 2
        found.append(k)
    return found


def mixture(streams, m, alpha, sequential=False, cap=0.5):
    """Σ share · K_t of streams (values, low, high, share) at a mean in the units of returns."""
    rows = []
    for values, low, high, share in streams:
        scaled = [(v - low) / (high - low) for v in values]
        rows.append([share * k for k in wealths(scaled, (m - low) / (high - low), alpha, sequential, cap)])
    return [sum(column) for column in zip(*rows, strict=True)]


def scan(rejected, low, high, points=300, levels=5):
    """Upwards, point by point, to the first that is not rejected; then from the point before it in smaller steps."""
    step = (high - low) / points
    for _ in range(levels):
        m = low
        for j in range(1, points + 1):
            if not rejected(m):
                break
            m = low + j * step
        if m == low:
            return low
        low, step = m - step, step / points
    return low


def lower_bound(streams, low, high, alpha, sequential=False, cap=0.5):
    return scan(lambda m: max(mixture(streams, m, alpha, sequential, cap)) >= 1 / alpha, low, high)


def betting_lower(returns, low, high, alpha, sequential=False, cap=0.5):
    return lower_bound([(list(returns), low, high, 1.0)], low, high, alpha, sequential, cap)


def betting_upper(returns, low, high, alpha, sequential=False, cap=0.5):
    mirrored = [low + high - g for g in returns]
    return low + high - betting_lower(mirrored, low, high, alpha, sequential, cap)


def controlled(returns, values, fresh, coefficient, c, d):
    def clip(v):
        return min(max(v, c), d)

    return [
        g - coefficient * (clip(v) - sum(clip(u) for u in row) / len(row))
        for g, v, row in zip(returns, values, fresh, strict=True)
    ]


def order_rank(n, alpha, delta):
    """The greatest k with P(Bin(n, α) ≤ k − 1) ≤ δ, 0 if there is none."""
    best, below = 0, 0.0
    for k in range(1, n + 1):
        below += comb(n, k - 1) * alpha ** (k - 1) * (1 - alpha) ** (n - k + 1)
        if below <= delta:
            best = k
    return best


def risk_margin(returns, predictions, low, d, epsilon, alpha, grid):
    """λ, from the largest downwards."""
    chosen = None
    for margin in reversed(grid):
        losses = [max(v - margin - g, 0.0) for v, g in zip(predictions, returns, strict=True)]
        most = d - margin - low
        if most > epsilon:
            x = [1 - loss / most for loss in losses]
            if max(wealths(x, 1 - epsilon / most, alpha)) < 1 / alpha:
                break
        chosen = margin
    return chosen
