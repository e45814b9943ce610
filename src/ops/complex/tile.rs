//! Tiles and scalars as the parts of complex numbers.

use super::super::mma::{MatrixRank, Rank, mark_one_mma, matmul, mma};
use crate::element::{Element, Float, MatmulInput, MmaInput};
use crate::ops::control::loop_state::{LoopState, Values};
use crate::ops::create::construct::full;
use crate::ops::reduce::reduce::Axes;
use crate::ops::support::operand::Operand;
use crate::tile::{Scalar, Tile};
use crate::types::complex::{Complex, ComplexPart};

macro_rules! parts {
    ($([$($generics:tt)*] $ty:ty;)+) => {$(
        #[diagnostic::do_not_recommend]
        impl<T: Float $($generics)*> ComplexPart for $ty {
            #[track_caller]
            fn fused(self, factor: Self, addend: Self) -> Self {
                self.fma(factor, addend)
            }
            #[track_caller]
            fn if_smaller(self, than: Self, first: Self, second: Self) -> Self {
                self.abs().lt(than.abs()).select(first, second)
            }
            #[track_caller]
            fn length(self, other: Self) -> Self {
                self.hypot(other)
            }
            #[track_caller]
            fn angle(self, x: Self) -> Self {
                self.atan2(x)
            }
            #[track_caller]
            fn to_power(self) -> Self {
                self.exp()
            }
            #[track_caller]
            fn sine_cosine(self) -> (Self, Self) {
                (self.sin(), self.cos())
            }
        }
    )+};
}
parts! { [, const R: usize] Tile<T, R>; [] Scalar<T>; }

/// State of loops and branches.
impl<X: LoopState> LoopState for Complex<X> {
    fn flatten(&self, out: &mut Values) {
        self.re.flatten(out);
        self.im.flatten(out);
    }
    fn unflatten(&self, from: &mut Values) -> Self {
        Complex { re: self.re.unflatten(from), im: self.im.unflatten(from) }
    }
}

impl<T: Float> Complex<Scalar<T>> {
    /// Scales both parts by a real number.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let z = ct::math::Complex::new(ct::scalar(1.0f32), ct::scalar(-2.0)).scale(0.5);
    /// ct::assert!(z.re.eq(0.5) & z.im.eq(-1.0));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn scale(self, factor: impl Operand<Scalar<T>>) -> Self {
        Complex { re: self.re * factor, im: self.im * factor }
    }
}

impl<T: Element, const R: usize> Complex<Tile<T, R>> {
    /// A tile with one number in every element.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let z = ct::math::Complex::full([4], ct::math::c64::new(1.0, -2.0));
    /// ct::assert!(z.re.eq(1.0) & z.im.eq(-2.0));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn full(shape: [usize; R], value: Complex<T>) -> Self {
        Complex { re: full(shape, value.re), im: full(shape, value.im) }
    }
}

impl<T: Float, const R: usize> Complex<Tile<T, R>> {
    /// Scales both parts by a real number, a scalar, or the elements of a tile.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let z = ct::math::Complex::full([2], ct::math::c64::new(1.0, -2.0)).scale(0.5);
    /// ct::assert!(z.re.eq(0.5) & z.im.eq(-1.0));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn scale(self, factor: impl Operand<Tile<T, R>>) -> Self {
        Complex { re: self.re * factor, im: self.im * factor }
    }

    /// The sum along axes, as [`Tile::sum`]. The reduced axes remain, with extent 1.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let z = ct::math::Complex::full([2, 4], ct::math::c64::new(1.0, -2.0)).sum([0, 1]);
    /// ct::assert!(z.re.eq(8.0) & z.im.eq(-16.0));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn sum(self, axes: impl Axes + Copy) -> Self {
        Complex { re: self.re.sum(axes), im: self.im.sum(axes) }
    }

    /// Returns true for each element if both parts are equal to those of `other`.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let z = ct::math::Complex::new(ct::astile([1.0f32, 2.0]), ct::astile([0.0, 3.0]));
    /// ct::assert!(z.equals(z.conj()).eq(ct::astile([true, false])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn equals(self, other: Self) -> Tile<bool, R> {
        self.re.eq(other.re) & self.im.eq(other.im)
    }
}

impl<A: Float, const R: usize> Complex<Tile<A, R>>
where
    Rank<R>: MatrixRank,
{
    /// The matrix product with `b`, added to an accumulator: four products of real tiles by
    /// [`mma`](crate::mma). The algorithm with three products would round sums of parts to the
    /// element type of the operands, which loses digits.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let i = ct::math::Complex::full([2, 2], ct::math::c64::new(0.0, 1.0));
    /// let z = i.mma(i, ct::math::Complex::full([2, 2], ct::math::c64::new(5.0, 1.0)));
    /// ct::assert!(z.re.eq(3.0) & z.im.eq(1.0));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn mma<B, C>(self, b: Complex<Tile<B, R>>, acc: Complex<Tile<C, R>>) -> Complex<Tile<C, R>>
    where
        A: MmaInput<B, C>,
        B: Float,
        C: Element,
    {
        self.add_imaginary(b, mma(self.re, b.re, acc.re), mma(self.re, b.im, acc.im))
    }

    /// The matrix product with `b`, as [`matmul`](crate::matmul) of real tiles.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let i = ct::math::Complex::full([2, 2], ct::math::c64::new(0.0, 1.0));
    /// ct::assert!(i.matmul(i).re.eq(-2.0) & i.matmul(i).im.eq(0.0));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn matmul<B>(self, b: Complex<Tile<B, R>>) -> Complex<Tile<A::Acc, R>>
    where
        A: MatmulInput<B> + MmaInput<B, A::Acc>,
        B: Float,
    {
        self.add_imaginary(b, matmul(self.re, b.re), matmul(self.re, b.im))
    }

    /// Adds the products of the imaginary part to those of the real part with `b`. All four are
    /// parts of one product.
    #[track_caller]
    fn add_imaginary<B, C>(self, b: Complex<Tile<B, R>>, re: Tile<C, R>, im: Tile<C, R>) -> Complex<Tile<C, R>>
    where
        A: MmaInput<B, C>,
        B: Float,
        C: Element,
    {
        let sum = Complex { re: mma(-self.im, b.im, re), im: mma(self.im, b.re, im) };
        mark_one_mma(&[re, im, sum.re, sum.im]);
        sum
    }
}
