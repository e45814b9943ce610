//! Options of accesses to arrays.

use crate::util::collect::CollectVec as _;
use std::ops::{Deref, DerefMut};

use super::memory_order::{Order, Scope};
use crate::ir::{Attr, HintValue, Hints, MemOrder, Padding, hint_key};
use crate::tile::{Place, Trace};

/// Options of a load of a tile: padding, the order of axes, memory order, and hints.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn row_max(a: Array<f32, 2>, out: ArrayMut<f32, 2>) {
///     let options = ct::LoadOptions::new().padding(Padding::NegInf);
///     let row = a.load_with((ct::bid(0), ct::scalar(0)), [1, 1024], options);
///     out.store((ct::bid(0), 0), row.reduce_max(1));
/// }
///
/// let (a, mut out) = (ct::Device::cpu().full([2, 1000], -1.0f32)?, ct::Device::cpu().zeros([2, 1])?);
/// ct::launch(row_max, 2, (&a, &mut out))?;
/// assert_eq!(out.to_vec()?, [-1.0; 2]);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// A chain of tile blocks:
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
/// use cutlet::{LoadOptions, Scope, StoreOptions};
///
/// // Each block waits for its tile, and stores it with 1 added for the next block.
/// fn relay(tiles: ArrayMut<i32, 1>, ready: ArrayMut<i32, 1>) {
///     let me = ct::bid(0);
///     let acquire = LoadOptions::new().acquire(Scope::Device);
///     let not_yet = || ready.load_with(me, [1], acquire.clone()).item().eq(0);
///     ct::while_loop((), |()| not_yet(), |()| ());
///     tiles.store(me + 1, tiles.load(me, [8]) + 1);
///     ready.store_with(me + 1, ct::full([1], 1), StoreOptions::new().release(Scope::Device));
/// }
///
/// let device = ct::Device::cpu();
/// let (mut tiles, mut ready) = (device.zeros([8 * 5])?, device.array(&[1, 0, 0, 0, 0], [5])?);
/// ct::launch(relay, 4, (&mut tiles, &mut ready))?;
/// assert_eq!(tiles.to_vec()?[32..], [4; 8]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadOptions {
    pub(crate) padding: Padding,
    pub(crate) access: Access,
}

/// Options of a store of a tile: the order of axes, memory order, and hints.
///
/// ```
/// # use cutlet::doctest::*;
/// fn column(y: ArrayMut<i32, 2>) {
///     let options = ct::StoreOptions::new().order([1, 0]).allow_tma(false);
///     y.store_with((ct::bid(0), 0), ct::full([1, 4], ct::bid(0)), options); // down a column
/// }
///
/// let mut y = ct::Device::cpu().zeros([4, 2])?;
/// ct::launch(column, 2, (&mut y,))?;
/// assert_eq!(y.to_vec()?, [0, 1, 0, 1, 0, 1, 0, 1]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreOptions {
    pub(crate) access: Access,
}

/// A hint at the time that caches should keep the elements of an access. Never changes results.
///
/// The ptx back end emits it with the instructions of accesses by threads. Tiles that a loop or the
/// tensor memory accelerator prefetches bypass the first-level cache. The other back ends ignore
/// the hint.
///
/// ```
/// # use cutlet::doctest::*;
/// fn copy(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
///     // Each element is accessed once.
///     let x = x.load_with(ct::bid(0), [256], ct::LoadOptions::new().cache(ct::Cache::EvictFirst));
///     y.store_with(ct::bid(0), x, ct::StoreOptions::new().cache(ct::Cache::Streaming));
/// }
///
/// let (x, mut y) = (ct::Device::cpu().full([500], 2.0f32)?, ct::Device::cpu().zeros([500])?);
/// ct::launch(copy, 2, (&x, &mut y))?;
/// assert_eq!(y.to_vec()?, [2.0; 500]);
/// let (x, y) = (ct::ArraySpec::<f32, 1>::new([512]), ct::ArraySpec::<f32, 1>::new([512]).mutable());
/// let text = ct::inspect(copy, (x, y)).target(ct::Target::SM_90A).ptx()?;
/// assert!(text.contains(".L1::evict_first") && text.contains("st.global.cs"));
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cache {
    /// A short time: evicted before other lines (`L1::evict_first`).
    EvictFirst,
    /// A long time: evicted after other lines (`L1::evict_last`).
    EvictLast,
    /// No time in the first level (`L1::no_allocate`).
    NoAllocate,
    /// A short time in all levels, for elements that are accessed once (`.cs`). Ordered accesses:
    /// `EvictFirst`.
    Streaming,
    /// Only in the second level (`.cg`). Ordered accesses: `NoAllocate`.
    SecondLevel,
}

/// The options of loads and stores of tiles: those of [`AccessOptions`], and the order of axes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Access {
    pub order: Option<Vec<usize>>,
    pub options: AccessOptions,
}

impl Deref for Access {
    type Target = AccessOptions;

    fn deref(&self) -> &AccessOptions {
        &self.options
    }
}

impl DerefMut for Access {
    fn deref_mut(&mut self) -> &mut AccessOptions {
        &mut self.options
    }
}

/// The options of all accesses to memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AccessOptions {
    pub memory: Order,
    pub latency: Option<u32>,
    pub cache: Option<Cache>,
    pub allow_tma: Option<bool>,
    /// True if the caller promises that all elements are inside of the array.
    pub unchecked: bool,
    /// True if tiles outside of the array are intended.
    pub clipped: bool,
}

impl AccessOptions {
    /// Reports a latency outside of its range.
    pub fn check(&self, t: &mut Trace, place: Place, name: &str) {
        if let Some(latency) = self.latency
            && !(1..=10).contains(&latency)
        {
            let message = format!("`{name}`: latency {latency} is not between 1 and 10");
            t.report(place, message, &["leave it out unless measurements ask for it"]);
        }
    }

    /// Returns the attributes of an access: order and hints.
    pub fn attrs(&self) -> Vec<Attr> {
        let latency = self.latency.map(|n| ("latency".to_string(), HintValue::Int(n.into())));
        let tma = self.allow_tma.map(|b| ("allow_tma".to_string(), HintValue::Bool(b)));
        let cache = self.cache.map(|cache| ("cache".to_string(), HintValue::Int(cache as i64)));
        let clipped = self.clipped.then(|| (hint_key::CLIPPED.to_string(), HintValue::Bool(true)));
        let hints: Vec<_> = latency.into_iter().chain(tma).chain(cache).chain(clipped).collect_vec();
        let mut attrs = self.memory.attrs();
        if !hints.is_empty() {
            attrs.push(Attr::Hints(Hints(vec![("default".to_string(), hints)])));
        }
        attrs
    }

    /// Returns [`Self::attrs`] with the promise for each axis of a view.
    pub fn attrs_of_view(&self, rank: usize) -> Vec<Attr> {
        let mut attrs = self.attrs();
        attrs.push(Attr::Inbounds(vec![self.unchecked; rank]));
        attrs
    }
}

/// An example: a kernel that copies four elements with `$chain` at the end of an expression that
/// makes options.
macro_rules! example {
    ([$name:literal $make:literal $use:literal] $before:literal $chain:literal $after:literal $result:literal) => {
        concat!(
            "```\n# use cutlet as ct;\n# use cutlet::prelude::*;\nfn kernel(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {\n    ",
            $before, "let ", $name, " = ", $after, $make, $chain, ";\n    ", $use, "\n}\n\n",
            "let (x, mut y) = (ct::Device::cpu().full([4], 3)?, ct::Device::cpu().zeros([4])?);\n",
            "ct::launch(kernel, 1, (&x, &mut y))?;\nassert_eq!(y.to_vec()?, ", $result, ");\n# Ok::<(), ct::Error>(())\n```"
        )
    };
}
pub(crate) use example;

/// The options that a type has: [`option`] has the method of each. `{loads, stores}` are the fields
/// with the options of loads and stores. The example has a name, the expression that makes options,
/// and the access.
macro_rules! options {
    ([$($generics:tt)*] $ty:ty, {$loads:ident, $stores:ident}, $example:tt: $($option:ident)+) => {
        impl<$($generics)*> $ty {
            fn loads(&mut self) -> &mut AccessOptions {
                &mut self.$loads
            }

            fn stores(&mut self) -> &mut AccessOptions {
                &mut self.$stores
            }
        }

        options! { [$($generics)*] $ty, $example: $($option)+ }
    };
    ([$($generics:tt)*] $ty:ty, $example:tt: $($option:ident)+) => {
        impl<$($generics)*> $ty {
            $(option!($option $example);)+
        }
    };
}
pub(crate) use options;

macro_rules! option {
    (mask $example:tt) => {
        /// Restricts the access to elements whose mask is true. All other positions are
        /// unrestricted.
        ///
        #[doc = example!($example "" ".mask(ct::astile([true, true, false, false]))" "" "[3, 3, 0, 0]")]
        #[must_use]
        pub fn mask(self, mask: impl Operand<Tile<bool, N>>) -> Self {
            Self { mask: Some(mask.source()), ..self }
        }
    };
    (relaxed $example:tt) => {
        /// Makes the access relaxed: other tile blocks of the scope may access the same elements at
        /// the same time.
        ///
        /// Each element is accessed in one step, in no order with other accesses. An access without
        /// an order is weak: at the same time, no other tile block may write an element that it
        /// reads, or access an element that it writes.
        ///
        #[doc = example!($example "" ".relaxed(ct::Scope::Device)" "" "[3; 4]")]
        #[must_use]
        pub fn relaxed(mut self, scope: Scope) -> Self {
            (self.loads().memory, self.stores().memory) =
                (Order::new(MemOrder::Relaxed, scope), Order::new(MemOrder::Relaxed, scope));
            self
        }
    };
    (acquire $example:tt) => {
        /// Makes loads acquire: accesses before the release that a load reads happen before later
        /// accesses of this tile block. [`LoadOptions`](crate::LoadOptions) has an example of two
        /// tile blocks.
        ///
        #[doc = example!($example "" ".acquire(ct::Scope::Device)" "" "[3; 4]")]
        #[must_use]
        pub fn acquire(mut self, scope: Scope) -> Self {
            self.loads().memory = Order::new(MemOrder::Acquire, scope);
            self
        }
    };
    (release $example:tt) => {
        /// Makes stores release: an acquire that reads a stored element sees all earlier accesses
        /// of this tile block. [`LoadOptions`](crate::LoadOptions) has an example of two tile
        /// blocks.
        ///
        #[doc = example!($example "" ".release(ct::Scope::Device)" "" "[3; 4]")]
        #[must_use]
        pub fn release(mut self, scope: Scope) -> Self {
            self.stores().memory = Order::new(MemOrder::Release, scope);
            self
        }
    };
    (acq_rel $example:tt) => {
        /// Makes the operation acquire and release: the default, for [`Scope::Device`].
        ///
        #[doc = example!($example "" ".acq_rel(ct::Scope::System)" "" "[3; 4]")]
        #[must_use]
        pub fn acq_rel(mut self, scope: Scope) -> Self {
            self.loads().memory = Order::new(MemOrder::AcqRel, scope);
            self
        }
    };
    (latency $example:tt) => {
        /// Hints at the latency of the access, from 1 (short) to 10 (long), which determines how
        /// early it is issued. Never changes results.
        ///
        /// The ptx back end uses it for loads of tiles that a loop prefetches: it is the number of
        /// tiles that are in shared memory or in flight at a time. The number is at least 2, and is
        /// limited by shared memory. The stages of the loop or the launch have precedence.
        ///
        #[doc = example!($example "" ".latency(8)" "" "[3; 4]")]
        #[must_use]
        pub fn latency(mut self, latency: u32) -> Self {
            (self.loads().latency, self.stores().latency) = (Some(latency), Some(latency));
            self
        }
    };
    (cache $example:tt) => {
        /// Hints at the time that caches should keep the elements: see [`Cache`](crate::Cache).
        ///
        #[doc = example!($example "" ".cache(ct::Cache::EvictLast)" "" "[3; 4]")]
        #[must_use]
        pub fn cache(mut self, cache: Cache) -> Self {
            (self.loads().cache, self.stores().cache) = (Some(cache), Some(cache));
            self
        }
    };
    (allow_tma $example:tt) => {
        /// Allows the access to use the tensor memory accelerator, or forbids it. Never changes
        /// results. With `true`, the default, the compiler chooses.
        ///
        #[doc = example!($example "" ".allow_tma(false)" "" "[3; 4]")]
        #[must_use]
        pub fn allow_tma(mut self, allow: bool) -> Self {
            (self.loads().allow_tma, self.stores().allow_tma) = (Some(allow), Some(allow));
            self
        }
    };
    (clipped $example:tt) => {
        /// States that tile indices outside of the array are intended, as in a grid for the largest
        /// of several problems. Never changes results: loads read padding, and stores have no
        /// effect.
        ///
        /// [`Checks::bounds`](crate::Checks) reports such indices of all other accesses.
        ///
        #[doc = example!($example "" ".clipped()" "" "[3; 4]")]
        #[must_use]
        pub fn clipped(mut self) -> Self {
            (self.loads().clipped, self.stores().clipped) = (true, true);
            self
        }
    };
    (check_bounds $example:tt) => {
        /// With `false`, **promises** that no element of the access (under its mask, if it has one)
        /// is outside of the array. No check is then needed. The cpu back end nevertheless checks
        /// it, and reports a broken promise.
        ///
        /// # Safety
        /// With `false`, every element that an access with these options names is inside of its
        /// array, in every tile block of every launch. Else a GPU reads or writes memory that does
        /// not belong to the array. `true`, the default, promises nothing.
        ///
        #[doc = example!(
            $example "// SAFETY: launched with four elements.\n    " ".check_bounds(false) }" "unsafe { " "[3; 4]"
        )]
        #[must_use]
        pub unsafe fn check_bounds(mut self, check: bool) -> Self {
            (self.loads().unchecked, self.stores().unchecked) = (!check, !check);
            self
        }
    };
}
pub(crate) use option;

impl Default for LoadOptions {
    fn default() -> LoadOptions {
        LoadOptions { padding: Padding::Zero, access: Access::default() }
    }
}

impl LoadOptions {
    /// Zero padding, axes in order, weak, checked.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn head(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
    ///     y.store(0, x.load_with(0, [4], ct::LoadOptions::new()));
    /// }
    ///
    /// let (x, mut y) = (ct::Device::cpu().full([4], 2.0f32)?, ct::Device::cpu().zeros([4])?);
    /// ct::launch(head, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [2.0; 4]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn new() -> LoadOptions {
        LoadOptions::default()
    }

    /// Sets the padding, which a load reads outside of the array. All but `Zero` are for floats
    /// that have the value.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn smallest(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
    ///     let options = ct::LoadOptions::new().padding(Padding::PosInf);
    ///     y.store(0, x.load_with(0, [4], options).reduce_min(0));
    /// }
    ///
    /// let (x, mut y) = (ct::Device::cpu().full([3], 2.0f32)?, ct::Device::cpu().zeros([1])?);
    /// ct::launch(smallest, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [2.0]); // and not 0
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn padding(mut self, padding: Padding) -> LoadOptions {
        self.padding = padding;
        self
    }
}

impl StoreOptions {
    /// Axes in order, weak, checked.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn fill(y: ArrayMut<f32, 1>) {
    ///     y.store_with(0, ct::ones([4]), ct::StoreOptions::new());
    /// }
    ///
    /// let mut y = ct::Device::cpu().zeros([3])?;
    /// ct::launch(fill, 1, (&mut y,))?;
    /// assert_eq!(y.to_vec()?, [1.0; 3]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn new() -> StoreOptions {
        StoreOptions::default()
    }
}

macro_rules! axis_order {
    ($name:ident) => {
        impl $name {
            /// Sets the order of axes: axis `d` of the tile, and component `d` of the index, is
            /// along axis `order[d]` of the array.
            ///
            /// ```
            /// # use cutlet::doctest::*;
            /// fn transposed(x: Array<i32, 2>, y: ArrayMut<i32, 2>) {
            ///     y.store((0, 0), x.load_with((0, 0), [2, 2], ct::LoadOptions::new().order([1, 0])));
            /// }
            ///
            /// let (x, mut y) = (ct::Device::cpu().array(&[1, 2, 3, 4], [2, 2])?, ct::Device::cpu().zeros([2, 2])?);
            /// ct::launch(transposed, 1, (&x, &mut y))?;
            /// assert_eq!(y.to_vec()?, [1, 3, 2, 4]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[must_use]
            pub fn order(mut self, order: impl Into<Vec<usize>>) -> $name {
                self.access.order = Some(order.into());
                self
            }
        }
    };
}
axis_order!(LoadOptions);
#[cfg(not(doctest))] // the examples are the same
axis_order!(StoreOptions);

options! { [] LoadOptions, {access, access},
    ["options" "ct::LoadOptions::new()" "y.store(0, x.load_with(0, [4], options));"]:
    acquire relaxed latency cache allow_tma clipped check_bounds
}
options! { [] StoreOptions, {access, access},
    ["options" "ct::StoreOptions::new()" "y.store_with(0, x.load(0, [4]), options);"]:
    release relaxed latency cache allow_tma clipped check_bounds
}
