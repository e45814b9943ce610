//! How an array is accessed: the options of loads and stores.

use super::memory_order::{Order, Scope};
use crate::ir::{Attr, HintValue, Hints, MemOrder, Padding};

/// How a load treats the edge of the array, and what the compiler may expect of it.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn row_max(a: Array<f32, 2>, out: ArrayMut<f32, 2>) {
///     let options = ct::LoadOptions::new().padding(Padding::NegInf);
///     let row = a.load_with([ct::bid(0), ct::scalar(0)], [1, 1024], options);
///     out.store((ct::bid(0), 0), row.reduce_max(1));
/// }
///
/// let (a, mut out) = (ct::Device::cpu().full([2, 1000], -1.0f32)?, ct::Device::cpu().zeros([2, 1])?);
/// ct::launch(row_max, 2, (&a, &mut out))?;
/// assert_eq!(out.to_vec()?, [-1.0; 2]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadOptions {
    pub(crate) padding: Padding,
    pub(crate) access: Access,
}

/// How a store treats the edge of the array, and what the compiler may expect of it.
///
/// ```
/// # use cutlet as ct;
/// # use cutlet::prelude::*;
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

/// How long caches should keep what an access touches. Never changes results.
///
/// On ptx an access by the threads themselves says so in its instructions; tiles that a loop or the tensor memory accelerator
/// copies ahead pass the first-level cache by anyhow. Elsewhere it has no effect.
///
/// ```
/// # use cutlet as ct;
/// # use cutlet::prelude::*;
/// fn copy(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
///     // Each element is touched once.
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
    /// Not long: other lines stay (`L1::evict_first`).
    EvictFirst,
    /// Long: other lines go first (`L1::evict_last`).
    EvictLast,
    /// Not at all in the first level (`L1::no_allocate`).
    NoAllocate,
    /// Touched once, in no level for long (`.cs`). Ordered accesses: `EvictFirst`.
    Streaming,
    /// In the second level alone (`.cg`). Ordered accesses: `NoAllocate`.
    SecondLevel,
}

impl Cache {
    /// The hint that an op carries.
    pub(crate) fn hint(self) -> (String, HintValue) {
        ("cache".to_string(), HintValue::Int(self as i64))
    }
}

/// What loads and stores have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Access {
    pub order: Option<Vec<usize>>,
    pub latency: Option<u32>,
    pub cache: Option<Cache>,
    pub memory: Order,
    allow_tma: Option<bool>,
    unchecked: bool,
}

impl Default for LoadOptions {
    fn default() -> LoadOptions {
        LoadOptions { padding: Padding::Zero, access: Access::default() }
    }
}

impl LoadOptions {
    /// Zero padding, axes in order, weak, checked.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
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

    /// What the load reads outside of the array. All but `Zero` are for floats that have the value.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
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

    /// The load synchronises with a release of what it reads: what happened before that has happened before all that
    /// this tile block does afterwards.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    /// use cutlet::{LoadOptions, Scope, StoreOptions};
    ///
    /// // Each block hands a tile to the next one, with 1 added, and waits for its own.
    /// fn relay(tiles: ArrayMut<i32, 1>, ready: ArrayMut<i32, 1>) {
    ///     let me = ct::bid(0);
    ///     let acquire = LoadOptions::new().acquire(Scope::Device);
    ///     let not_yet = || ready.load_with([me], [1], acquire.clone()).item().eq(0);
    ///     ct::while_loop((), |()| not_yet(), |()| ());
    ///     tiles.store([me + 1], tiles.load([me], [8]) + 1);
    ///     ready.store_with([me + 1], ct::full([1], 1), StoreOptions::new().release(Scope::Device));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let (mut tiles, mut ready) = (device.zeros([8 * 5])?, device.array(&[1, 0, 0, 0, 0], [5])?);
    /// ct::launch(relay, 4, (&mut tiles, &mut ready))?;
    /// assert_eq!(tiles.to_vec()?[32..], [4; 8]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn acquire(mut self, scope: Scope) -> LoadOptions {
        self.access.memory = Order::new(MemOrder::Acquire, scope);
        self
    }
}

impl StoreOptions {
    /// Axes in order, weak, checked.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
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

    /// Whoever acquires what is written sees all that this tile block did before. For an example see
    /// [`LoadOptions::acquire`].
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// // What is stored before the flag is there for whoever acquires the flag.
    /// fn publish(data: ArrayMut<i32, 1>, flag: ArrayMut<i32, 1>) {
    ///     data.store(0, ct::full([4], 7));
    ///     flag.store_with(0, ct::ones([1]), ct::StoreOptions::new().release(ct::Scope::Device));
    /// }
    ///
    /// let (mut data, mut flag) = (ct::Device::cpu().zeros([4])?, ct::Device::cpu().zeros([1])?);
    /// ct::launch(publish, 1, (&mut data, &mut flag))?;
    /// assert_eq!((data.to_vec()?, flag.to_vec()?), (vec![7; 4], vec![1]));
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn release(mut self, scope: Scope) -> StoreOptions {
        self.access.memory = Order::new(MemOrder::Release, scope);
        self
    }
}

macro_rules! access_options {
    ($name:ident) => {
        impl $name {
            /// Axis `d` of the tile lies along axis `order[d]` of the array; so does component `d` of the index.
            ///
            /// ```
            /// # use cutlet as ct;
            /// # use cutlet::prelude::*;
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

            /// Other tile blocks of the scope may access the same elements at the same time; each access of an element
            /// is one. Without an order an access is weak: then nobody may write what it reads, or touch what it
            /// writes, at the same time.
            ///
            /// ```
            /// # use cutlet as ct;
            /// # use cutlet::prelude::*;
            /// // Blocks may all write this element at a time: one of them wins.
            /// fn any(y: ArrayMut<i32, 1>) {
            ///     y.store_with(0, ct::full([1], 1 + ct::bid(0)), ct::StoreOptions::new().relaxed(ct::Scope::Device));
            /// }
            ///
            /// let mut y = ct::Device::cpu().zeros([1])?;
            /// ct::launch(any, 8, (&mut y,))?;
            /// assert!((1..=8).contains(&y.to_vec()?[0]));
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[must_use]
            pub fn relaxed(mut self, scope: Scope) -> $name {
                self.access.memory = Order::new(MemOrder::Relaxed, scope);
                self
            }

            /// How long this access may take, from 1 (short) to 10 (long): how early to start it. Never changes
            /// results.
            ///
            /// Through `ptx` it is the number of tiles of a load in a loop that are there or on their way at a time,
            /// where they are copied ahead at all: at least 2, and not more than shared memory has room for. What the
            /// loop or the launch says of stages goes before. Of a store it says nothing there.
            ///
            /// ```
            /// # use cutlet as ct;
            /// # use cutlet::prelude::*;
            /// fn copy(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
            ///     y.store(ct::bid(0), x.load_with(ct::bid(0), [4], ct::LoadOptions::new().latency(10)));
            /// }
            ///
            /// let (x, mut y) = (ct::Device::cpu().full([8], 2.0f32)?, ct::Device::cpu().zeros([8])?);
            /// ct::launch(copy, 2, (&x, &mut y))?;
            /// assert_eq!(y.to_vec()?, [2.0; 8]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[must_use]
            pub fn latency(mut self, latency: u32) -> $name {
                self.access.latency = Some(latency);
                self
            }

            /// How long caches should keep what it touches: see [`Cache`].
            ///
            /// ```
            /// # use cutlet as ct;
            /// # use cutlet::prelude::*;
            /// fn copy(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
            ///     y.store(0, x.load_with(0, [4], ct::LoadOptions::new().cache(ct::Cache::EvictLast)));
            /// }
            ///
            /// let (x, mut y) = (ct::Device::cpu().full([4], 2.0f32)?, ct::Device::cpu().zeros([4])?);
            /// ct::launch(copy, 1, (&x, &mut y))?;
            /// assert_eq!(y.to_vec()?, [2.0; 4]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[must_use]
            pub fn cache(mut self, cache: Cache) -> $name {
                self.access.cache = Some(cache);
                self
            }

            /// May the access use the tensor memory accelerator? Never changes results. `false` keeps the threads
            /// themselves at work; `true`, the default, leaves the choice to the compiler.
            ///
            /// ```
            /// # use cutlet as ct;
            /// # use cutlet::prelude::*;
            /// fn copy(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
            ///     y.store(ct::bid(0), x.load_with(ct::bid(0), [4], ct::LoadOptions::new().allow_tma(false)));
            /// }
            ///
            /// let (x, mut y) = (ct::Device::cpu().full([8], 2.0f32)?, ct::Device::cpu().zeros([8])?);
            /// ct::launch(copy, 2, (&x, &mut y))?;
            /// assert_eq!(y.to_vec()?, [2.0; 8]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[must_use]
            pub fn allow_tma(mut self, allow: bool) -> $name {
                self.access.allow_tma = Some(allow);
                self
            }

            /// `false` is a **promise** that no element of the tile lies outside of the array, so that no check
            /// is needed. The cpu back end checks it all the same, and says where it is broken.
            ///
            /// ```
            /// use cutlet as ct;
            ///
            /// fn copy(x: ct::Array<f32, 1>, y: ct::ArrayMut<f32, 1>) {
            ///     // SAFETY: launched over arrays whose extents are multiples of 64, with a block for each tile.
            ///     let (load, store) = unsafe {
            ///         (ct::LoadOptions::new().check_bounds(false), ct::StoreOptions::new().check_bounds(false))
            ///     };
            ///     let i = ct::bid(0);
            ///     y.store_with([i], x.load_with([i], [64], load), store);
            /// }
            ///
            /// let x = ct::Device::cpu().full([128], 1.5f32)?;
            /// let mut y = ct::Device::cpu().zeros([128])?;
            /// ct::launch(copy, 2, (&x, &mut y))?;
            /// assert_eq!(y.to_vec()?, [1.5; 128]);
            /// assert!(ct::launch(copy, 3, (&x, &mut y)).is_err(), "the promise is broken");
            /// # Ok::<(), ct::Error>(())
            /// ```
            ///
            /// # Safety
            /// With `false`, every tile that an access with these options names lies within its array, along every
            /// axis, in every tile block of every launch. Else a GPU reads or writes memory that does not belong to
            /// the array. `true`, the default, promises nothing.
            #[must_use]
            pub unsafe fn check_bounds(mut self, check: bool) -> $name {
                self.access.unchecked = !check;
                self
            }
        }
    };
}
access_options!(LoadOptions);
#[cfg(not(doctest))] // the examples are the same
access_options!(StoreOptions);

impl Access {
    fn hints(&self) -> Option<Attr> {
        let latency = self.latency.map(|n| ("latency".to_string(), HintValue::Int(n.into())));
        let tma = self.allow_tma.map(|b| ("allow_tma".to_string(), HintValue::Bool(b)));
        let list: Vec<_> = latency.into_iter().chain(tma).chain(self.cache.map(Cache::hint)).collect();
        (!list.is_empty()).then(|| Attr::Hints(Hints(vec![("default".to_string(), list)])))
    }

    /// Is every element promised to lie inside of the array?
    pub fn is_unchecked(&self) -> bool {
        self.unchecked
    }

    /// That promise for every axis, if it is made.
    pub fn promise(&self, rank: usize) -> Option<Attr> {
        self.unchecked.then(|| Attr::Inbounds(vec![true; rank]))
    }

    /// The attributes of the access.
    pub fn attrs(&self, rank: usize) -> Vec<Attr> {
        let mut attrs = self.memory.attrs();
        attrs.extend(self.hints());
        attrs.push(Attr::Inbounds(vec![self.unchecked; rank]));
        attrs
    }
}
