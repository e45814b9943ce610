//! Assumptions about integers, which the compiler relies on.

use std::ops::{Bound, RangeBounds};

use crate::element::Int;
use crate::ir::{Attr, Opcode, Predicate, Sign};
use crate::ops::support::operand::methods;
use crate::tile::{Handle, Place, Scalar, Tile, ValueHandle, caller_location, record};

/// Records an assumption about a value and returns the value for which it holds.
fn assume(place: Place, raw: ValueHandle, predicate: Predicate) -> ValueHandle {
    record(|t| {
        t.at(place);
        let Some(value) = t.check_usable(raw, place) else { return raw };
        let (dtype, shape) = (t.builder.module.dtype(value), t.shape(raw));
        let value = t.put(Opcode::Assume, &[value], vec![Attr::Predicate(predicate)], dtype, &shape);
        // Bounds are signed in the IR.
        t.written(value, [Sign::Signed; 2]);
        t.raw(value)
    })
}

fn divisible(place: Place, raw: ValueHandle, divisor: usize) -> ValueHandle {
    // Divisors are powers of two in the IR.
    let power = 1u64 << divisor.trailing_zeros().min(62);
    if divisor == 0 {
        let way_out = "only 0 is a multiple of 0";
        record(|t| t.report(place, "`assume_divisible_by`: the divisor is 0", &[way_out]));
        return raw;
    }
    assume(place, raw, Predicate::DivBy { divisor: power, every: None, along: None })
}

fn bounded(place: Place, raw: ValueHandle, signed: bool, bits: u32, range: impl RangeBounds<i64>) -> ValueHandle {
    let mut lower = match range.start_bound() {
        Bound::Included(&first) => Some(first),
        Bound::Excluded(&before) => before.checked_add(1),
        Bound::Unbounded => None,
    };
    let mut upper = match range.end_bound() {
        Bound::Included(&last) => Some(last),
        Bound::Excluded(&end) => end.checked_sub(1),
        Bound::Unbounded => None,
    };
    let (min, max) = (i64::MIN >> (64 - bits), i64::MAX >> (64 - bits));
    if !signed {
        // Bounds are signed in the IR and cannot express larger numbers.
        if upper.is_none_or(|last| last > max) {
            return raw;
        }
        lower = Some(lower.unwrap_or(0).max(0));
    }
    lower = lower.filter(|&first| first > min);
    upper = upper.filter(|&last| last < max);
    if lower.is_some_and(|first| first > max || first > upper.unwrap_or(max)) || upper.is_some_and(|last| last < min) {
        let message = "`assume_bounds`: there is no number of this type within the bounds";
        record(|t| t.report(place, message, &["`a..b` ends before `b`, `a..=b` with it"]));
        return raw;
    }
    assume(place, raw, Predicate::Bounded { lower, upper })
}

methods! { [Int]
    /// Returns the same numbers, with the assumption that they are multiples of `divisor`. The
    /// compiler uses its largest power of two, for example 16 for 48. The cpu back end checks the
    /// assumption and returns an error if it is false.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn scale(x: ArrayMut<f32, 1>, start: Scalar<i32>) {
    ///     // SAFETY: every launch passes a multiple of 16.
    ///     let start = unsafe { start.assume_divisible_by(16) };
    ///     let at = start / 16 + ct::bid(0);
    ///     x.store(at, x.load(at, [16]) * 2.0);
    /// }
    ///
    /// let mut x = ct::Device::cpu().full([64], 1.0)?;
    /// ct::launch(scale, 2, (&mut x, 32))?;
    /// assert_eq!(x.to_vec()?[31..33], [1.0, 2.0]);
    /// let error = ct::launch(scale, 2, (&mut x, 33)).unwrap_err().to_string();
    /// assert!(error.contains("33 was assumed to be divisible by 16"), "{error}");
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Safety
    /// All elements are multiples of `divisor`. Otherwise the behavior is undefined, except on the
    /// cpu back end.
    #[track_caller]
    #[must_use]
    pub unsafe fn assume_divisible_by(self, divisor: usize) -> Self {
        Self::from_raw(divisible(caller_location(), self.raw(), divisor))
    }

    /// Returns the same numbers, with the assumption that they are in `range`. The cpu back end
    /// checks the assumption and returns an error if it is false.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn half(x: ArrayMut<i32, 1>, n: Scalar<i32>) {
    ///     // SAFETY: every launch passes such a number.
    ///     let n = unsafe { n.assume_bounds(0..=1023) };
    ///     x.store_scalar(0, n / 2); // a shift: the number has no sign
    /// }
    ///
    /// let mut x = ct::Device::cpu().zeros([1])?;
    /// ct::launch(half, 1, (&mut x, 1023))?;
    /// assert_eq!(x.to_vec()?, [511]);
    /// let error = ct::launch(half, 1, (&mut x, 1024)).unwrap_err().to_string();
    /// assert!(error.contains("1024 was assumed to be at most 1023"), "{error}");
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Safety
    /// All elements are in `range`. Otherwise the behavior is undefined, except on the cpu back
    /// end.
    #[track_caller]
    #[must_use]
    pub unsafe fn assume_bounds(self, range: impl RangeBounds<i64>) -> Self {
        Self::from_raw(bounded(caller_location(), self.raw(), T::SIGNED, T::DTYPE.bits(), range))
    }
}
