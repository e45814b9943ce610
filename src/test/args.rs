//! Arguments of a property: arrays that a case fills, numbers and constants.
//!
//! An [`Input`], [`Output`] or [`InOut`] is a launch argument itself. It refers to the array of the
//! case, which is allocated before each launch.

use std::cell::RefCell;
use std::fmt;
use std::fmt::Debug;
use std::rc::Rc;

use super::arrays::array::{AnyArray, OnDevice, Role, TestArray};
use super::arrays::element::{TestElement, text};
use super::arrays::host::HostArray;
use super::arrays::values::Values;
use crate::backend::ParamWord;
use crate::element::{ByteSized, bf16, f8e4m3fn, f8e5m2, f16};
use crate::kernel::{ArgSignature, Constant, ConstantValue, LaunchArg, WordBuffer, arrives_as_it_is};
use crate::runtime::{ByPointer, DeviceView, DeviceViewMut, MemoryUse};
use crate::sealed::Sealed;
use crate::tile::{Array, ArrayMut, Ptr, Tracer};

/// An array of a case, which launches and the reference share.
pub(super) type SharedArray = Rc<RefCell<dyn AnyArray>>;

/// An argument of a property: an array, a number, a [`Constant`], or a tuple of arguments.
///
/// This trait is sealed.
///
/// ```
/// use cutlet::test::{Input, TestArg};
/// fn is_argument(_: impl TestArg) {}
/// is_argument((Input::<f32, 2>::new([3, 4]), 2.0f32, cutlet::Constant([16, 32])));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument of a property",
    note = "arrays are `Input::new(shape)`, `Output::new(shape)`, `InOut::new(shape)`; other arguments are numbers and \
            `ct::Constant(x)`, where `x` is `Debug`"
)]
pub trait TestArg: Sealed + Clone {
    /// The argument of a reference: `&HostArray`, `&mut HostArray`, a number, or the value of a
    /// constant.
    type Host<'a>;

    /// The arrays of the reference, outside of the case.
    #[doc(hidden)]
    type Owned;

    /// Moves the arrays of the reference out of the case.
    #[doc(hidden)]
    fn take(&self) -> Self::Owned;

    /// Returns the argument of the reference.
    #[doc(hidden)]
    fn lend(owned: &mut Self::Owned) -> Self::Host<'_>;

    /// Moves the arrays of the reference back.
    #[doc(hidden)]
    fn put(&self, owned: Self::Owned);

    /// The argument of a [`Function`](super::Function): a view, a number, or the value of a
    /// constant.
    type View<'a>;

    /// The arrays on the device, outside of the case.
    #[doc(hidden)]
    type Device;

    /// Moves the arrays on the device out of the case.
    #[doc(hidden)]
    fn take_device(&self) -> Self::Device;

    /// Returns the argument of a function.
    #[doc(hidden)]
    fn view(device: &mut Self::Device) -> Self::View<'_>;

    /// Moves the arrays on the device back.
    #[doc(hidden)]
    fn put_device(&self, device: Self::Device);

    /// Passes the arrays of the argument.
    #[doc(hidden)]
    #[allow(private_interfaces)]
    fn arrays(&self, _out: &mut Vec<SharedArray>) {}

    /// Returns the argument as an expression of Rust. `array` returns that of the next array.
    #[doc(hidden)]
    fn expression(&self, array: &mut dyn FnMut() -> String) -> String;
}

/// Implements a launch argument by the view of an array.
macro_rules! launch_argument {
    ([$($generics:tt)*] $ty:ty, $traced:ty; $this:ident $shared:expr, $with:ident($view:ident => $arg:expr)) => {
        impl<$($generics)*> LaunchArg for $ty {
            type Traced = $traced;
            type Output = ();

            fn into_output(self) {}

            fn key(&$this, key: &mut WordBuffer) {
                $shared.borrow_mut().$with(|$view| LaunchArg::key(&$arg, key));
            }

            fn forms(&$this, out: &mut Vec<ArgSignature>) {
                $shared.borrow_mut().$with(|$view| LaunchArg::forms(&$arg, out));
            }

            fn trace(&$this, tracer: &mut Tracer) -> $traced {
                $shared.borrow_mut().$with(|$view| LaunchArg::trace(&$arg, tracer))
            }

            fn memory(&$this, visit: &mut dyn FnMut(MemoryUse<'_>)) {
                $shared.borrow_mut().$with(|$view| LaunchArg::memory(&$arg, visit));
            }

            fn pack(&$this, params: &mut dyn FnMut(ParamWord)) {
                $shared.borrow_mut().$with(|$view| LaunchArg::pack(&$arg, params));
            }
        }

        arrives_as_it_is! { [$($generics)*] $ty => $traced; }
    };
}

macro_rules! arrays {
    ($($(#[$doc:meta])* $name:ident $role:ident $traced:ident $with:ident, $host:ty, $view:ident $lend:ident;)+) => {$(
        $(#[$doc])*
        pub struct $name<T: TestElement, const R: usize>(Rc<RefCell<TestArray<T, R>>>);

        impl<T: TestElement, const R: usize> Clone for $name<T, R> {
            fn clone(&self) -> Self {
                $name(self.0.clone())
            }
        }

        impl<T: TestElement, const R: usize> $name<T, R> {
            /// Returns an argument with an array of this shape.
            ///
            /// ```
            #[doc = concat!("let x = cutlet::test::", stringify!($name), "::<f32, 2>::new([3, 4]);")]
            /// ```
            pub fn new(shape: [usize; R]) -> Self {
                $name(Rc::new(RefCell::new(TestArray::new(Role::$role, shape))))
            }

            /// Excludes gaps between rows and other orders of the axes, for a kernel that computes
            /// with addresses.
            ///
            /// ```
            #[doc = concat!("let x = cutlet::test::", stringify!($name), "::<f32, 2>::new([3, 4]).contiguous();")]
            /// ```
            #[must_use]
            pub fn contiguous(self) -> Self {
                self.0.borrow_mut().is_contiguous = true;
                self
            }
        }

        impl<T: TestElement, const R: usize> Sealed for $name<T, R> {}

        impl<T: TestElement, const R: usize> fmt::Debug for $name<T, R> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name)).finish_non_exhaustive()
            }
        }

        impl<T: TestElement, const R: usize> TestArg for $name<T, R> {
            type Host<'a> = $host;
            type Owned = HostArray<T, R>;

            fn take(&self) -> HostArray<T, R> {
                self.0.borrow_mut().take_expected()
            }

            fn lend(owned: &mut HostArray<T, R>) -> Self::Host<'_> {
                owned
            }

            fn put(&self, owned: HostArray<T, R>) {
                self.0.borrow_mut().put_expected(owned);
            }

            type View<'a> = $view<'a, T, R>;
            type Device = OnDevice<T, R>;

            fn take_device(&self) -> OnDevice<T, R> {
                self.0.borrow_mut().take_device()
            }

            fn view(device: &mut OnDevice<T, R>) -> $view<'_, T, R> {
                device.$lend()
            }

            fn put_device(&self, device: OnDevice<T, R>) {
                self.0.borrow_mut().put_device(device);
            }

            #[allow(private_interfaces)]
            fn arrays(&self, out: &mut Vec<SharedArray>) {
                out.push(self.0.clone());
            }

            fn expression(&self, array: &mut dyn FnMut() -> String) -> String {
                array()
            }
        }

        launch_argument! {
            [T: TestElement, const R: usize] $name<T, R>, $traced<T, R>; self self.0, $with(view => view)
        }
        launch_argument! {
            [T: TestElement + ByteSized, const R: usize] ByPointer<$name<T, R>>, Ptr<T>;
            self self.0.0, $with(view => ByPointer(view))
        }
    )+};
}

arrays! {
    /// An array that the kernel reads, with drawn values and a drawn arrangement in memory. It
    /// arrives as `Array`.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// use cutlet::test::{Input, Kernel, Output, Values};
    ///
    /// fn double(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
    ///     y.store(ct::bid(0), x.load(ct::bid(0), [16]) * 2.0);
    /// }
    ///
    /// Kernel::new(double)
    ///     .shapes(|draw| {
    ///         let n = draw.extent("n", 16);
    ///         (n.div_ceil(16), (Input::new([n]).values(Values::extremes()), Output::new([n])))
    ///     })
    ///     .reference(|(x, y)| y.fill(|i| 2.0 * x[i]))
    ///     .run();
    /// ```
    Input Read Array with_view, &'a HostArray<T, R>, DeviceView view;
    /// An array that the kernel writes and does not read. Its memory is poisoned before a launch.
    /// It arrives as `ArrayMut`.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # use cutlet::test::{Kernel, Output};
    /// let count = |y: ArrayMut<i32, 1>| y.store(0, ct::arange(0..8));
    /// Kernel::new(count).shapes(|_| (1, (Output::new([8]),))).reference(|(y,)| y.fill(|[i]| i as i64)).run();
    /// ```
    Output Write ArrayMut with_view_mut, &'a mut HostArray<T, R>, DeviceViewMut view_mut;
    /// An array that the kernel reads and writes, with drawn values. It arrives as `ArrayMut`. Its
    /// array of a reference has the values before the launch.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # use cutlet::test::{InOut, Kernel};
    /// let add = |x: ArrayMut<i32, 1>| x.store(0, x.load(0, [8]) + 1);
    /// Kernel::new(add)
    ///     .shapes(|_| (1, (InOut::new([8]),)))
    ///     .reference(|(x,)| (0..8).for_each(|i| x[[i]] += 1))
    ///     .run();
    /// ```
    InOut Update ArrayMut with_view_mut, &'a mut HostArray<T, R>, DeviceViewMut view_mut;
}

/// Methods of arrays with drawn values.
macro_rules! filled {
    ($($name:ident)+) => {$(
        impl<T: TestElement, const R: usize> $name<T, R> {
            /// Sets the values that the elements are drawn from; by default [`Values::specials`].
            ///
            /// ```
            /// use cutlet::test::Values;
            #[doc = concat!("let x = cutlet::test::", stringify!($name), "::<f32, 1>::new([3]).values(Values::between(0.0, 1.0));")]
            /// ```
            #[must_use]
            pub fn values(self, values: Values) -> Self {
                self.0.borrow_mut().values = values;
                self
            }
        }
    )+};
}
filled!(Input InOut);

/// Methods of arrays that a kernel writes.
macro_rules! compared {
    ($($name:ident)+) => {$(
        impl<T: TestElement, const R: usize> $name<T, R> {
            /// Excludes the array from all comparisons: a workspace.
            ///
            /// ```
            #[doc = concat!("let x = cutlet::test::", stringify!($name), "::<f32, 1>::new([3]).unchecked();")]
            /// ```
            #[must_use]
            pub fn unchecked(self) -> Self {
                self.0.borrow_mut().is_checked = false;
                self
            }
        }
    )+};
}
compared!(Output InOut);

macro_rules! numbers {
    ($($name:ident)+) => {$(
        impl TestArg for $name {
            type Host<'a> = $name;
            type Owned = $name;

            fn take(&self) -> $name {
                *self
            }

            fn lend(owned: &mut $name) -> $name {
                *owned
            }

            fn put(&self, _: $name) {}

            type View<'a> = $name;
            type Device = $name;

            fn take_device(&self) -> $name {
                *self
            }

            fn view(device: &mut $name) -> $name {
                *device
            }

            fn put_device(&self, _: $name) {}

            fn expression(&self, _: &mut dyn FnMut() -> String) -> String {
                text(*self)
            }
        }
    )+};
}
numbers!(f64 f32 f16 bf16 f8e4m3fn f8e5m2 i8 i16 i32 i64 u8 u16 u32 u64 bool);

impl<X: ConstantValue + Debug> TestArg for Constant<X> {
    type Host<'a> = X;
    type Owned = X;

    fn take(&self) -> X {
        self.0.clone()
    }

    fn lend(owned: &mut X) -> X {
        owned.clone()
    }

    fn put(&self, _: X) {}

    type View<'a> = X;
    type Device = X;

    fn take_device(&self) -> X {
        self.0.clone()
    }

    fn view(device: &mut X) -> X {
        device.clone()
    }

    fn put_device(&self, _: X) {}

    fn expression(&self, _: &mut dyn FnMut() -> String) -> String {
        format!("ct::Constant({:?})", self.0)
    }
}

/// An array of which the kernel gets the address. It is usually
/// [`contiguous`](Input::contiguous).
impl<A: TestArg> TestArg for ByPointer<A> {
    type Host<'a> = A::Host<'a>;
    type Owned = A::Owned;

    fn take(&self) -> A::Owned {
        self.0.take()
    }

    fn lend(owned: &mut A::Owned) -> A::Host<'_> {
        A::lend(owned)
    }

    fn put(&self, owned: A::Owned) {
        self.0.put(owned);
    }

    type View<'a> = ByPointer<A::View<'a>>;
    type Device = A::Device;

    fn take_device(&self) -> A::Device {
        self.0.take_device()
    }

    fn view(device: &mut A::Device) -> ByPointer<A::View<'_>> {
        ByPointer(A::view(device))
    }

    fn put_device(&self, device: A::Device) {
        self.0.put_device(device);
    }

    #[allow(private_interfaces)]
    fn arrays(&self, out: &mut Vec<SharedArray>) {
        self.0.arrays(out);
    }

    fn expression(&self, array: &mut dyn FnMut() -> String) -> String {
        format!("ct::ByPointer({})", self.0.expression(array))
    }
}

/// An optional argument. Its presence is a constant of the kernel.
impl<A: TestArg> TestArg for Option<A> {
    type Host<'a> = Option<A::Host<'a>>;
    type Owned = Option<A::Owned>;

    fn take(&self) -> Self::Owned {
        self.as_ref().map(A::take)
    }

    fn lend(owned: &mut Self::Owned) -> Self::Host<'_> {
        owned.as_mut().map(A::lend)
    }

    fn put(&self, owned: Self::Owned) {
        if let (Some(argument), Some(owned)) = (self, owned) {
            argument.put(owned);
        }
    }

    type View<'a> = Option<A::View<'a>>;
    type Device = Option<A::Device>;

    fn take_device(&self) -> Self::Device {
        self.as_ref().map(A::take_device)
    }

    fn view(device: &mut Self::Device) -> Self::View<'_> {
        device.as_mut().map(A::view)
    }

    fn put_device(&self, device: Self::Device) {
        if let (Some(argument), Some(device)) = (self, device) {
            argument.put_device(device);
        }
    }

    #[allow(private_interfaces)]
    fn arrays(&self, out: &mut Vec<SharedArray>) {
        self.iter().for_each(|argument| argument.arrays(out));
    }

    fn expression(&self, array: &mut dyn FnMut() -> String) -> String {
        self.as_ref().map_or("None".to_owned(), |argument| format!("Some({})", argument.expression(array)))
    }
}

macro_rules! tuples {
    ($(($($arg:ident $index:tt)*))+) => {$(
        impl<$($arg: TestArg),*> TestArg for ($($arg,)*) {
            type Host<'a> = ($($arg::Host<'a>,)*);
            type Owned = ($($arg::Owned,)*);

            fn take(&self) -> Self::Owned {
                ($(self.$index.take(),)*)
            }

            fn lend(owned: &mut Self::Owned) -> Self::Host<'_> {
                ($($arg::lend(&mut owned.$index),)*)
            }

            fn put(&self, owned: Self::Owned) {
                $(self.$index.put(owned.$index);)*
            }

            type View<'a> = ($($arg::View<'a>,)*);
            type Device = ($($arg::Device,)*);

            fn take_device(&self) -> Self::Device {
                ($(self.$index.take_device(),)*)
            }

            fn view(device: &mut Self::Device) -> Self::View<'_> {
                ($($arg::view(&mut device.$index),)*)
            }

            fn put_device(&self, device: Self::Device) {
                $(self.$index.put_device(device.$index);)*
            }

            #[allow(private_interfaces)]
            fn arrays(&self, out: &mut Vec<SharedArray>) {
                $(self.$index.arrays(out);)*
            }

            fn expression(&self, array: &mut dyn FnMut() -> String) -> String {
                let elements = [$(self.$index.expression(array)),*];
                if elements.len() == 1 { format!("({},)", elements[0]) } else { format!("({})", elements.join(", ")) }
            }
        }
    )+};
}
tuples! {
    (A 0)
    (A 0 B 1)
    (A 0 B 1 C 2)
    (A 0 B 1 C 2 D 3)
    (A 0 B 1 C 2 D 3 E 4)
    (A 0 B 1 C 2 D 3 E 4 F 5)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10 L 11)
}
