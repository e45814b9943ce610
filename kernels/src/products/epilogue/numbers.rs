//! Stages that are functions of the values: activations, rounding, functions of the caller.

use std::f32::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, LOG2_E};
use std::hash::{Hash, Hasher};

use cutlet as ct;
use cutlet::element::Float;
use cutlet::prelude::*;

use super::argument::text;
use super::{Argument, Epilogue, Extents, Place, Stage};
use crate::check::require;

/// An activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activation {
    /// x where it is positive, else 0.
    Relu,
    /// x (1 + erf(x / √2)) / 2.
    Gelu,
    /// The approximation of `Gelu` by a hyperbolic tangent.
    GeluTanh,
    /// x / (1 + exp(-x)).
    Silu,
    /// The hyperbolic tangent.
    Tanh,
    /// 1 / (1 + exp(-x)).
    Sigmoid,
}

impl Activation {
    /// Returns the activation of the elements.
    #[must_use]
    pub fn of<S: Float>(self, x: Tile<S, 2>) -> Tile<S, 2> {
        match self {
            Activation::Relu => x.relu(),
            Activation::Gelu | Activation::GeluTanh if S::NAME == "f32" => gelu(x.cast::<f32>(), self).cast::<S>(),
            Activation::Gelu => x.gelu(),
            Activation::GeluTanh => x.gelu_tanh(),
            Activation::Silu => x.silu(),
            Activation::Tanh => x.tanh(),
            Activation::Sigmoid => x.sigmoid(),
        }
    }
}

/// (1 - erf(x / √2)) / 2 · exp(x² / 2) for positive x as a polynomial in t = 1 / (1 + 0.3 x), over
/// t. The relative error is 1.5e-7 (Remez, 1934, of mpmath's `erfc`).
const TAIL: [f32; 8] =
    [0.119_629_3, 0.120_753_95, 0.099_913_54, 0.128_561_51, -0.053_683_5, 0.206_353_43, -0.157_203_1, 0.035_674_788];
/// The factor of x in t.
const SLOPE: f32 = 0.3;
/// √(2/π) and the factor of the cube in the approximation of GELU (Hendrycks and Gimpel, 2016).
const ROOT: f32 = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
const CUBE: f32 = 0.044715;

/// Returns max(x, 0) - |x| e: the share e of the values from |x| on is positive, so that small
/// results are accurate, too.
fn gelu(x: Tile<f32, 2>, activation: Activation) -> Tile<f32, 2> {
    // The share of a larger magnitude is 0 in f32, and an infinity times 0 is no number.
    let size = x.abs().min_nan(15.0);
    let square = size * size;
    let share = match activation {
        Activation::Gelu => {
            let t = 1.0 / size.fma(SLOPE, 1.0);
            let first = ct::full::<f32, 2>(x.shape(), TAIL[7]);
            let sum = TAIL[..7].iter().rev().fold(first, |sum, &term| sum.fma(t, term));
            (square * (-0.5 * LOG2_E)).exp2() * (sum * t)
        }
        _ => {
            let power = square.fma(2.0 * LOG2_E * ROOT * CUBE, 2.0 * LOG2_E * ROOT) * size;
            1.0 / (power.exp2() + 1.0)
        }
    };
    x.max(0.0) - size * share
}

/// Defines the arguments of a stage that is a constant.
macro_rules! constant {
    ($name:ty $(, $generic:ident)*) => {
        type Kernel = $name;
        type Arg<'x>
            = ct::Constant<$name>
        where
            Self: 'x;

        fn arg(&mut self) -> Self::Arg<'_> {
            ct::Constant(*self)
        }
    };
}

/// An activation of each value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Activate(pub Activation);

impl<S: Float> Stage<S> for Activate {
    fn apply(&self, sums: Tile<S, 2>, _place: Place) -> Tile<S, 2> {
        self.0.of(sums)
    }
}

impl<S: Float> Epilogue<S> for Activate {
    constant!(Activate);

    fn check(&self, extents: Extents) -> ct::Result<Extents> {
        Ok(extents)
    }
}

/// Activation of the even columns, times the odd columns: half as many columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GatePairs(pub Activation);

impl<S: Float> Stage<S> for GatePairs {
    fn apply(&self, sums: Tile<S, 2>, _place: Place) -> Tile<S, 2> {
        let [m, n] = sums.shape();
        let [even, odd] = sums.reshape([m, n / 2, 2]).unstack(2);
        self.0.of(even) * odd
    }
}

impl<S: Float> Epilogue<S> for GatePairs {
    constant!(GatePairs);

    fn check(&self, extents: Extents) -> ct::Result<Extents> {
        require(extents.columns.is_multiple_of(2), || format!("pairs of columns in {}", text(extents)))?;
        Ok(Extents { columns: extents.columns / 2, ..extents })
    }

    fn width(&self) -> usize {
        2
    }

    fn narrowing(&self) -> usize {
        2
    }
}

/// Rounds the values to an element type.
pub struct Round<T>(std::marker::PhantomData<fn(T)>);

impl<T> Round<T> {
    pub(crate) const fn new() -> Round<T> {
        Round(std::marker::PhantomData)
    }
}

impl<T> Clone for Round<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Round<T> {}

impl<T> PartialEq for Round<T> {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl<T> Eq for Round<T> {}

impl<T> Hash for Round<T> {
    fn hash<H: Hasher>(&self, _state: &mut H) {}
}

impl<T> std::fmt::Debug for Round<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Round")
    }
}

impl<S: Float, T: Element> Stage<S> for Round<T> {
    fn apply(&self, sums: Tile<S, 2>, _place: Place) -> Tile<S, 2> {
        sums.cast::<T>().cast::<S>()
    }
}

impl<S: Float, T: Element> Epilogue<S> for Round<T> {
    constant!(Round<T>);

    fn check(&self, extents: Extents) -> ct::Result<Extents> {
        Ok(extents)
    }
}

/// A function without captured values as a constant of a launch: its type identifies it.
#[derive(Clone, Copy)]
pub struct Function<F>(F);

impl<F> Function<F> {
    /// Returns a function as a constant.
    pub(crate) const fn new(function: F) -> Function<F> {
        const { assert!(size_of::<F>() == 0, "a function of an epilogue captures nothing: give it arguments") };
        Function(function)
    }
}

impl<F> PartialEq for Function<F> {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl<F> Eq for Function<F> {}

impl<F> Hash for Function<F> {
    fn hash<H: Hasher>(&self, _state: &mut H) {}
}

impl<F> std::fmt::Debug for Function<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(std::any::type_name::<F>())
    }
}

/// A function of the values, of arguments and of the position.
#[derive(Clone, Copy, Debug)]
pub struct Apply<F, A> {
    pub(crate) function: F,
    pub(crate) arguments: A,
}
ct::impl_kernel_args!(Apply<F, A> { function, arguments });

impl<S: Float, F: Fn(Tile<S, 2>, A, Place) -> Tile<S, 2>, A: Copy> Stage<S> for Apply<Function<F>, A> {
    fn apply(&self, sums: Tile<S, 2>, place: Place) -> Tile<S, 2> {
        ct::with_mode(ct::FloatMode::new(), || (self.function.0)(sums, self.arguments, place))
    }
}

impl<S, F, A> Epilogue<S> for Apply<Function<F>, A>
where
    S: Float,
    F: Fn(Tile<S, 2>, A::Kernel, Place) -> Tile<S, 2> + Clone + Send + Sync + 'static,
    A: Argument,
{
    type Kernel = Apply<Function<F>, A::Kernel>;
    type Arg<'x>
        = Apply<ct::Constant<Function<F>>, A::Arg<'x>>
    where
        Self: 'x;

    fn arg(&mut self) -> Self::Arg<'_> {
        Apply { function: ct::Constant(self.function.clone()), arguments: self.arguments.arg() }
    }

    fn check(&self, extents: Extents) -> ct::Result<Extents> {
        Ok(extents)
    }
}
