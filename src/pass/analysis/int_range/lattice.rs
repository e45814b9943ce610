//! Lattice of the integer range analysis: a range and a power-of-two divisor, with their
//! arithmetic.
//!
//! The bounds of a [`RangeState`] of a w-bit integer are those of its signed interpretation.
//! Arithmetic is done in 128 bits. A result that may overflow the type wraps modulo 2^w: its range
//! is lost and its divisor is kept. The latter is sound because divisors are at most 2^w.

/// Inclusive bounds of the signed interpretation of an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntRange {
    /// Smallest value.
    pub lo: i64,
    /// Largest value.
    pub hi: i64,
}

/// Largest tracked divisor.
pub(super) const MAX_DIVISOR: u64 = 1 << 62;

/// State of an integer of `bits` bits, or of an address (64 bits, in bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RangeState {
    pub lo: i64,
    pub hi: i64,
    /// Power of two that divides the value.
    pub div: u64,
    pub bits: u32,
}

/// Returns the largest power of two that divides a number, [`MAX_DIVISOR`] for 0.
pub(super) fn two_power(value: i128) -> u64 {
    if value == 0 { MAX_DIVISOR } else { 1 << value.trailing_zeros().min(62) }
}

fn type_bounds(bits: u32) -> (i128, i128) {
    (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
}

impl RangeState {
    /// Returns the state of any value of the type.
    pub fn any(bits: u32) -> RangeState {
        let (lo, hi) = type_bounds(bits);
        RangeState { lo: lo as i64, hi: hi as i64, div: 1, bits }
    }

    /// Returns the state of exactly this value.
    pub fn constant_state(value: i64, bits: u32) -> RangeState {
        RangeState::wrapped(i128::from(value), i128::from(value), 1, bits)
    }

    /// Returns the state of a result in `lo..=hi` that wraps to `bits` bits.
    pub fn wrapped(lo: i128, hi: i128, div: u64, bits: u32) -> RangeState {
        let (min, max) = type_bounds(bits);
        if lo < min || hi > max {
            return RangeState { div, ..RangeState::any(bits) }.tightened();
        }
        RangeState { lo: lo as i64, hi: hi as i64, div, bits }.tightened()
    }

    /// Returns the state of a result that is assumed not to wrap.
    pub fn without_overflow(lo: i128, hi: i128, div: u64, bits: u32) -> RangeState {
        let (min, max) = type_bounds(bits);
        RangeState::wrapped(lo.clamp(min, max), hi.clamp(min, max), div, bits)
    }

    /// Returns the state of a value with this divisor.
    pub fn divisible(div: u64, bits: u32) -> RangeState {
        RangeState { div, ..RangeState::any(bits) }.tightened()
    }

    /// Reduces the range to multiples of the divisor, and derives the divisor of a single value.
    fn tightened(self) -> RangeState {
        let RangeState { lo, hi, bits, .. } = self;
        // A divisor larger than 2^bits leaves only 0. Wrapping arithmetic preserves no larger
        // divisor.
        let div = if bits < 62 { self.div.min(1 << bits) } else { self.div };
        let d = i128::from(div);
        let first = i128::from(lo).div_euclid(d) * d;
        let first = if first < i128::from(lo) { first + d } else { first };
        let last = i128::from(hi).div_euclid(d) * d;
        if first > last {
            // The assumptions contradict each other: the value is never computed.
            return self;
        }
        let (lo, hi) = (first as i64, last as i64);
        let div = if lo == hi { div.max(two_power(i128::from(lo))) } else { div };
        RangeState { lo, hi, div, bits }
    }

    pub fn constant(self) -> Option<i64> {
        (self.lo == self.hi).then_some(self.lo)
    }

    pub fn is_nonnegative(self) -> bool {
        self.lo >= 0
    }

    /// Returns the union of the two states.
    pub fn join(self, other: RangeState) -> RangeState {
        let (lo, hi, div) = (self.lo.min(other.lo), self.hi.max(other.hi), self.div.min(other.div));
        RangeState { lo, hi, div, bits: self.bits.max(other.bits) }
    }

    /// Returns the intersection with a range.
    pub fn meet(self, lo: i64, hi: i64) -> RangeState {
        let (new_lo, new_hi) = (self.lo.max(lo), self.hi.min(hi));
        if new_lo > new_hi { self } else { RangeState { lo: new_lo, hi: new_hi, ..self }.tightened() }
    }

    pub fn with_divisor(self, div: u64) -> RangeState {
        RangeState { div: self.div.max(div), ..self }.tightened()
    }

    /// Sets each bound that changed since the last iteration to the bound of the type.
    pub fn widen(self, next: RangeState) -> RangeState {
        let any = RangeState::any(self.bits);
        let lo = if next.lo < self.lo { any.lo } else { self.lo };
        let hi = if next.hi > self.hi { any.hi } else { self.hi };
        RangeState { lo, hi, div: self.div.min(next.div), bits: self.bits }
    }

    pub fn wide(self) -> (i128, i128) {
        (i128::from(self.lo), i128::from(self.hi))
    }

    /// Bounds of the unsigned interpretation.
    pub fn unsigned(self) -> (i128, i128) {
        let (lo, hi) = self.wide();
        let span = 1i128 << self.bits;
        match (lo >= 0, hi >= 0) {
            (true, _) => (lo, hi),
            (false, false) => (lo + span, hi + span),
            (false, true) => (0, span - 1),
        }
    }

    pub fn add(self, other: RangeState, no_overflow: bool) -> RangeState {
        let ((a, b), (c, d)) = (self.wide(), other.wide());
        self.ranged(a + c, b + d, self.div.min(other.div), no_overflow)
    }

    pub fn sub(self, other: RangeState, no_overflow: bool) -> RangeState {
        let ((a, b), (c, d)) = (self.wide(), other.wide());
        self.ranged(a - d, b - c, self.div.min(other.div), no_overflow)
    }

    pub fn mul(self, other: RangeState, no_overflow: bool) -> RangeState {
        let (lo, hi) = corners(self.wide(), other.wide(), |x, y| x * y);
        let div = self.div.saturating_mul(other.div).min(MAX_DIVISOR);
        self.ranged(lo, hi, div, no_overflow)
    }

    /// Returns the state of a result of this width, which either wraps or is assumed not to.
    pub fn ranged(self, lo: i128, hi: i128, div: u64, no_overflow: bool) -> RangeState {
        if no_overflow {
            RangeState::without_overflow(lo, hi, div, self.bits)
        } else {
            RangeState::wrapped(lo, hi, div, self.bits)
        }
    }
}

/// Returns the bounds of a function that is monotonic in each argument.
pub(super) fn corners(a: (i128, i128), b: (i128, i128), f: impl Fn(i128, i128) -> i128) -> (i128, i128) {
    let all = [f(a.0, b.0), f(a.0, b.1), f(a.1, b.0), f(a.1, b.1)];
    let lo = all.iter().copied().fold(all[0], i128::min);
    let hi = all.iter().copied().fold(all[0], i128::max);
    (lo, hi)
}
