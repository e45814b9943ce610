//! Expressions over arrays: arrays, and functions of their elements.

use std::fmt;
use std::marker::PhantomData;

use super::tiling::Survey;
use crate::element::{ByteSized, Element};
use crate::error::{Error, Result};
use crate::kernel::IntoKernelArg;
use crate::runtime::{DeviceArray, DeviceView};
use crate::sealed::Sealed;
use crate::tile::{Array, Scalar, Tile};

/// Fused expression over arrays of one shape: an array, or functions of the elements of arrays.
/// [`ArrayExpr`](crate::ArrayExpr) has its methods.
///
/// This trait is sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an expression over arrays of {R} axes",
    note = "begin with `array.expr()` or `&array`; arrays of one shape can be zipped; elements are integers, bool, f16, \
            bf16, f32 or f64"
)]
pub trait FusedExpr<const R: usize>: Sealed + Copy {
    /// Element type.
    type Elem: ByteSized;
    #[doc(hidden)]
    type Arg: IntoKernelArg<Self::Arrays>;
    #[doc(hidden)]
    type Arrays: Copy;
    #[doc(hidden)]
    type Code: Code<R, Arrays = Self::Arrays, Elem = Self::Elem>;

    /// Visits the arrays.
    #[doc(hidden)]
    fn survey(&self, survey: &mut Survey<R>);

    /// Returns the arrays, reshaped if a shape is given, and the code of the expression.
    #[doc(hidden)]
    fn decompose(self, shape: Option<[usize; R]>) -> Result<(Self::Arg, Self::Code)>;
}

/// Code of an expression.
pub trait Code<const R: usize>: Copy {
    /// Traced arrays of the expression.
    type Arrays: Copy;
    /// Element type.
    type Elem: ByteSized;

    /// Returns a tile of results.
    fn tile(self, arrays: Self::Arrays, at: [Scalar<i32>; R], shape: [usize; R]) -> Tile<Self::Elem, R>;
}

/// Code of an array.
pub struct Load<T>(PhantomData<fn() -> T>);

impl<T> Clone for Load<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Load<T> {}

impl<T: ByteSized, const R: usize> Code<R> for Load<T> {
    type Arrays = Array<T, R>;
    type Elem = T;

    fn tile(self, array: Array<T, R>, at: [Scalar<i32>; R], shape: [usize; R]) -> Tile<T, R> {
        array.load(at, shape)
    }
}

impl<'a, T: ByteSized, const R: usize> FusedExpr<R> for DeviceView<'a, T, R> {
    type Elem = T;
    type Arg = DeviceView<'a, T, R>;
    type Arrays = Array<T, R>;
    type Code = Load<T>;

    fn survey(&self, survey: &mut Survey<R>) {
        survey.array(self.device(), self.shape(), self.strides());
    }

    fn decompose(self, shape: Option<[usize; R]>) -> Result<(Self::Arg, Load<T>)> {
        let view = match shape {
            Some(shape) => self.reshape(shape)?,
            None => self,
        };
        Ok((view, Load(PhantomData)))
    }
}

impl<'a, T: ByteSized, const R: usize> FusedExpr<R> for &'a DeviceArray<T, R> {
    type Elem = T;
    type Arg = DeviceView<'a, T, R>;
    type Arrays = Array<T, R>;
    type Code = Load<T>;

    fn survey(&self, survey: &mut Survey<R>) {
        self.view().survey(survey);
    }

    fn decompose(self, shape: Option<[usize; R]>) -> Result<(Self::Arg, Load<T>)> {
        self.view().decompose(shape)
    }
}

/// Function of each element; see [`ArrayExpr::map`](crate::ArrayExpr::map).
#[derive(Clone, Copy)]
pub struct Map<E, F> {
    pub(super) of: E,
    pub(super) function: F,
}

/// Function of each element and a number; see [`ArrayExpr::map_with`](crate::ArrayExpr::map_with).
#[derive(Clone, Copy)]
pub struct MapWith<E, N, F> {
    pub(super) of: E,
    pub(super) number: N,
    pub(super) function: F,
}

/// Function of the elements of two expressions; see [`ArrayExpr::zip`](crate::ArrayExpr::zip).
#[derive(Clone, Copy)]
pub struct Zip<A, B, F> {
    pub(super) of: (A, B),
    pub(super) function: F,
}

impl<E, F> Sealed for Map<E, F> {}
impl<E, N, F> Sealed for MapWith<E, N, F> {}
impl<A, B, F> Sealed for Zip<A, B, F> {}

macro_rules! debug {
    ($($name:ident<$($param:ident),+>)+) => {$(
        impl<$($param),+> fmt::Debug for $name<$($param),+> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    )+};
}
debug!(Map<E, F> MapWith<E, N, F> Zip<A, B, F>);

impl<C: Code<R>, U: ByteSized, F: Fn(Scalar<C::Elem>) -> Scalar<U> + Copy, const R: usize> Code<R> for Map<C, F> {
    type Arrays = C::Arrays;
    type Elem = U;

    fn tile(self, arrays: C::Arrays, at: [Scalar<i32>; R], shape: [usize; R]) -> Tile<U, R> {
        self.of.tile(arrays, at, shape).map(self.function)
    }
}

impl<E: FusedExpr<R>, U: ByteSized, F: Fn(Scalar<E::Elem>) -> Scalar<U> + Copy, const R: usize> FusedExpr<R>
    for Map<E, F>
{
    type Elem = U;
    type Arg = E::Arg;
    type Arrays = E::Arrays;
    type Code = Map<E::Code, F>;

    fn survey(&self, survey: &mut Survey<R>) {
        self.of.survey(survey);
    }

    fn decompose(self, shape: Option<[usize; R]>) -> Result<(Self::Arg, Self::Code)> {
        let (given, of) = self.of.decompose(shape)?;
        Ok((given, Map { of, function: self.function }))
    }
}

/// Code of a [`MapWith`].
pub struct WithCode<C, N, F> {
    of: C,
    function: F,
    number: PhantomData<fn() -> N>,
}

impl<C: Copy, N, F: Copy> Clone for WithCode<C, N, F> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<C: Copy, N, F: Copy> Copy for WithCode<C, N, F> {}

impl<C, N, U, F, const R: usize> Code<R> for WithCode<C, N, F>
where
    C: Code<R>,
    N: Element,
    U: ByteSized,
    F: Fn(Scalar<C::Elem>, Scalar<N>) -> Scalar<U> + Copy,
{
    type Arrays = (C::Arrays, Scalar<N>);
    type Elem = U;

    fn tile(self, (arrays, number): Self::Arrays, at: [Scalar<i32>; R], shape: [usize; R]) -> Tile<U, R> {
        self.of.tile(arrays, at, shape).map(|x| (self.function)(x, number))
    }
}

impl<E, N, U, F, const R: usize> FusedExpr<R> for MapWith<E, N, F>
where
    E: FusedExpr<R>,
    N: Element + IntoKernelArg<Scalar<N>>,
    U: ByteSized,
    F: Fn(Scalar<E::Elem>, Scalar<N>) -> Scalar<U> + Copy,
{
    type Elem = U;
    type Arg = (E::Arg, N);
    type Arrays = (E::Arrays, Scalar<N>);
    type Code = WithCode<E::Code, N, F>;

    fn survey(&self, survey: &mut Survey<R>) {
        self.of.survey(survey);
    }

    fn decompose(self, shape: Option<[usize; R]>) -> Result<(Self::Arg, Self::Code)> {
        let (given, of) = self.of.decompose(shape)?;
        Ok(((given, self.number), WithCode { of, function: self.function, number: PhantomData }))
    }
}

impl<A, B, U, F, const R: usize> Code<R> for Zip<A, B, F>
where
    A: Code<R>,
    B: Code<R>,
    U: ByteSized,
    F: Fn(Scalar<A::Elem>, Scalar<B::Elem>) -> Scalar<U> + Copy,
{
    type Arrays = (A::Arrays, B::Arrays);
    type Elem = U;

    fn tile(self, (a, b): Self::Arrays, at: [Scalar<i32>; R], shape: [usize; R]) -> Tile<U, R> {
        self.of.0.tile(a, at, shape).zip_map(self.of.1.tile(b, at, shape), self.function)
    }
}

impl<A, B, U, F, const R: usize> FusedExpr<R> for Zip<A, B, F>
where
    A: FusedExpr<R>,
    B: FusedExpr<R>,
    U: ByteSized,
    F: Fn(Scalar<A::Elem>, Scalar<B::Elem>) -> Scalar<U> + Copy,
{
    type Elem = U;
    type Arg = (A::Arg, B::Arg);
    type Arrays = (A::Arrays, B::Arrays);
    type Code = Zip<A::Code, B::Code, F>;

    fn survey(&self, survey: &mut Survey<R>) {
        self.of.0.survey(survey);
        self.of.1.survey(survey);
    }

    fn decompose(self, shape: Option<[usize; R]>) -> Result<(Self::Arg, Self::Code)> {
        let ((a, first), (b, second)) = (self.of.0.decompose(shape)?, self.of.1.decompose(shape)?);
        Ok(((a, b), Zip { of: (first, second), function: self.function }))
    }
}

/// Returns devices, shapes and strides of the arrays of an expression.
///
/// # Errors
/// [`Error::Argument`] for arrays of different shapes.
#[track_caller]
pub(super) fn surveyed<E: FusedExpr<R>, const R: usize>(expr: &E) -> Result<Survey<R>> {
    let mut survey = Survey::default();
    expr.survey(&mut survey);
    match survey.other_shape() {
        Some(other) => Err(Error::argument(format!(
            "an expression over arrays of shapes {:?} and {other:?}: they must be equal",
            survey.shape()
        ))),
        None => Ok(survey),
    }
}
