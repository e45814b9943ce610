//! Floating-point formats from first principles: the reference for rounding and for errors in ulp.
//!
//! Relies on nothing but f64 arithmetic, so that it shares no code with the conversions under test.

/// A binary floating-point format of at most 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Bits of the exponent field.
    pub exponent: u32,
    /// Bits of the fraction field.
    pub fraction: u32,
    /// Exponent bias.
    pub bias: i32,
    /// Meaning of the codes with the largest exponents.
    pub special: Special,
    /// True if the format has a sign bit.
    pub signed: bool,
}

/// Infinities and NaNs of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// As in IEEE 754: the largest exponent field holds infinity and NaNs.
    Ieee,
    /// No infinity; the all-ones code is NaN.
    NanOnly,
    /// Neither.
    Finite,
}

/// Rounding direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// To the nearest number, of two to the even one.
    NearestEven,
    /// Towards zero.
    Zero,
    /// Towards negative infinity.
    Down,
    /// Towards infinity.
    Up,
}

/// A real number as f64 plus the sign of its error (true value minus `near`).
///
/// The functions below are exact where no intermediate f64 underflows or overflows: for all
/// operands of the formats up to f32, and for f64 operands of moderate size.
#[derive(Clone, Copy, Debug)]
pub struct Real {
    /// The f64.
    pub near: f64,
    /// A number with the sign of its error.
    pub rest: f64,
}

impl Real {
    /// The number is exactly this f64.
    pub fn exact(near: f64) -> Real {
        Real { near, rest: 0.0 }
    }

    /// The f64 nearest to a number, and a residual that means nothing if that f64 is not finite.
    fn with_rest(near: f64, rest: f64) -> Real {
        Real { near, rest: if near.is_finite() { rest } else { 0.0 } }
    }

    /// a + b.
    pub fn sum(a: f64, b: f64) -> Real {
        let near = a + b;
        let b_part = near - a;
        Real::with_rest(near, (a - (near - b_part)) + (b - b_part))
    }

    /// a * b.
    pub fn product(a: f64, b: f64) -> Real {
        let near = a * b;
        Real::with_rest(near, a.mul_add(b, -near))
    }

    /// a / b.
    pub fn quotient(a: f64, b: f64) -> Real {
        let near = a / b;
        let rest = if b.is_finite() { (-near).mul_add(b, a) } else { 0.0 };
        Real::with_rest(near, if b < 0.0 { -rest } else { rest })
    }

    /// The square root of a.
    pub fn root(a: f64) -> Real {
        let near = a.sqrt();
        Real::with_rest(near, (-near).mul_add(near, a))
    }

    /// a * b + c.
    pub fn fused(a: f64, b: f64, c: f64) -> Real {
        let near = a.mul_add(b, c);
        let product = Real::product(a, b);
        let sum = Real::sum(product.near, c);
        Real::with_rest(near, (sum.near - near) + (sum.rest + product.rest))
    }
}

impl Format {
    /// `f64`: double precision.
    pub const F64: Format = ieee(11, 52);
    /// `f32`: single precision.
    pub const F32: Format = ieee(8, 23);
    /// `tf32`: the format of tensor cores for f32.
    pub const TF32: Format = ieee(8, 10);
    /// `bf16`: bfloat16.
    pub const BF16: Format = ieee(8, 7);
    /// `f16`: half precision.
    pub const F16: Format = ieee(5, 10);
    /// `f8e5m2`: 8 bits with a range like f16.
    pub const F8E5M2: Format = ieee(5, 2);
    /// `f8e4m3fn`: 8 bits without infinity.
    pub const F8E4M3FN: Format = Format { special: Special::NanOnly, ..ieee(4, 3) };
    /// `f8e8m0fnu`: powers of two.
    pub const F8E8M0FNU: Format =
        Format { exponent: 8, fraction: 0, bias: 127, special: Special::NanOnly, signed: false };
    /// `f4e2m1fn`: 4 bits.
    pub const F4E2M1FN: Format = Format { special: Special::Finite, ..ieee(2, 1) };

    /// The magnitude with this code (sign bit cleared), which must not be a special one.
    fn decode(self, code: u64) -> f64 {
        let field = (code >> self.fraction) as i32;
        let fraction = (code & ((1 << self.fraction) - 1)) as f64;
        let unit = 2f64.powi(-(self.fraction as i32));
        if field == 0 && self.signed {
            // Two factors, since 2^(1 - bias - fraction) may be smaller than the range of `powi` in
            // one step.
            return fraction * unit * 2f64.powi(1 - self.bias);
        }
        (1.0 + fraction * unit) * 2f64.powi(field - self.bias)
    }

    /// The code of the largest finite magnitude.
    fn largest_code(self) -> u64 {
        let all_ones = (1u64 << (self.exponent + self.fraction)) - 1;
        match self.special {
            Special::Ieee => all_ones - (1 << self.fraction),
            Special::NanOnly => all_ones - 1,
            Special::Finite => all_ones,
        }
    }

    /// The largest finite magnitude.
    pub fn largest(self) -> f64 {
        self.decode(self.largest_code())
    }

    /// The smallest positive normal number.
    pub fn smallest_normal(self) -> f64 {
        2f64.powi(1 - self.bias)
    }

    /// Distance between neighbouring numbers of this format around `x`.
    pub fn ulp(self, x: f64) -> f64 {
        let magnitude = x.abs().clamp(self.smallest_normal(), self.largest());
        let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).max(-1022);
        f64::from(exponent - self.fraction as i32).exp2()
    }

    /// Returns true if a number of this format is within an error of the expected one.
    pub fn is_near(self, got: f64, want: f64, error: f64) -> bool {
        if same(got, want) || got == want {
            return true;
        }
        if got.is_infinite() {
            // Right if a number within the error overflows.
            let reach = want.abs() + error + self.ulp(want) / 2.0;
            return got.is_sign_positive() == want.is_sign_positive() && reach > self.largest();
        }
        (got - want).abs() <= error
    }

    /// Rounds to this format. NaN stays NaN where there is one; without infinities an overflow
    /// becomes the largest finite number.
    pub fn round(self, value: Real, mode: Round) -> f64 {
        if self == Format::F64 {
            return round_f64(value, mode);
        }
        let Real { near, rest } = value;
        if near.is_nan() {
            return near;
        }
        let sign = if near.is_sign_negative() { -1.0 } else { 1.0 };
        let (near, rest) = (near.abs(), rest * sign);
        // The largest code whose value does not exceed the number; codes are ordered like values.
        let (mut low, mut high) = (0, self.largest_code());
        let exceeds = |code: u64| {
            let candidate = self.decode(code);
            candidate > near || (candidate == near && rest < 0.0)
        };
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if exceeds(middle) { high = middle - 1 } else { low = middle }
        }
        let below = self.decode(low);
        // Only a format without zero has numbers below its smallest one.
        if (below == near && rest == 0.0) || below > near {
            return sign * below;
        }
        let is_last = low == self.largest_code();
        let above = if is_last { below + self.ulp(below) } else { self.decode(low + 1) };
        let middle = below + (above - below) / 2.0;
        let up = match mode {
            Round::NearestEven if near != middle => near > middle,
            Round::NearestEven if rest != 0.0 => rest > 0.0,
            Round::NearestEven => low % 2 == 1,
            Round::Zero => false,
            Round::Down => sign < 0.0,
            Round::Up => sign > 0.0,
        };
        let beyond = if self.special == Special::Ieee { f64::INFINITY } else { below };
        let overflowed = near.is_infinite() && rest == 0.0;
        sign * match (up || overflowed, is_last) {
            (false, _) => below,
            (true, true) => beyond,
            (true, false) => above,
        }
    }
}

/// Returns true if the numbers have the same bits, or are NaNs.
pub fn same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

const fn ieee(exponent: u32, fraction: u32) -> Format {
    Format { exponent, fraction, bias: (1 << (exponent - 1)) - 1, special: Special::Ieee, signed: true }
}

fn round_f64(value: Real, mode: Round) -> f64 {
    let Real { near, rest } = value;
    match mode {
        Round::NearestEven => near,
        Round::Zero if near > 0.0 && rest < 0.0 => near.next_down(),
        Round::Zero if near < 0.0 && rest > 0.0 => near.next_up(),
        Round::Down if rest < 0.0 => near.next_down(),
        Round::Up if rest > 0.0 => near.next_up(),
        Round::Zero | Round::Down | Round::Up => near,
    }
}
