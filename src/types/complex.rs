//! Complex numbers: one struct of two parts for host values, scalars and tiles.
//!
//! num-complex is no alternative: its operators require numbers with comparisons and a zero, so
//! they exclude tiles. [`ComplexPart`] defines the operations of a part. This file is independent
//! of tiles.

use std::ops::{Add, Div, Mul, Neg, Sub};

use crate::element::{bf16, f16};
use crate::sealed::Sealed;

/// A complex number of two parts of type `X`: a host value (`Complex<f32>`), or a scalar
/// (`Complex<Scalar<f32>>`) or tile (`Complex<Tile<f32, R>>`) of a kernel.
///
/// Operators are `+ - * /` and the unary `-`, in the arithmetic of the parts.
///
/// * A product has two multiplications and two fused multiply-adds.
/// * A quotient is that of R. Smith (*Algorithm 116: Complex division*, 1962). Intermediate results
///   neither overflow nor underflow if the parts of the result are of ordinary size. Division by
///   zero or infinity is NaN.
///
/// In memory the real part precedes the imaginary part, as in C, Fortran and numpy.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
/// use cutlet::math::{Complex, ComplexArray, ComplexArrayMut, c64};
///
/// // The reciprocal of each number, and its square.
/// fn kernel(x: ComplexArray<f32, 1>, y: ComplexArrayMut<f32, 1>, z: ComplexArrayMut<f32, 1>) {
///     let x = x.load(0, [4]);
///     y.store(0, Complex::full([4], c64::new(1.0, 0.0)) / x);
///     z.store(0, x * x);
/// }
///
/// let device = ct::Device::cpu();
/// let host = [c64::new(0.0, 2.0), c64::new(1.0, 1.0), c64::new(4.0, 0.0)];
/// let x = device.complex(&host, [3])?;
/// let (mut y, mut z) = (device.complex_zeros([3])?, device.complex_zeros([3])?);
/// ct::launch(kernel, 1, (&x, &mut y, &mut z))?;
/// assert_eq!(y.to_vec()?, [c64::new(0.0, -0.5), c64::new(0.5, -0.5), c64::new(0.25, 0.0)]);
/// assert_eq!(z.to_vec()?, host.map(|x| x * x));
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Complex<X> {
    /// The real part.
    pub re: X,
    /// The imaginary part.
    pub im: X,
}

/// A complex number of 32 bits: two [`f16`](struct@f16), as `complex32` of torch.
#[allow(non_camel_case_types)]
pub type c32 = Complex<f16>;
/// A complex number of 64 bits: two f32, as `complex64` of numpy and torch and `float2` of CUDA.
#[allow(non_camel_case_types)]
pub type c64 = Complex<f32>;
/// A complex number of 128 bits: two f64, as `complex128` of numpy and torch and `double2` of CUDA.
#[allow(non_camel_case_types)]
pub type c128 = Complex<f64>;

// SAFETY: zero is valid for both parts, hence for the pair.
unsafe impl<X: bytemuck::Zeroable> bytemuck::Zeroable for Complex<X> {}
// SAFETY: `repr(C)` places two parts of one such type in sequence, without padding bytes.
unsafe impl<X: bytemuck::Pod> bytemuck::Pod for Complex<X> {}

/// Parts of complex numbers: floats of the host, and scalars and tiles of floats.
///
/// This trait is sealed.
///
/// ```
/// use cutlet::math::{Complex, ComplexPart};
/// fn power<X: ComplexPart>(z: Complex<X>) -> X {
///     z.norm_sqr()
/// }
/// assert_eq!(power(cutlet::math::c64::new(3.0, 4.0)), 25.0);
/// ```
#[diagnostic::on_unimplemented(
    message = "there are no complex numbers of `{Self}` parts",
    note = "parts are f16, bf16, f32 or f64, or a `Scalar` or `Tile` of these"
)]
pub trait ComplexPart:
    Sealed
    + Copy
    + Add<Self, Output = Self>
    + Sub<Self, Output = Self>
    + Mul<Self, Output = Self>
    + Div<Self, Output = Self>
    + Neg<Output = Self>
{
    /// Returns `self * factor + addend`, rounded once.
    #[doc(hidden)]
    #[track_caller]
    fn fused(self, factor: Self, addend: Self) -> Self;
    /// Selects the first value if |`self`| < |`than`|, else the second one.
    #[doc(hidden)]
    #[track_caller]
    fn if_smaller(self, than: Self, first: Self, second: Self) -> Self;
    #[doc(hidden)]
    #[track_caller]
    fn length(self, other: Self) -> Self;
    #[doc(hidden)]
    #[track_caller]
    fn angle(self, x: Self) -> Self;
    #[doc(hidden)]
    #[track_caller]
    fn to_power(self) -> Self;
    #[doc(hidden)]
    #[track_caller]
    fn sine_cosine(self) -> (Self, Self);
}

macro_rules! host_parts {
    ($($name:ident $to:expr, $from:expr;)+) => {$(
        impl ComplexPart for $name {
            fn fused(self, factor: Self, addend: Self) -> Self {
                $from($to(self).mul_add($to(factor), $to(addend)))
            }
            fn if_smaller(self, than: Self, first: Self, second: Self) -> Self {
                let smaller = $to(self).abs() < $to(than).abs();
                if smaller { first } else { second }
            }
            fn length(self, other: Self) -> Self {
                $from($to(self).hypot($to(other)))
            }
            fn angle(self, x: Self) -> Self {
                $from($to(self).atan2($to(x)))
            }
            fn to_power(self) -> Self {
                $from($to(self).exp())
            }
            fn sine_cosine(self) -> (Self, Self) {
                let (sine, cosine) = $to(self).sin_cos();
                ($from(sine), $from(cosine))
            }
        }
        impl Complex<$name> {
            /// Multiplies both parts by a real number.
            #[must_use]
            pub fn scale(self, factor: $name) -> Self {
                self.map(|part| part * factor)
            }
        }
    )+};
}
host_parts! {
    f16 f16::to_f32, f16::from_f32;
    bf16 bf16::to_f32, bf16::from_f32;
    f32 f32::from, f32::from;
    f64 f64::from, f64::from;
}

impl<X> Complex<X> {
    /// Creates the number with these parts.
    #[must_use]
    pub const fn new(re: X, im: X) -> Complex<X> {
        Complex { re, im }
    }

    /// Applies a function to each part, for example a change of shape or element type of tiles.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let z = ct::math::Complex::new(ct::astile([[1.0f32, 2.0]]), ct::astile([[3.0, 4.0]]));
    /// let turned = z.map(|part| part.transpose().cast::<f64>());
    /// ct::assert!(turned.im.eq(ct::astile([[3.0], [4.0]])));
    /// # });
    /// ```
    #[must_use]
    pub fn map<Y>(self, f: impl Fn(X) -> Y) -> Complex<Y> {
        Complex { re: f(self.re), im: f(self.im) }
    }
}

impl<X: ComplexPart> Complex<X> {
    /// Returns the conjugate: the imaginary part is negated.
    #[track_caller]
    #[must_use]
    pub fn conj(self) -> Self {
        Complex { re: self.re, im: -self.im }
    }

    /// Returns the number times i.
    ///
    /// ```
    /// use cutlet::math::c64;
    /// assert_eq!(c64::new(1.0, 2.0).mul_i(), c64::new(-2.0, 1.0));
    /// ```
    #[track_caller]
    #[must_use]
    pub fn mul_i(self) -> Self {
        Complex { re: -self.im, im: self.re }
    }

    /// Returns the square of the absolute value.
    #[track_caller]
    #[must_use]
    pub fn norm_sqr(self) -> X {
        self.re.fused(self.re, self.im * self.im)
    }

    /// Returns the absolute value, without overflow of intermediate results.
    ///
    /// ```
    /// use cutlet::math::c64;
    /// assert_eq!(c64::new(-3.0, 4.0).abs(), 5.0);
    /// assert_eq!(c64::new(-3.0, 4.0).norm_sqr(), 25.0);
    /// ```
    #[track_caller]
    #[must_use]
    pub fn abs(self) -> X {
        self.re.length(self.im)
    }

    /// Returns the angle in radians, between -π and π.
    ///
    /// ```
    /// use cutlet::math::c128;
    /// assert_eq!(c128::new(0.0, 2.0).arg(), std::f64::consts::FRAC_PI_2);
    /// ```
    #[track_caller]
    #[must_use]
    pub fn arg(self) -> X {
        self.im.angle(self.re)
    }

    /// Creates the number with this absolute value and angle.
    ///
    /// ```
    /// use cutlet::math::{Complex, c64};
    /// let z: c64 = Complex::from_polar(2.0, 0.0);
    /// assert_eq!((z, z.to_polar()), (c64::new(2.0, 0.0), (2.0, 0.0)));
    /// ```
    #[track_caller]
    #[must_use]
    pub fn from_polar(abs: X, arg: X) -> Self {
        let (sine, cosine) = arg.sine_cosine();
        Complex { re: abs * cosine, im: abs * sine }
    }

    /// Returns absolute value and angle.
    #[track_caller]
    #[must_use]
    pub fn to_polar(self) -> (X, X) {
        (self.abs(), self.arg())
    }

    /// Returns e to this power, with absolute value `exp(re)` and angle `im`.
    ///
    /// ```
    /// use cutlet::math::c64;
    /// assert_eq!(c64::new(0.0, 0.0).exp(), c64::new(1.0, 0.0));
    /// ```
    #[track_caller]
    #[must_use]
    pub fn exp(self) -> Self {
        Complex::from_polar(self.re.to_power(), self.im)
    }
}

impl<X: ComplexPart> Add for Complex<X> {
    type Output = Self;
    #[track_caller]
    fn add(self, other: Self) -> Self {
        Complex { re: self.re + other.re, im: self.im + other.im }
    }
}

impl<X: ComplexPart> Sub for Complex<X> {
    type Output = Self;
    #[track_caller]
    fn sub(self, other: Self) -> Self {
        Complex { re: self.re - other.re, im: self.im - other.im }
    }
}

impl<X: ComplexPart> Mul for Complex<X> {
    type Output = Self;
    #[track_caller]
    fn mul(self, other: Self) -> Self {
        let (a, b) = (self, other);
        Complex { re: a.re.fused(b.re, -(a.im * b.im)), im: a.re.fused(b.im, a.im * b.re) }
    }
}

impl<X: ComplexPart> Div for Complex<X> {
    type Output = Self;
    #[track_caller]
    fn div(self, other: Self) -> Self {
        // If the real part of the divisor is the smaller one, both numbers are rotated by a quarter
        // turn.
        let (c, d) = (other.re, other.im);
        let (large, small) = (c.if_smaller(d, d, c), c.if_smaller(d, -c, d));
        let (re, im) = (c.if_smaller(d, self.im, self.re), c.if_smaller(d, -self.re, self.im));
        let ratio = small / large;
        let divisor = small.fused(ratio, large);
        Complex { re: im.fused(ratio, re) / divisor, im: (-re).fused(ratio, im) / divisor }
    }
}

impl<X: ComplexPart> Neg for Complex<X> {
    type Output = Self;
    #[track_caller]
    fn neg(self) -> Self {
        Complex { re: -self.re, im: -self.im }
    }
}
