//! What is known of one integer: a range and a power-of-two divisor, with the arithmetic on them.
//!
//! A [`Known`] of a w-bit integer speaks about its signed reading. Arithmetic is done in 128 bits; a
//! result that may leave the type wraps modulo 2^w, so its range is lost but its divisor stays, which
//! is sound because divisors are at most 2^w.

/// Inclusive bounds of the signed reading of an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Smallest value.
    pub lo: i64,
    /// Largest value.
    pub hi: i64,
}

/// Largest divisor that is tracked.
pub(super) const MAX_DIVISOR: u64 = 1 << 62;

/// Facts about an integer of `bits` bits, or about an address (64 bits, in bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub lo: i64,
    pub hi: i64,
    /// A power of two that divides the value.
    pub div: u64,
    pub bits: u32,
}

/// Largest power of two that divides a number; everything divides 0.
pub(super) fn two_power(value: i128) -> u64 {
    if value == 0 { MAX_DIVISOR } else { 1 << value.trailing_zeros().min(62) }
}

fn type_bounds(bits: u32) -> (i128, i128) {
    (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
}

impl Known {
    /// Nothing but the type.
    pub fn any(bits: u32) -> Known {
        let (lo, hi) = type_bounds(bits);
        Known { lo: lo as i64, hi: hi as i64, div: 1, bits }
    }

    /// Exactly this value.
    pub fn exactly(value: i64, bits: u32) -> Known {
        Known::wrapped(i128::from(value), i128::from(value), 1, bits)
    }

    /// A result in `lo..=hi` before it wraps to `bits` bits.
    pub fn wrapped(lo: i128, hi: i128, div: u64, bits: u32) -> Known {
        let (min, max) = type_bounds(bits);
        if lo < min || hi > max {
            return Known { div, ..Known::any(bits) }.tightened();
        }
        Known { lo: lo as i64, hi: hi as i64, div, bits }.tightened()
    }

    /// A result that is promised not to wrap.
    pub fn promised(lo: i128, hi: i128, div: u64, bits: u32) -> Known {
        let (min, max) = type_bounds(bits);
        Known::wrapped(lo.clamp(min, max), hi.clamp(min, max), div, bits)
    }

    /// A result with only a divisor.
    pub fn divisible(div: u64, bits: u32) -> Known {
        Known { div, ..Known::any(bits) }.tightened()
    }

    /// Range and divisor sharpen one another.
    fn tightened(self) -> Known {
        let Known { lo, hi, bits, .. } = self;
        // A divisor beyond the width leaves only 0, and wrapping arithmetic respects none larger.
        let div = if bits < 62 { self.div.min(1 << bits) } else { self.div };
        let d = i128::from(div);
        let first = i128::from(lo).div_euclid(d) * d;
        let first = if first < i128::from(lo) { first + d } else { first };
        let last = i128::from(hi).div_euclid(d) * d;
        if first > last {
            // Contradicting promises: this is never computed.
            return self;
        }
        let (lo, hi) = (first as i64, last as i64);
        let div = if lo == hi { div.max(two_power(i128::from(lo))) } else { div };
        Known { lo, hi, div, bits }
    }

    pub fn constant(self) -> Option<i64> {
        (self.lo == self.hi).then_some(self.lo)
    }

    pub fn is_nonnegative(self) -> bool {
        self.lo >= 0
    }

    /// What holds whichever of the two it is.
    pub fn join(self, other: Known) -> Known {
        let (lo, hi, div) = (self.lo.min(other.lo), self.hi.max(other.hi), self.div.min(other.div));
        Known { lo, hi, div, bits: self.bits.max(other.bits) }
    }

    /// What holds if both do.
    pub fn meet(self, lo: i64, hi: i64) -> Known {
        let (new_lo, new_hi) = (self.lo.max(lo), self.hi.min(hi));
        if new_lo > new_hi { self } else { Known { lo: new_lo, hi: new_hi, ..self }.tightened() }
    }

    pub fn and_divisible(self, div: u64) -> Known {
        Known { div: self.div.max(div), ..self }.tightened()
    }

    /// Bounds that moved since the last round jump to the end of the type.
    pub fn widen(self, next: Known) -> Known {
        let any = Known::any(self.bits);
        let lo = if next.lo < self.lo { any.lo } else { self.lo };
        let hi = if next.hi > self.hi { any.hi } else { self.hi };
        Known { lo, hi, div: self.div.min(next.div), bits: self.bits }
    }

    pub fn wide(self) -> (i128, i128) {
        (i128::from(self.lo), i128::from(self.hi))
    }

    /// Bounds of the unsigned reading.
    pub fn unsigned(self) -> (i128, i128) {
        let (lo, hi) = self.wide();
        let span = 1i128 << self.bits;
        match (lo >= 0, hi >= 0) {
            (true, _) => (lo, hi),
            (false, false) => (lo + span, hi + span),
            (false, true) => (0, span - 1),
        }
    }

    pub fn add(self, other: Known, promise: bool) -> Known {
        let ((a, b), (c, d)) = (self.wide(), other.wide());
        self.ranged(a + c, b + d, self.div.min(other.div), promise)
    }

    pub fn sub(self, other: Known, promise: bool) -> Known {
        let ((a, b), (c, d)) = (self.wide(), other.wide());
        self.ranged(a - d, b - c, self.div.min(other.div), promise)
    }

    pub fn mul(self, other: Known, promise: bool) -> Known {
        let (lo, hi) = corners(self.wide(), other.wide(), |x, y| x * y);
        let div = self.div.saturating_mul(other.div).min(MAX_DIVISOR);
        self.ranged(lo, hi, div, promise)
    }

    /// A result of this width, promised to fit or not.
    pub fn ranged(self, lo: i128, hi: i128, div: u64, promise: bool) -> Known {
        if promise { Known::promised(lo, hi, div, self.bits) } else { Known::wrapped(lo, hi, div, self.bits) }
    }
}

/// Bounds of a function that is monotonic in each argument.
pub(super) fn corners(a: (i128, i128), b: (i128, i128), f: impl Fn(i128, i128) -> i128) -> (i128, i128) {
    let all = [f(a.0, b.0), f(a.0, b.1), f(a.1, b.0), f(a.1, b.1)];
    let lo = all.iter().copied().fold(all[0], i128::min);
    let hi = all.iter().copied().fold(all[0], i128::max);
    (lo, hi)
}
