#!/usr/bin/env python3
"""Prints the polynomial coefficients and constants of src/backend/ptx/scalar (needs mpmath).

Each polynomial is a Chebyshev interpolant of the named quotient, lowest power first, rounded to the
element type; the figure behind it is the error of the unrounded polynomial relative to the function.
"""
import struct
from mpmath import mp, mpf, chebyfit, atan, cos, exp, log, pi, polyval, sin, sinh, taylor, linspace

mp.dps = 60


def single(x):
    return struct.unpack("<f", struct.pack("<f", float(x)))[0]


def fit(name, f, series, low, high, degree, weight, rounding):
    """`series`: Taylor coefficients of f at 0, used where the quotient cancels."""
    def g(x):
        return polyval(series[::-1], x) if abs(x) < mpf("1e-3") else f(x)
    coefficients = chebyfit(g, [mpf(low), mpf(high)], degree + 1)[::-1]
    error = max(abs((polyval(coefficients[::-1], x) - g(x)) * weight(x)) for x in linspace(mpf(low), mpf(high), 2001))
    print(f"{name}  // {mp.nstr(error, 3)}")
    for c in coefficients:
        if rounding == "f32":
            print(f"    f32::from_bits(0x{struct.unpack('<I', struct.pack('<f', float(c)))[0]:08x}), // {float(c):.9g}")
        else:
            print(f"    {float(c)!r},")


def root(f):
    return lambda z: f(mp.sqrt(z))


def main():
    fact = mp.factorial
    quarter = pi / 4
    for kind, (sinh_deg, atan_deg, pow_deg) in {"f32": (3, 8, 3), "f64": (7, 19, 9)}.items():
        fit(f"sinh_{kind}", root(lambda x: (sinh(x) - x) / x**3), [1 / fact(2 * k + 3) for k in range(8)],
            0, 1, sinh_deg, lambda z: z, kind)
        fit(f"atan_{kind}", root(lambda x: (atan(x) - x) / x**3), [mpf(-1) ** (k + 1) / (2 * k + 3) for k in range(8)],
            0, 1, atan_deg, lambda z: z, kind)
        # log((2 + u) / (2 - u)) = u + u^3/12 + u^5 * q(u^2)
        fit(f"log_ratio_{kind}", root(lambda u: (log((2 + u) / (2 - u)) - u - u**3 / 12) / u**5),
            [mpf(2) / ((2 * k + 5) * mpf(2) ** (2 * k + 5)) for k in range(12)], 0, mpf("0.1601"), pow_deg,
            lambda z: z * z, kind)
    fit("exp_f64", lambda r: (exp(r) - 1 - r) / r**2, [1 / fact(k + 2) for k in range(8)],
        -0.3467, 0.3467, 10, lambda r: r * r, "f64")
    fit("sin_f64", root(lambda x: (sin(x) - x) / x**3), [mpf(-1) ** (k + 1) / fact(2 * k + 3) for k in range(8)],
        0, quarter**2 + mpf("0.001"), 5, lambda z: z, "f64")
    fit("cos_f64", root(lambda x: (cos(x) - 1 + x * x / 2) / x**4), [mpf(-1) ** k / fact(2 * k + 4) for k in range(8)],
        0, quarter**2 + mpf("0.001"), 5, lambda z: z * z, "f64")
    fit("log_f64", root(lambda s: (log((1 + s) / (1 - s)) / s - 2) / s**2), [mpf(2) / (2 * k + 3) for k in range(8)],
        0, mpf("0.02950"), 6, lambda z: z / 2, "f64")
    for name, value in {"ln2": log(2), "log2e": 1 / log(2), "pi/2": pi / 2, "2/pi": 2 / pi, "1/12": mpf(1) / 12}.items():
        parts, rest = [], value
        for _ in range(3):
            parts.append(float(rest))
            rest -= mpf(parts[-1])
        singles, rest = [], value
        for _ in range(3):
            singles.append(single(rest))
            rest -= mpf(singles[-1])
        print(name, "f64:", parts, "f32:", [f"0x{struct.unpack('<I', struct.pack('<f', s))[0]:08x}" for s in singles])
    # ln2 with 32 trailing zero bits, so that n·hi is exact for |n| < 2^11.
    high = mp.floor(log(2) * mpf(2) ** 42) / mpf(2) ** 42
    print("ln2 split", float(high), float(log(2) - high))
    bits = int(mp.floor((2 / (mp.mpf(1) * mp.pi)) * mpf(2) ** 128))
    mp.dps = 500
    bits = int(mp.floor(2 / mp.pi * mpf(2) ** 1280))
    print("2/pi u64:", ", ".join(f"0x{(bits >> (1280 - 64 * (i + 1))) & (2**64 - 1):016x}" for i in range(20)))
    print("2/pi u32:", ", ".join(f"0x{(bits >> (1280 - 32 * (i + 1))) & (2**32 - 1):08x}" for i in range(8)))


main()
