//! The interface of properties of host functions that queue launches.

use std::fmt;

use super::args::TestArg;
use super::draw::Draw;
use super::kernel::Runner;
use crate::error::Result;
use crate::runtime::Stream;

/// A function of a stream and of arrays that queues launches: the beginning of a property.
///
/// A case is launched in the modes of a [`Kernel`](super::Kernel). The function gets views of the
/// arrays in a tuple: `DeviceView` for an [`Input`](super::Input), `DeviceViewMut` for an
/// [`Output`](super::Output) and an [`InOut`](super::InOut). All its launches are on the stream.
///
/// ```
/// # use cutlet::doctest::*;
/// use cutlet::test::{Function, Input, Output};
/// use cutlet::{DeviceView, DeviceViewMut, Stream};
///
/// fn double(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
///     y.store(ct::bid(0), x.load(ct::bid(0), [16]) * 2.0);
/// }
///
/// fn doubled(stream: &Stream, x: DeviceView<f32, 1>, y: DeviceViewMut<f32, 1>) -> ct::Result<()> {
///     ct::Launch::new(x.len().div_ceil(16)).stream(stream).launch(double, (x, y))
/// }
///
/// Function::new("doubled")
///     .shapes(|draw| {
///         let n = draw.extent("n", 16);
///         (Input::<f32, 1>::new([n]), Output::<f32, 1>::new([n]))
///     })
///     .call(|stream, (x, y)| doubled(stream, x, y))
///     .reference(|(x, y)| y.fill(|i| 2.0 * x[i]))
///     .run();
/// ```
#[derive(Debug)]
pub struct Function {
    name: String,
}

/// A [`Function`] with the function that draws its arguments.
///
/// ```
/// # use cutlet::doctest::*;
/// use cutlet::test::{Function, FunctionWithArgs, Output};
///
/// let drawn: FunctionWithArgs<'_, (Output<i32, 1>,)> = Function::new("ones").shapes(|_| (Output::new([8]),));
/// let ones = |y: ArrayMut<i32, 1>| y.store(0, ct::ones([8]));
/// let property = drawn.call(|stream, (y,)| ct::Launch::new(1).stream(stream).launch(ones, (y,)));
/// property.reference(|(y,)| y.fill(|_| 1)).run();
/// ```
pub struct FunctionWithArgs<'k, A> {
    name: String,
    draw: Box<dyn Fn(&mut Draw<'_>) -> A + 'k>,
}

impl<A> fmt::Debug for FunctionWithArgs<'_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionWithArgs").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Function {
    /// Begins a property of the function with this name. Reports print the name, and the seeds of
    /// the cases depend on it.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # use cutlet::test::{Function, Output};
    /// let ones = |y: ArrayMut<i32, 1>| y.store(0, ct::ones([8]));
    /// Function::new("ones")
    ///     .shapes(|_| (Output::<i32, 1>::new([8]),))
    ///     .call(|stream, (y,)| ct::Launch::new(1).stream(stream).launch(ones, (y,)))
    ///     .reference(|(y,)| y.fill(|_| 1))
    ///     .run();
    /// ```
    pub fn new(name: impl Into<String>) -> Function {
        Function { name: name.into() }
    }

    /// Sets the function that draws the arguments of a case.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # use cutlet::test::{Function, Output};
    /// let ones = |y: ArrayMut<i32, 1>| y.store(ct::bid(0), ct::ones([8]));
    /// Function::new("ones")
    ///     .shapes(|draw| (Output::<i32, 1>::new([draw.extent("n", 8)]),))
    ///     .call(|stream, (y,)| ct::Launch::new(y.len().div_ceil(8)).stream(stream).launch(ones, (y,)))
    ///     .reference(|(y,)| y.fill(|_| 1))
    ///     .run();
    /// ```
    pub fn shapes<'k, A: TestArg + 'k>(self, shapes: impl Fn(&mut Draw<'_>) -> A + 'k) -> FunctionWithArgs<'k, A> {
        FunctionWithArgs { name: self.name, draw: Box::new(shapes) }
    }
}

impl<'k, A: TestArg + 'k> FunctionWithArgs<'k, A> {
    /// Sets the call of the function: a closure of a stream and of a tuple with views, numbers and
    /// the values of constants.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # use cutlet::test::{Function, InOut};
    /// let add = |x: ArrayMut<i32, 1>, n: Scalar<i32>| x.store(0, x.load(0, [8]) + n);
    /// Function::new("add")
    ///     .shapes(|draw| (InOut::<i32, 1>::new([8]), draw.range("n", 0..=9) as i32))
    ///     .call(|stream, (x, n)| ct::Launch::new(1).stream(stream).launch(add, (x, n)))
    ///     .reference(|(x, n)| (0..8).for_each(|i| x[[i]] += i64::from(n)))
    ///     .run();
    /// ```
    pub fn call(self, call: impl for<'a> Fn(&Stream, A::View<'a>) -> Result<()> + 'k) -> Runner<'k, A> {
        let draw = self.draw;
        Runner::of(
            self.name,
            Box::new(move |case| (None, draw(case))),
            Box::new(move |device, _, args: &A| {
                let mut lent = args.take_device();
                let done = call(&device.default_stream(), A::view(&mut lent));
                args.put_device(lent);
                done
            }),
        )
    }
}
