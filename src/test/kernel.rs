//! The interface of properties: a kernel, its arguments, its reference, and the requirements.

use std::fmt;
use std::marker::PhantomData;
use std::path::PathBuf;

use super::args::TestArg;
use super::arrays::element::Tolerance;
use super::corpus::Corpus;
use super::draw::Draw;
use super::instance::{Instance, Subject};
use super::laws::Law;
use super::search::{Finding, Settings, Summary, search};
use crate::error::Result;
use crate::kernel::{Arguments, Bound, KernelArgs, name_of};
use crate::launch::{Grid, IntoGrid, Launch};
use crate::runtime::Device;

/// A kernel whose properties are tested: the beginning of a property.
///
/// The closure of [`Kernel::shapes`] generates the grid and the arguments of each case from a seed.
/// A case is launched three times. The first launch is on the cpu back end with all
/// [`Checks`](crate::Checks). The second one is there without checks, with another order of the
/// tile blocks and other contents of the padding around arrays. The third one is on the GPU, if
/// there is one.
///
/// ```
/// # use cutlet::doctest::*;
/// use cutlet::test::{Input, Kernel, Output};
///
/// fn vadd(a: Array<f32, 1>, b: Array<f32, 1>, c: ArrayMut<f32, 1>, tile: usize) {
///     let i = ct::bid(0);
///     c.store(i, a.load(i, [tile]) + b.load(i, [tile]));
/// }
///
/// Kernel::new(vadd)
///     .shapes(|draw| {
///         let tile = draw.pick("tile", [16, 64]);
///         let n = draw.extent("n", tile);
///         (n.div_ceil(tile), (Input::new([n]), Input::new([n]), Output::new([n]), Constant(tile)))
///     })
///     .reference(|(a, b, c, _)| c.fill(|i| a[i] + b[i]))
///     .run();
/// ```
pub struct Kernel<K, P> {
    kernel: K,
    params: PhantomData<fn(P)>,
}

impl<K, P> fmt::Debug for Kernel<K, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").field("name", &std::any::type_name::<K>()).finish_non_exhaustive()
    }
}

impl<K: crate::kernel::Kernel<P>, P> Kernel<K, P> {
    /// Begins a property of a kernel: a function or closure, as for [`launch`](crate::launch()).
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # use cutlet::test::{Kernel, Output};
    /// let ones = |y: ArrayMut<i32, 1>| y.store(0, ct::ones([8]));
    /// Kernel::new(ones).shapes(|_| (1, (Output::new([8]),))).reference(|(y,)| y.fill(|_| 1)).run();
    /// ```
    pub fn new(kernel: K) -> Kernel<K, P> {
        Kernel { kernel, params: PhantomData }
    }

    /// Sets the function that draws the grid and the arguments of a case. Element types and ranks
    /// follow from the kernel.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # use cutlet::test::{Kernel, Output};
    /// let ones = |y: ArrayMut<i32, 1>| y.store(ct::bid(0), ct::ones([8]));
    /// Kernel::new(ones)
    ///     .shapes(|draw| {
    ///         let n = draw.extent("n", 8);
    ///         (n.div_ceil(8), (Output::new([n]),))
    ///     })
    ///     .reference(|(y,)| y.fill(|_| 1))
    ///     .run();
    /// ```
    pub fn shapes<'k, G, A>(self, shapes: impl Fn(&mut Draw<'_>) -> (G, A) + 'k) -> Runner<'k, A>
    where
        G: IntoGrid,
        A: TestArg + KernelArgs<P> + 'k,
        K: 'k,
        P: 'k,
    {
        let kernel = self.kernel;
        Runner::of(
            name_of::<K>(),
            Box::new(move |draw| {
                let (grid, args) = shapes(draw);
                (Some(grid.into_grid()), args)
            }),
            Box::new(move |_, grid, args| {
                let (grid, args) = (grid.expect("a kernel has a grid"), Arguments::<A, P>::new(args.clone()));
                Launch::new(grid).launch_call(&Bound::new(&kernel, &args).call())
            }),
        )
    }
}

/// A function that draws the arguments, and the grid of a kernel.
type DrawArgs<'k, A> = Box<dyn Fn(&mut Draw<'_>) -> (Option<Grid>, A) + 'k>;

/// A function that launches the kernel with arguments on a device.
type LaunchArgs<'k, A> = Box<dyn Fn(Device, Option<Grid>, &A) -> Result<()> + 'k>;

/// A function that computes the reference.
type Reference<'k, A> = Box<dyn for<'a> Fn(<A as TestArg>::Host<'a>) + 'k>;

/// A property of a kernel, with the arguments `A`.
///
/// ```
/// # use cutlet::doctest::*;
/// use cutlet::test::{Input, Kernel, Output};
///
/// fn softmax(x: Array<f32, 2>, y: ArrayMut<f32, 2>, tile: usize) {
///     let row = ct::bid(0);
///     let x = x.load_with((row, 0), [1, tile], ct::LoadOptions::new().padding(Padding::NegInf));
///     let e = (x - x.reduce_max(1)).exp();
///     y.store((row, 0), e / e.sum(1));
/// }
///
/// let property = Kernel::new(softmax).shapes(|draw| {
///     let (rows, columns) = (draw.extent("rows", 1), draw.nonzero_extent("columns", 16));
///     (rows, (Input::new([rows, columns]), Output::new([rows, columns]), Constant(64)))
/// });
/// // A law in place of a reference: a row does not depend on the others.
/// property.splits_along("rows").run();
/// ```
pub struct Runner<'k, A: TestArg> {
    name: String,
    draw: DrawArgs<'k, A>,
    launch: LaunchArgs<'k, A>,
    reference: Option<Reference<'k, A>>,
    settings: Settings,
}

impl<A: TestArg> fmt::Debug for Runner<'_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<'k, A: TestArg> Runner<'k, A> {
    /// Returns the property of the kernel or function with this name, without requirements.
    pub(super) fn of(name: String, draw: DrawArgs<'k, A>, launch: LaunchArgs<'k, A>) -> Self {
        let settings =
            Settings { laws: Vec::new(), tolerance: None, cases: None, only: None, corpus: Corpus::default_folder() };
        Runner { name, draw, launch, reference: None, settings }
    }

    /// Sets the reference: a function of a tuple with an element for each argument. It reads
    /// `&HostArray`, writes `&mut HostArray`, and gets numbers and the values of constants.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # use cutlet::test::{Input, Kernel, Output};
    /// let twice = |x: Array<f32, 1>, y: ArrayMut<f32, 1>| y.store(0, x.load(0, [8]) * 2.0);
    /// Kernel::new(twice)
    ///     .shapes(|_| (1, (Input::new([8]), Output::new([8]))))
    ///     .reference(|(x, y)| y.fill(|i| 2.0 * x[i]))
    ///     .run();
    /// ```
    #[must_use]
    pub fn reference(mut self, reference: impl for<'a> Fn(A::Host<'a>) + 'k) -> Self {
        self.reference = Some(Box::new(reference));
        self
    }

    /// Requires that the parts of an extent have the results of the whole: rows are independent.
    /// `extent` is the name of a draw. Shapes of arrays are proportional to it, or do not depend on
    /// it.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # use cutlet::test::{Input, Kernel, Output};
    /// fn total(x: Array<f32, 2>, y: ArrayMut<f32, 1>) {
    ///     y.store(ct::bid(0), x.load((ct::bid(0), 0), [1, 16]).sum(1).squeeze(1));
    /// }
    ///
    /// Kernel::new(total)
    ///     .shapes(|draw| {
    ///         let rows = draw.extent("rows", 4);
    ///         (rows, (Input::new([rows, 16]), Output::new([rows])))
    ///     })
    ///     .splits_along("rows")
    ///     .run();
    /// ```
    #[must_use]
    pub fn splits_along(mut self, extent: &str) -> Self {
        self.settings.laws.push(Law::Splits(extent.to_owned()));
        self
    }

    /// Requires that the results for `2 x - y` are twice those for `x` minus those for `y`, where
    /// `x` is the array with this number among the arrays of the arguments.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # use cutlet::test::{Input, Kernel, Output};
    /// let sums = |x: Array<f32, 1>, y: ArrayMut<f32, 1>| y.store(0, x.load(0, [8]).cumsum(0));
    /// Kernel::new(sums).shapes(|_| (1, (Input::new([8]), Output::new([8])))).linear_in(0).run();
    /// ```
    #[must_use]
    pub fn linear_in(mut self, array: usize) -> Self {
        self.settings.laws.push(Law::Linear(array));
        self
    }

    /// Requires that the results are the same for another option of a draw: a tile size, a number
    /// of parts.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # use cutlet::test::{Input, Kernel, Output};
    /// fn double(x: Array<f32, 1>, y: ArrayMut<f32, 1>, tile: usize) {
    ///     y.store(ct::bid(0), x.load(ct::bid(0), [tile]) * 2.0);
    /// }
    ///
    /// Kernel::new(double)
    ///     .shapes(|draw| {
    ///         let tile = draw.pick("tile", [8, 32]);
    ///         let n = draw.extent("n", 16);
    ///         (n.div_ceil(tile), (Input::new([n]), Output::new([n]), Constant(tile)))
    ///     })
    ///     .independent_of("tile")
    ///     .run();
    /// ```
    #[must_use]
    pub fn independent_of(mut self, draw: &str) -> Self {
        self.settings.laws.push(Law::Independent(draw.to_owned()));
        self
    }

    /// Sets the permitted difference of a result from its reference: `absolute`, and `relative`
    /// times the reference. The default is 64 ulp of 1 for f32 and f64, 2 ulp for smaller floats,
    /// and 0 for integers.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # use cutlet::test::{Input, Kernel, Output};
    /// let e = |x: Array<f32, 1>, y: ArrayMut<f32, 1>| y.store(0, x.load(0, [8]).exp());
    /// Kernel::new(e)
    ///     .shapes(|_| (1, (Input::new([8]), Output::new([8]))))
    ///     .reference(|(x, y)| y.fill(|i| x[i].exp()))
    ///     .tolerance(1e-4, 1e-6)
    ///     .run();
    /// ```
    #[must_use]
    pub fn tolerance(mut self, relative: f64, absolute: f64) -> Self {
        self.settings.tolerance = Some(Tolerance { relative, absolute });
        self
    }

    /// Sets the number of cases; by default that of `CUTLET_PROPERTY_CASES`, else of
    /// `PROPTEST_CASES`, else 64.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # use cutlet::test::{Kernel, Output};
    /// let ones = |y: ArrayMut<i32, 1>| y.store(0, ct::ones([8]));
    /// let property = Kernel::new(ones).shapes(|_| (1, (Output::new([8]),))).reference(|(y,)| y.fill(|_| 1));
    /// assert_eq!(property.cases(3).check().unwrap().cases, 3);
    /// ```
    #[must_use]
    pub fn cases(mut self, cases: usize) -> Self {
        self.settings.cases = Some(cases);
        self
    }

    /// Runs the case of this seed alone, which a report has named.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # use cutlet::test::{Kernel, Output};
    /// let ones = |y: ArrayMut<i32, 1>| y.store(0, ct::ones([8]));
    /// let property = Kernel::new(ones).shapes(|_| (1, (Output::new([8]),))).reference(|(y,)| y.fill(|_| 1));
    /// assert_eq!(property.seed(0x1234).check().unwrap().cases, 1);
    /// ```
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.settings.only = Some(seed);
        self
    }

    /// Sets the folder with the seeds of failing cases, which run first. The default is
    /// `cutlet-regressions` next to the `Cargo.toml` of the tested package.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # use cutlet::test::{Kernel, Output};
    /// let ones = |y: ArrayMut<i32, 1>| y.store(0, ct::ones([8]));
    /// let property = Kernel::new(ones).shapes(|_| (1, (Output::new([8]),))).reference(|(y,)| y.fill(|_| 1));
    /// property.corpus(std::env::temp_dir().join("regressions")).run();
    /// ```
    #[must_use]
    pub fn corpus(mut self, folder: impl Into<PathBuf>) -> Self {
        self.settings.corpus = Some(folder.into());
        self
    }

    /// Neither reads nor writes a folder of failing cases.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # use cutlet::test::{Kernel, Output};
    /// let ones = |y: ArrayMut<i32, 1>| y.store(0, ct::ones([8]));
    /// Kernel::new(ones).shapes(|_| (1, (Output::new([8]),))).reference(|(y,)| y.fill(|_| 1)).without_corpus().run();
    /// ```
    #[must_use]
    pub fn without_corpus(mut self) -> Self {
        self.settings.corpus = None;
        self
    }

    /// Runs all cases.
    ///
    /// # Errors
    /// The first failing case, reduced.
    ///
    /// # Panics
    /// If the kernel or a function of the property panics.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # use cutlet::test::{Input, Kernel, Output};
    /// // The block is missing in the index of the load.
    /// fn copy(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
    ///     y.store(ct::bid(0), x.load(0, [16]));
    /// }
    ///
    /// let property = Kernel::new(copy).shapes(|draw| {
    ///     let n = draw.extent("n", 16);
    ///     (n.div_ceil(16), (Input::new([n]), Output::new([n])))
    /// });
    /// let found = property.reference(|(x, y)| y.fill(|i| x[i])).without_corpus().check().unwrap_err();
    /// assert!(found.message().starts_with("array `b`: element [16] is"), "{found}");
    /// ```
    pub fn check(&self) -> Result<Summary, Box<Finding>> {
        search(self, &self.settings)
    }

    /// Runs all cases, for a test of `cargo test`.
    ///
    /// # Panics
    /// With a report, if a case fails: message, draws, and the reduced case as a test in Rust. Also
    /// if the kernel or a function of the property panics.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # use cutlet::test::{Kernel, Output};
    /// let ones = |y: ArrayMut<i32, 1>| y.store(0, ct::ones([8]));
    /// Kernel::new(ones).shapes(|_| (1, (Output::new([8]),))).reference(|(y,)| y.fill(|_| 1)).run();
    /// ```
    #[track_caller]
    pub fn run(&self) {
        if let Err(finding) = self.check() {
            panic!("{finding}");
        }
    }
}

impl<A: TestArg> Subject for Runner<'_, A> {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn instance<'s>(&'s self, draw: &mut Draw<'_>) -> Instance<'s> {
        let (grid, args) = (self.draw)(draw);
        let mut arrays = Vec::new();
        args.arrays(&mut arrays);
        let printed = args.clone();
        let expression = Box::new(move |array: &mut dyn FnMut() -> String| printed.expression(array));
        let referred = args.clone();
        let reference = self.reference.as_ref().map(|reference| -> Box<dyn Fn() + 's> {
            Box::new(move || {
                let mut owned = referred.take();
                reference(A::lend(&mut owned));
                referred.put(owned);
            })
        });
        Instance {
            grid,
            arrays,
            expression,
            launch: Box::new(move |device| (self.launch)(device, grid, &args)),
            reference,
        }
    }
}
