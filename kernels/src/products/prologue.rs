//! Prologues: functions of the tiles of the left operand, which run in the loop of a product before
//! the multiplication.
//!
//! | stage | value |
//! |---|---|
//! | [`Same`] | the element |
//! | [`Cast`] | the element in the type of the right operand |
//! | [`Normalize`] | element · factor of its row · weight of its column, such as of an RMS norm |
//!
//! A prologue other than [`Same`] costs registers: the tiles do not arrive in shared memory as
//! operands of tensor cores. A factor of each row without a weight is cheaper as a stage of the
//! epilogue.

use cutlet as ct;
use cutlet::element::Element;
use cutlet::kernel::IntoKernelArg;
use cutlet::prelude::*;

use super::epilogue::{Argument, Place, Rows};
use crate::check::require;

/// A prologue in the kernel: from elements of type U to operands of type T.
pub trait LeftStage<U: Element, T: Element> {
    /// Returns the operand for a tile of elements, at a tile index along the sums.
    fn apply(&self, elements: Tile<U, 2>, place: Place, k: Scalar<i32>) -> Tile<T, 2>;
}

/// A prologue on the host, with its arrays.
pub trait Prologue<U: Element, T: Element> {
    /// The prologue in the kernel.
    type Kernel: LeftStage<U, T>;
    /// The argument of a launch.
    type Arg<'x>: IntoKernelArg<Self::Kernel>
    where
        Self: 'x;

    /// Returns the argument of a launch.
    fn arg(&mut self) -> Self::Arg<'_>;

    /// Checks the shapes of the arrays for a left operand of some rows and columns.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for other shapes.
    fn check(&self, left: [usize; 2]) -> ct::Result<()>;

    /// Returns true if tiles arrive in shared memory as operands.
    fn is_direct(&self) -> bool {
        false
    }
}

/// Elements as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Same;

impl<T: Element> LeftStage<T, T> for Same {
    fn apply(&self, elements: Tile<T, 2>, _place: Place, _k: Scalar<i32>) -> Tile<T, 2> {
        elements
    }
}

impl<T: Element> Prologue<T, T> for Same {
    type Kernel = Same;
    type Arg<'x> = ct::Constant<Same>;

    fn arg(&mut self) -> ct::Constant<Same> {
        ct::Constant(Same)
    }

    fn check(&self, _left: [usize; 2]) -> ct::Result<()> {
        Ok(())
    }

    fn is_direct(&self) -> bool {
        true
    }
}

/// Elements in the type of the right operand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Cast;

impl<U: Element, T: Element> LeftStage<U, T> for Cast {
    fn apply(&self, elements: Tile<U, 2>, _place: Place, _k: Scalar<i32>) -> Tile<T, 2> {
        elements.cast::<T>()
    }
}

impl<U: Element, T: Element> Prologue<U, T> for Cast {
    type Kernel = Cast;
    type Arg<'x> = ct::Constant<Cast>;

    fn arg(&mut self) -> ct::Constant<Cast> {
        ct::Constant(Cast)
    }

    fn check(&self, _left: [usize; 2]) -> ct::Result<()> {
        Ok(())
    }
}

/// Elements times a factor of their row and a weight of their column, computed with in f32.
#[derive(Clone, Copy, Debug)]
pub struct Normalize<R, W> {
    pub(crate) rows: R,
    pub(crate) weight: W,
}
ct::impl_kernel_args!(Normalize<R, W> { rows, weight });

impl<U: Element, T: Element, R: Rows, V: Element> LeftStage<U, T> for Normalize<R, Array<V, 1>> {
    fn apply(&self, elements: Tile<U, 2>, place: Place, k: Scalar<i32>) -> Tile<T, 2> {
        let [m, n] = elements.shape();
        let factors = self.rows.rows(place, m).cast::<f32>();
        let weights = self.weight.load(k, [n]).cast::<f32>().unsqueeze(0);
        (elements.cast::<f32>() * factors * weights).cast::<T>()
    }
}

impl<U, T, V, R, W> Prologue<U, T> for Normalize<R, W>
where
    U: Element,
    T: Element,
    V: Element,
    R: Argument<Kernel: Rows>,
    W: Argument<Kernel = Array<V, 1>>,
{
    type Kernel = Normalize<R::Kernel, Array<V, 1>>;
    type Arg<'x>
        = Normalize<R::Arg<'x>, W::Arg<'x>>
    where
        Self: 'x;

    fn arg(&mut self) -> Self::Arg<'_> {
        Normalize { rows: self.rows.arg(), weight: self.weight.arg() }
    }

    fn check(&self, [rows, columns]: [usize; 2]) -> ct::Result<()> {
        let [factors, weights] = [self.rows.extents(), self.weight.extents()];
        let fits = factors.last() == Some(&rows) && weights == [columns];
        require(fits, || format!("factors of shape {factors:?} and weights of {weights:?} for {rows} x {columns}"))
    }
}
