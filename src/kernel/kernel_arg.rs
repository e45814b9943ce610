//! Conversion of launch arguments of the host into parameters of the kernel.

use crate::util::collect::CollectVec as _;
use std::any::TypeId;

use super::launch_arg::{Constant, ConstantValue, LaunchArg};
use super::tuples::for_each_tuple;
use crate::element::{Element, bf16, f8e4m3fn, f8e5m2, f8e5m3fnu, f8e8m0fnu, f16, tf32};
use crate::sealed::Sealed;
use crate::tile::{Scalar, Tracer};

/// Conversion of a launch argument of the host into the kernel parameter `P`.
///
/// | given | arrives as |
/// |---|---|
/// | `&DeviceArray`, `&DeviceView`, `DeviceView`, `ArraySpec` | `Array<T, R>` |
/// | `&mut DeviceArray`, `&mut DeviceViewMut`, `DeviceViewMut`, `ArraySpecMut` | `ArrayMut<T, R>` |
/// | [`NewArray`](crate::NewArray) | `ArrayMut<T, R>` |
/// | a number | `Scalar` of its type; an f64 also as `Scalar<f16>` and `Scalar<bf16>`, rounded once |
/// | `&ArrayTable`, `&mut ArrayTableMut` | `Arrays<T, R>`, `ArraysMut<T, R>` |
/// | [`RawPtr<T>`](super::RawPtr), [`ByPointer`](crate::ByPointer) of an array | `Ptr<T>` |
/// | [`Constant<X>`](Constant) | `X` |
/// | tuple, `[A; N]`, `Vec<A>` | tuple, `[P; N]`, `Vec<P>` |
/// | a struct named in [`impl_kernel_args!`](crate::impl_kernel_args) | the same struct, with what its fields arrive as |
///
/// Compiled code is cached by the types of the kernel, of the given arguments, and of the kernel's
/// parameters. `from_traced` therefore has to be a pure function.
///
/// Programs may implement this trait; for structs by the macro
/// [`impl_kernel_args!`](crate::impl_kernel_args).
// On stable Rust the text of a diagnostic depends on the trait alone, and not on `Self`. The crate
// has no implementations for the types of candle, nor for those of cudarc without its feature. The
// notes are therefore a list with one short line for each case.
#[diagnostic::on_unimplemented(
    message = "the argument is `{Self}`, but the kernel's parameter is `{P}`",
    label = "the kernel takes `{P}` here",
    note = "`&array` for `Array`, `&mut array` for `ArrayMut`, `2.0` or `7u32` for `Scalar`, `ct::Constant(x)` for `usize` and flags",
    note = "a `Vec` or slice of the host: `device.array(&data, [n])?`",
    note = "a `CudaSlice` of cudarc: the feature `cudarc` of cutlet; a `Tensor` of candle: the package `cutlet-candle`",
    note = "parameters of a kernel are values, not references: `Array<f32, 1>`; see docs/common_errors.md"
)]
pub trait IntoKernelArg<P>: Sized {
    /// The launch argument.
    type Arg: LaunchArg;

    /// The kind of this conversion, which decides on shared code.
    #[doc(hidden)]
    const CONVERSION: ArgConversion<Self, P> = ArgConversion::own();

    /// Converts the value into the launch argument, once per launch.
    fn into_arg(self) -> Self::Arg;

    /// Converts the traced launch argument into the kernel parameter, once per trace.
    fn from_traced(traced: <Self::Arg as LaunchArg>::Traced) -> P;
}

/// The traced values of the parts of an argument.
type Traced<A, P> = <<A as IntoKernelArg<P>>::Arg as LaunchArg>::Traced;

/// Kind of the conversion of `A` into `P`.
///
/// Arguments with a common conversion share compiled code, if their parts have the same traced
/// types and the same `P`. A program cannot declare a conversion as common. It can
/// only make [`ArgConversion::own`], and [`ArgConversion::of_fields`], which replaces the
/// conversion.
pub struct ArgConversion<A: IntoKernelArg<P>, P>(Kind<fn(Traced<A, P>) -> P>);

enum Kind<F> {
    /// By [`IntoKernelArg::from_traced`] of `A`. Another type with the same parts may convert
    /// differently.
    Own,
    /// By [`IntoKernelArg::from_traced`] of `A`. All types with the same parts convert equally.
    Common,
    /// By this function. All types with the same parts convert equally.
    Fields(F),
}

impl<A: IntoKernelArg<P>, P> ArgConversion<A, P> {
    /// Returns the conversion by [`IntoKernelArg::from_traced`], determined by `A` alone.
    #[must_use]
    pub const fn own() -> ArgConversion<A, P> {
        ArgConversion(Kind::Own)
    }

    /// Returns the conversion by [`IntoKernelArg::from_traced`], determined by the types of the
    /// traced parts and of the parameter.
    pub(crate) const fn common() -> ArgConversion<A, P> {
        ArgConversion(Kind::Common)
    }

    /// Returns [`ArgConversion::common`] if all elements of a list have a common conversion, else
    /// [`ArgConversion::own`].
    const fn of_elements(all_common: bool) -> ArgConversion<A, P> {
        if all_common { ArgConversion::common() } else { ArgConversion::own() }
    }

    /// Returns the conversion of the tuple `F` of the fields, from which the kernel's struct is
    /// made.
    #[must_use]
    pub const fn of_fields<F>() -> ArgConversion<A, P>
    where
        P: FromFields,
        F: IntoKernelArg<P::Fields, Arg = A::Arg>,
    {
        if F::CONVERSION.is_common() {
            ArgConversion(Kind::Fields(arrived_of_fields::<A, P, F>))
        } else {
            ArgConversion::own()
        }
    }

    /// Returns true if all arguments with the same traced parts and the same parameter convert
    /// equally.
    const fn is_common(&self) -> bool {
        !matches!(self.0, Kind::Own)
    }
}

/// A struct named in [`impl_kernel_args!`](crate::impl_kernel_args), which can be made from its
/// fields.
pub trait FromFields {
    /// The fields in their order.
    type Fields;

    /// Makes the struct.
    fn from_fields(fields: Self::Fields) -> Self;
}

/// Returns the kernel's parameter for the traced parts of an argument.
fn arrived<A: IntoKernelArg<P>, P>(traced: Traced<A, P>) -> P {
    match A::CONVERSION.0 {
        Kind::Fields(arrive) => arrive(traced),
        Kind::Own | Kind::Common => A::from_traced(traced),
    }
}

fn arrived_of_fields<A, P, F>(traced: Traced<A, P>) -> P
where
    A: IntoKernelArg<P>,
    P: FromFields,
    F: IntoKernelArg<P::Fields, Arg = A::Arg>,
{
    P::from_fields(arrived::<F, P::Fields>(traced))
}

/// The arguments of a launch, decomposed into [`LaunchArg`]s.
pub struct Arguments<A: IntoKernelArg<P>, P> {
    given: A::Arg,
}

impl<A: IntoKernelArg<P>, P> Arguments<A, P> {
    /// Decomposes the arguments.
    #[inline]
    pub fn new(args: A) -> Arguments<A, P> {
        Arguments { given: args.into_arg() }
    }

    /// Returns the outputs of the launch.
    #[inline]
    pub fn into_output(self) -> <A::Arg as LaunchArg>::Output {
        self.given.into_output()
    }

    /// Returns the decomposed arguments.
    #[inline]
    pub fn given(&self) -> &A::Arg {
        &self.given
    }

    /// Declares the parameters and returns the kernel's parameters.
    pub(super) fn trace(&self, tracer: &mut Tracer) -> P {
        arrived::<A, P>(self.given.trace(tracer))
    }

    /// Returns the identity of the code of kernel type `K`, apart from the words and constants of a
    /// key: the kernel, the declared parameters, its parameters, and the conversion between these.
    #[inline]
    pub(crate) fn identity<K>() -> TypeId {
        if A::CONVERSION.is_common() {
            typeid::of::<(fn(K), fn(Traced<A, P>), fn(P))>()
        } else {
            typeid::of::<(fn(K), fn(Traced<A, P>), fn(P), fn(A))>()
        }
    }
}

/// Decomposed arguments are arguments, too.
#[diagnostic::do_not_recommend]
impl<A: IntoKernelArg<P>, P> IntoKernelArg<P> for Arguments<A, P> {
    type Arg = A::Arg;
    const CONVERSION: ArgConversion<Self, P> = ArgConversion::of_elements(A::CONVERSION.is_common());

    #[inline]
    fn into_arg(self) -> A::Arg {
        self.given
    }

    fn from_traced(traced: <A::Arg as LaunchArg>::Traced) -> P {
        arrived::<A, P>(traced)
    }
}

/// Implements the identity conversion, for arguments that are [`LaunchArg`]s themselves.
macro_rules! arrives_as_it_is {
    ($([$($generics:tt)*] $ty:ty => $traced:ty;)+) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($generics)*> $crate::kernel::IntoKernelArg<$traced> for $ty {
            type Arg = Self;
            const CONVERSION: $crate::kernel::ArgConversion<Self, $traced> = $crate::kernel::ArgConversion::common();

            #[inline]
            fn into_arg(self) -> Self {
                self
            }

            fn from_traced(traced: $traced) -> $traced {
                traced
            }
        }
    )+};
}
pub(crate) use arrives_as_it_is;

macro_rules! numbers {
    ($($name:ident)+) => { arrives_as_it_is! { $([] $name => Scalar<$name>;)+ } };
}
numbers!(f64 f32 tf32 f16 bf16 f8e4m3fn f8e5m2 f8e8m0fnu f8e5m3fnu i8 i16 i32 i64 u8 u16 u32 u64 bool);

// Recommended, so that rustc reports the missing bound of `X`.
impl<X: ConstantValue> IntoKernelArg<X> for Constant<X> {
    type Arg = Self;
    const CONVERSION: ArgConversion<Self, X> = ArgConversion::common();

    #[inline]
    fn into_arg(self) -> Self {
        self
    }

    fn from_traced(traced: X) -> X {
        traced
    }
}

macro_rules! half_literals {
    ($($name:ident)+) => {$(
        #[diagnostic::do_not_recommend]
        impl IntoKernelArg<Scalar<$name>> for f64 {
            type Arg = $name;
            const CONVERSION: ArgConversion<Self, Scalar<$name>> = ArgConversion::common();

            #[inline]
            fn into_arg(self) -> $name {
                <$name as Element>::from_f64(self)
            }

            fn from_traced(traced: Scalar<$name>) -> Scalar<$name> {
                traced
            }
        }
    )+};
}
half_literals!(f16 bf16);

#[diagnostic::do_not_recommend]
impl<P, A: IntoKernelArg<P>> IntoKernelArg<Vec<P>> for Vec<A> {
    type Arg = Vec<A::Arg>;
    const CONVERSION: ArgConversion<Self, Vec<P>> = ArgConversion::of_elements(A::CONVERSION.is_common());

    #[inline]
    fn into_arg(self) -> Self::Arg {
        self.into_iter().map(A::into_arg).collect_vec()
    }

    fn from_traced(traced: Vec<<A::Arg as LaunchArg>::Traced>) -> Vec<P> {
        traced.into_iter().map(arrived::<A, P>).collect_vec()
    }
}

/// An optional argument, left out by `None::<A>`. Its presence is known during tracing, so an
/// absent argument has no cost.
///
/// ```
/// # use cutlet::doctest::*;
/// fn double(x: Array<f32, 1>, y: ArrayMut<f32, 1>, squares: Option<ArrayMut<f32, 1>>) {
///     let (i, x) = (ct::bid(0), x.load(ct::bid(0), [64]));
///     y.store(i, x + x);
///     if let Some(squares) = squares {
///         squares.store(i, x * x);
///     }
/// }
///
/// let device = ct::Device::cpu();
/// let (x, mut y, mut squares) = (device.full([100], 3.0f32)?, device.zeros([100])?, device.zeros([100])?);
/// ct::launch(double, 2, (&x, &mut y, None::<&mut ct::DeviceArray<f32, 1>>))?;
/// ct::launch(double, 2, (&x, &mut y, Some(&mut squares)))?;
/// assert_eq!((y.to_vec()?[99], squares.to_vec()?[99]), (6.0, 9.0));
/// # Ok::<(), ct::Error>(())
/// ```
#[diagnostic::do_not_recommend]
impl<P, A: IntoKernelArg<P>> IntoKernelArg<Option<P>> for Option<A> {
    type Arg = Option<A::Arg>;
    const CONVERSION: ArgConversion<Self, Option<P>> = ArgConversion::of_elements(A::CONVERSION.is_common());

    #[inline]
    fn into_arg(self) -> Self::Arg {
        self.map(A::into_arg)
    }

    fn from_traced(traced: Option<<A::Arg as LaunchArg>::Traced>) -> Option<P> {
        traced.map(arrived::<A, P>)
    }
}

#[diagnostic::do_not_recommend]
impl<P, A: IntoKernelArg<P>, const N: usize> IntoKernelArg<[P; N]> for [A; N] {
    type Arg = [A::Arg; N];
    const CONVERSION: ArgConversion<Self, [P; N]> = ArgConversion::of_elements(A::CONVERSION.is_common());

    #[inline]
    fn into_arg(self) -> Self::Arg {
        self.map(A::into_arg)
    }

    fn from_traced(traced: [<A::Arg as LaunchArg>::Traced; N]) -> [P; N] {
        traced.map(arrived::<A, P>)
    }
}

/// The arguments of a launch: a tuple with an [`IntoKernelArg`] for each parameter of a kernel with
/// the parameters `P`, in their order.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// use cutlet::kernel::{Kernel, KernelArgs};
///
/// fn twice<K: Kernel<P> + Copy, A: KernelArgs<P> + Copy, P>(kernel: K, args: A) -> ct::Result<()> {
///     ct::launch(kernel, 1, args)?;
///     ct::launch(kernel, 1, args)
/// }
///
/// twice(|n: Scalar<i32>| ct::assert!(n.eq(3)), (3,))?;
/// # Ok::<(), ct::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "the arguments `{Self}` do not match the kernel's parameters `{P}`",
    label = "the kernel takes `{P}`",
    note = "a launch has one argument for each parameter of the kernel, in their order: `(&a, &mut c, 2.0)`; a single one \
            is `(&mut c,)`; \
            see docs/common_errors.md"
)]
pub trait KernelArgs<P>: Sealed + IntoKernelArg<P> {}

impl<A: IntoKernelArg<P>, P> Sealed for Arguments<A, P> {}
#[diagnostic::do_not_recommend]
impl<A: IntoKernelArg<P>, P> KernelArgs<P> for Arguments<A, P> {}

macro_rules! tuples {
    ($(($($given:ident $param:ident $index:tt),*))+) => {$(
        // Recommended, so that rustc names the argument that does not match.
        impl<$($param, $given: IntoKernelArg<$param>),*> KernelArgs<($($param,)*)> for ($($given,)*) {}

        #[allow(clippy::unused_unit)]
        #[diagnostic::do_not_recommend]
        impl<$($param, $given: IntoKernelArg<$param>),*> IntoKernelArg<($($param,)*)> for ($($given,)*) {
            type Arg = ($($given::Arg,)*);
            const CONVERSION: ArgConversion<Self, ($($param,)*)> = ArgConversion::of_elements(true $(&& $given::CONVERSION.is_common())*);

            #[inline]
            fn into_arg(self) -> Self::Arg {
                ($(self.$index.into_arg(),)*)
            }

            fn from_traced(_traced: ($(<$given::Arg as LaunchArg>::Traced,)*)) -> ($($param,)*) {
                ($(arrived::<$given, $param>(_traced.$index),)*)
            }
        }
    )+};
}
for_each_tuple!(tuples);

/// Makes a struct with generic field types an argument of launches.
///
/// The struct is generic over the types of its fields: one parameter per field, in their order, at
/// most 16 fields, and no bounds at the struct itself. With launch arguments in its fields, it is
/// the host's argument. With their traced values, it is the kernel's parameter. It can be nested in
/// tuples, lists and other such structs, and accepts [`crate::ArraySpec`] as well as arrays. (For
/// the state of loops, see [`impl_loop_state!`](crate::impl_loop_state).)
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// struct Norm<X, W, E, C> {
///     x: X,
///     weight: W,
///     eps: E,
///     tile: C,
/// }
/// ct::impl_kernel_args!(Norm<X, W, E, C> { x, weight, eps, tile });
///
/// fn scale(p: Norm<Array<f32, 2>, Array<f32, 1>, Scalar<f32>, usize>, out: ArrayMut<f32, 2>) {
///     let i = ct::bid(0);
///     let row = p.x.load((i, 0), [1, p.tile]);
///     out.store((i, 0), row * p.weight.load(0, [p.tile]).unsqueeze(0) + p.eps);
/// }
///
/// let device = ct::Device::cpu();
/// let (x, w) = (device.full([2, 8], 3.0)?, device.full([8], 2.0)?);
/// let mut y = device.zeros([2, 8])?;
/// ct::launch(scale, 2, (Norm { x: &x, weight: &w, eps: 0.5, tile: ct::Constant(8) }, &mut y))?;
/// assert_eq!(y.to_vec()?, [6.5; 16]);
/// # Ok::<(), ct::Error>(())
/// ```
#[macro_export]
macro_rules! impl_kernel_args {
    ($name:ident<$($param:ident),+ $(,)?> { $($field:ident),+ $(,)? }) => {
        $crate::impl_kernel_args!(@pair $name [] [$($param)+] [$($field)+] [Arriving0 Arriving1 Arriving2 Arriving3 Arriving4 Arriving5 Arriving6 Arriving7 Arriving8 Arriving9 Arriving10 Arriving11 Arriving12 Arriving13 Arriving14 Arriving15]);
    };
    // Combines given types, arrived types and fields.
    (@pair $name:ident [$($done:tt)*] [$given:ident $($givens:ident)*] [$field:ident $($fields:ident)*]
        [$param:ident $($params:ident)*]) => {
        $crate::impl_kernel_args!(@pair $name [$($done)* ($given $param $field)] [$($givens)*] [$($fields)*] [$($params)*]);
    };
    (@pair $name:ident [$(($given:ident $param:ident $field:ident))+] [] [] [$($rest:ident)*]) => {
        impl<$($param, $given: $crate::kernel::IntoKernelArg<$param>),+> $crate::kernel::IntoKernelArg<$name<$($param),+>>
            for $name<$($given),+>
        {
            type Arg = ($($given::Arg,)+);
            const CONVERSION: $crate::kernel::ArgConversion<Self, $name<$($param),+>> = $crate::kernel::ArgConversion::of_fields::<($($given,)+)>();

            fn into_arg(self) -> Self::Arg {
                $crate::kernel::IntoKernelArg::<($($param,)+)>::into_arg(($(self.$field,)+))
            }

            fn from_traced(traced: <Self::Arg as $crate::kernel::LaunchArg>::Traced) -> $name<$($param),+> {
                $crate::kernel::FromFields::from_fields(
                    <($($given,)+) as $crate::kernel::IntoKernelArg<($($param,)+)>>::from_traced(traced),
                )
            }
        }

        impl<$($param),+> $crate::kernel::FromFields for $name<$($param),+> {
            type Fields = ($($param,)+);

            fn from_fields(($($field,)+): Self::Fields) -> Self {
                $name { $($field),+ }
            }
        }
    };
    (@pair $name:ident [$($done:tt)*] [$($givens:ident)*] [$($fields:ident)*] [$($params:ident)*]) => {
        compile_error!(concat!(
            "`impl_kernel_args!(", stringify!($name), "<..> { .. })` takes one type parameter for each field, in their order, and \
             at most 16 fields"
        ));
    };
}
