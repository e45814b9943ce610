//! Tiles in a layout of the user's choice.

use crate::dtype::DType;
use crate::element::{ByteSized, Element};
use crate::ir::{Attr, Distribution, Opcode, Value};
use crate::layout::{Layout, Modes};
use crate::sealed::Sealed;
use crate::tile::{Handle, Place, Tile, Trace, ValueHandle, caller_location, record};
use crate::util::collect::CollectVec as _;
use crate::util::sort;

/// The number of threads of a warp, and the maximum of a tile block.
const WARP: i64 = 32;
const MAX_THREADS: i64 = 1024;

/// Layouts that [`Tile::with_layout`] accepts: [`Modes`], as constructed by
/// `local(..) * spatial(..)`, and [`Layout`].
///
/// This trait is sealed.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn doubled(x: Tile<f32, 1>, layout: impl ct::ops::TileLayout) -> Tile<f32, 1> {
///     x.with_layout(layout) * 2.0
/// }
///
/// # ct::Launch::new(1).backend(ct::Backend::Cpu).launch(|| {
/// let (x, layout) = (ct::ones::<f32, 1>([128]), ct::layout::spatial([32]) * ct::layout::local([4]));
/// ct::assert!(doubled(x, &layout).eq(2.0) & doubled(x, layout.to_layout(1).unwrap()).eq(2.0));
/// # }, ())?;
/// # Ok::<(), ct::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a layout of a tile",
    note = "a layout is a product of `ct::layout::local(..)`, registers of a thread, and `ct::layout::spatial(..)`, threads; or a \
            `ct::layout::Layout`"
)]
pub trait TileLayout: Sealed {
    #[doc(hidden)]
    fn described(&self, tile: &[i64]) -> Described;
}

/// A layout in recorded form.
#[derive(Debug)]
pub struct Described {
    shape: Vec<i64>,
    threads: i64,
    /// The distribution for this number of threads. `None` if it is no map of bits, or if the tile
    /// has another shape.
    distribution: Option<Distribution>,
}

impl Sealed for Modes {}
impl Sealed for Layout {}

impl TileLayout for Modes {
    fn described(&self, tile: &[i64]) -> Described {
        let threads = self.num_threads();
        let num_warps = usize::try_from(threads / WARP).unwrap_or(0).max(1);
        let layout = (self.shape() == tile).then(|| self.to_layout(num_warps)).flatten();
        Described { shape: self.shape().to_vec(), threads, distribution: layout.map(|layout| distribution(&layout)) }
    }
}

impl TileLayout for Layout {
    fn described(&self, tile: &[i64]) -> Described {
        let distribution = (self.shape() == tile && is_plain(self)).then(|| distribution(self));
        Described { shape: self.shape().to_vec(), threads: WARP * self.num_warps() as i64, distribution }
    }
}

impl<L: TileLayout> TileLayout for &L {
    fn described(&self, tile: &[i64]) -> Described {
        (*self).described(tile)
    }
}

fn distribution(layout: &Layout) -> Distribution {
    let slots = layout.canonical().register_bases().into();
    Distribution { slots, threads: [layout.lane_bases(), layout.warp_bases()].concat().into() }
}

/// Returns true if each nonzero basis of the layout is one bit of the element index, and each of
/// these bits has exactly one basis.
fn is_plain(layout: &Layout) -> bool {
    let mut bases: Vec<u32> = layout.bases().into_iter().filter(|&basis| basis != 0).collect_vec();
    sort::natural(&mut bases);
    bases.windows(2).all(|pair| pair[0] != pair[1])
        && bases.iter().all(|basis| basis.is_power_of_two())
        && layout.covers()
}

impl Trace {
    fn with_layout(&mut self, place: Place, tile: ValueHandle, dtype: DType, layout: &Described) -> Option<Value> {
        let value = self.along(place, "with_layout", tile, &[])?;
        let shape = self.shape(tile);
        let (own, threads) = (&layout.shape, layout.threads);
        if *own != shape {
            let message = format!("`with_layout`: a layout of {own:?} for a tile of shape {shape:?}");
            self.report(place, message, &[&fitting(own, &shape)]);
            return None;
        }
        if !(WARP..=MAX_THREADS).contains(&threads) {
            let way_out = match threads {
                ..WARP if WARP % threads == 0 => format!(
                    "a warp has {WARP}: replicas of the threads, `.replicate({})`, or fewer elements in `local`",
                    WARP / threads
                ),
                ..WARP => format!("a tile block has {WARP} to {MAX_THREADS} threads, a power of two"),
                _ => format!("a tile block has {MAX_THREADS} threads at most: more elements in `local`"),
            };
            self.report(place, format!("`with_layout`: a layout for {threads} threads"), &[&way_out]);
            return None;
        }
        let Some(distribution) = layout.distribution.clone() else {
            let message =
                format!("`with_layout`: a layout of {own:?} for {threads} threads is not a linear map of index bits");
            let way_out = "extents of `local` and `spatial` and numbers of replicas are powers of two, and each bit of a \
                           thread or register index is one bit of the element index";
            self.report(place, message, &[way_out]);
            return None;
        };
        let (known, first) = *self.layout_threads.get_or_insert((threads, place));
        if known != threads {
            let message = format!("`with_layout`: a layout for {threads} threads, where another one is for {known}");
            let more = known.max(threads) / known.min(threads);
            let way_out = format!(
                "a tile block has one number of threads: `.replicate({more})` of the layout for {} is for {}",
                known.min(threads),
                known.max(threads)
            );
            self.report_with(place, message, &[(first, "the other one")], &way_out);
            return None;
        }
        Some(self.put(Opcode::WithLayout, &[value], vec![Attr::Distribution(distribution)], dtype, &shape))
    }
}

/// The correction of a layout for a tile of this shape, as text.
fn fitting(own: &[i64], shape: &[i64]) -> String {
    let factors: Option<Vec<i64>> = (own.len() == shape.len()).then_some(()).and_then(|()| {
        own.iter()
            .zip(shape)
            .map(|(own, extent)| Some(extent / own).filter(|factor| extent % own == 0 && factor.count_ones() == 1))
            .collect()
    });
    let rule = "the extents of the factors of a layout multiply to those of the tile";
    match factors {
        Some(factors) => format!("{rule}: `ct::layout::local({factors:?}) * layout` fits"),
        None => rule.to_owned(),
    }
}

impl<T: ByteSized, const R: usize> Tile<T, R> {
    /// Returns the same tile, distributed over the threads of the tile block by `layout`.
    ///
    /// A layout maps the threads and their registers to the elements. It is a product of `local`
    /// (registers of a thread) and `spatial` (threads) of [`layout`](crate::layout), row-major by
    /// default.
    ///
    /// The tile is converted to this layout. Values computed from it have the same layout, until an
    /// operation requires another one; a conversion uses shuffles or shared memory. A load whose
    /// tile has no other use reads memory in the layout, and a store writes in it. Both accesses
    /// are as wide as the contiguous elements of `local`.
    ///
    /// The number of threads of a layout is that of the tile block, 32 to 1024. It must agree with
    /// [`Hints::num_warps`](crate::Hints). Producer warps and a second ping-pong group are not
    /// counted. All layouts of a kernel have the same number of threads; [`Modes::replicate`]
    /// extends a layout to more threads. Extents are powers of two.
    ///
    /// The cpu back end ignores the layout. The tileir back end returns an error, because Tile IR
    /// has no layouts.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    /// use ct::layout::{local, spatial};
    ///
    /// // One warp: 8 rows of 4 threads, each with 16 bytes of a row.
    /// fn scaled(x: Array<f32, 2>, y: ArrayMut<f32, 2>) {
    ///     let layout = spatial([8, 4]) * local([1, 4]);
    ///     y.store((ct::bid(0), 0), x.load((ct::bid(0), 0), [8, 16]).with_layout(layout) * 0.5);
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let (x, mut y) = (device.from_fn([16, 16], |[i, j]| (i * j) as f32)?, device.zeros([16, 16])?);
    /// ct::launch(scaled, 2, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?[16 * 9 + 3], 13.5);
    ///
    /// let array = ct::ArraySpec::<f32, 2>::new([16, 16]);
    /// let ptx = ct::inspect(scaled, (array, array.mutable())).target(ct::Target::SM_90A).ptx()?;
    /// assert!(ptx.contains("ld.global.nc.v4") && ptx.contains(".reqntid 32"), "{ptx}");
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// The launch returns an error with this source location in these cases: the layout has another
    /// shape or number of threads, or its extents are no powers of two.
    #[track_caller]
    #[must_use]
    pub fn with_layout(self, layout: impl TileLayout) -> Tile<T, R> {
        let (place, tile) = (caller_location(), self.raw());
        let layout = layout.described(&record(|t| t.shape(tile)));
        Tile::from_raw(record(|t| match t.with_layout(place, tile, T::DTYPE, &layout) {
            Some(value) => t.raw(value),
            None => {
                let ty = t.type_of(tile);
                t.poison(ty)
            }
        }))
    }
}

impl<T: Element, const R: usize> Tile<T, R> {
    /// Returns the same tile; each thread holds all elements along an axis, if extents are powers
    /// of two. The back end distributes the other axes. Tile IR ignores it.
    pub(crate) fn with_local_axis(self, axis: usize) -> Tile<T, R> {
        let place = caller_location();
        Tile::from_raw(record(|t| {
            let shape = t.shape(self.raw());
            let Some(value) = t.along(place, "with_layout", self.raw(), &[axis]) else { return self.raw() };
            if shape.iter().any(|extent| extent.count_ones() != 1) {
                return self.raw();
            }
            let inner = shape[axis + 1..].iter().product::<i64>() as u32;
            let slots = (0..shape[axis].trailing_zeros()).map(|bit| inner << bit).collect();
            let layout = Attr::Distribution(Distribution { slots, threads: [].into() });
            let result = t.put(Opcode::WithLayout, &[value], vec![layout], T::DTYPE, &shape);
            t.raw(result)
        }))
    }
}
