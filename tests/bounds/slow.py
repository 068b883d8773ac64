"""The claims once more, from the formulas, in plain loops: nothing here is shared with `evarl.bounds`."""

from math import comb, log, sqrt


def wealths(x, m, alpha, sequential=False, cap=0.95):
    """K_t(m) of x in [0, 1]."""
    n, m = len(x), max(m, 1e-300)

    def hedged(i, k, mean, squares):
        if k >= 1 / alpha:
            return 0.0
        size = max(sqrt(2 * log(1 / (alpha * k))), 1.25) - 0.25
        return min(size / sqrt((mean**2 + squares) / i * (n - i + 1)), cap / m)

    def careful(i, k, mean, squares):
        variance = (0.25 + squares) / i
        return min(2 * sqrt(log(1 / alpha) / (i * log(1 + i) * variance)), min(cap, 0.5) / m)

    def bold(i, k, mean, squares):
        return cap / m

    if not sequential:
        return wealth_of(x, m, hedged)
    return [0.75 * a + 0.25 * b for a, b in zip(wealth_of(x, m, careful), wealth_of(x, m, bold), strict=True)]


def wealth_of(x, m, bet):
    """K_t of bets that are told the round, the wealth, and mean and squared deviations so far."""
    total, squares, k, found = 0.5, 0.0, 1.0, []
    for i, value in enumerate(map(float, x), start=1):
        k *= 1 + bet(i, k, total / i, squares) * (value - m)
        total += value
        squares += (value - total / (i + 1)) ** 2
        found.append(k)
    return found


def mixture(streams, m, alpha, sequential=False, cap=0.95):
    """Σ share · K_t of streams (values, low, high, share) at a mean in the units of returns."""
    rows = []
    for values, low, high, share in streams:
        scaled = [(v - low) / (high - low) for v in values]
        level = alpha if sequential else alpha * share
        rows.append([share * k for k in wealths(scaled, (m - low) / (high - low), level, sequential, cap)])
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


def lower_bound(streams, low, high, alpha, sequential=False, cap=0.95):
    return scan(lambda m: max(mixture(streams, m, alpha, sequential, cap)) >= 1 / alpha, low, high)


def betting_lower(returns, low, high, alpha, sequential=False, cap=0.95):
    return lower_bound([(list(returns), low, high, 1.0)], low, high, alpha, sequential, cap)


def betting_upper(returns, low, high, alpha, sequential=False, cap=0.95):
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
