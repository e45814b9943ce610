//! A tile in a layout that the user chooses.

use crate::dtype::DType;
use crate::element::ByteSized;
use crate::ir::{Attr, Distribution, Opcode, Value};
use crate::layout::{Layout, Modes};
use crate::tile::{Handle, Place, Raw, Tile, Trace, here, record};

/// Threads of a warp, and most of a tile block.
const WARP: i64 = 32;
const MOST_THREADS: i64 = 1024;

/// Layouts that [`Tile::with_layout`] takes: [`Modes`], as `local(..) * spatial(..)` makes them, and [`Layout`].
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
    note = "a layout is a product of `ct::layout::local(..)`, slots of a thread, and `ct::layout::spatial(..)`, threads; or a \
            `ct::layout::Layout`"
)]
pub trait TileLayout {
    #[doc(hidden)]
    fn described(&self, tile: &[i64]) -> Described;
}

/// A layout as it is recorded.
#[derive(Debug)]
pub struct Described {
    shape: Vec<i64>,
    threads: i64,
    /// For so many threads; `None` where bits do not tell them apart, or the tile has another shape.
    distribution: Option<Distribution>,
}

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
    let slots = layout.canonical().register_images().into();
    Distribution { slots, threads: [layout.lane_images(), layout.warp_images()].concat().into() }
}

/// Does each bit of a slot or a thread stand for one bit of the element, each of these once, or for replicas?
fn is_plain(layout: &Layout) -> bool {
    let mut images: Vec<u32> = layout.images().into_iter().filter(|&image| image != 0).collect();
    images.sort_unstable();
    images.windows(2).all(|pair| pair[0] != pair[1])
        && images.iter().all(|image| image.is_power_of_two())
        && layout.covers()
}

impl Trace {
    fn with_layout(&mut self, place: Place, tile: Raw, dtype: DType, layout: &Described) -> Option<Value> {
        let value = self.along(place, "with_layout", tile, &[])?;
        let shape = self.shape(tile);
        let (own, threads) = (&layout.shape, layout.threads);
        if *own != shape {
            let message = format!("`with_layout`: a layout of {own:?} for a tile of shape {shape:?}");
            self.report(place, message, &[&fitting(own, &shape)]);
            return None;
        }
        if !(WARP..=MOST_THREADS).contains(&threads) {
            let way_out = match threads {
                ..WARP if WARP % threads == 0 => format!(
                    "a warp has {WARP}: replicas of the threads, `.replicate({})`, or fewer elements in `local`",
                    WARP / threads
                ),
                ..WARP => format!("a tile block has {WARP} to {MOST_THREADS} threads, a power of two"),
                _ => format!("a tile block has {MOST_THREADS} threads at most: more elements in `local`"),
            };
            self.report(place, format!("`with_layout`: a layout for {threads} threads"), &[&way_out]);
            return None;
        }
        let Some(distribution) = layout.distribution.clone() else {
            let message =
                format!("`with_layout`: a layout of {own:?} for {threads} threads that goes by no powers of two");
            let way_out = "extents of `local` and `spatial` and numbers of replicas are powers of two, and each bit of a \
                           thread or slot stands for one bit of an element's place";
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

/// How a layout becomes one of this shape.
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
    /// The same tile, held by the threads of the tile block as `layout` says.
    ///
    /// A layout tells which thread has which elements, in which of its slots: a product of `local` (slots of a thread) and
    /// `spatial` (threads) of [`layout`](crate::layout), row-major unless it says otherwise. Here the
    /// tile is held so, whatever it was before; what is computed of it goes on in that layout, until something wants
    /// another one: then elements change places, through shuffles or shared memory. A load whose tile goes nowhere else
    /// reads memory in the layout, and a store of the tile writes in it: both are as wide as its `local` runs of neighbours.
    ///
    /// A layout is for as many threads as the tile block has, 32 to 1024, and so says how many warps it has; with
    /// [`Hints::num_warps`](crate::Hints) it has to agree. (Producer warps and a second ping-pong group are not counted.) All layouts of a kernel are for the same number:
    /// [`Modes::replicate`] makes one for more. Extents are powers of two. The cpu back end holds tiles as it does; through
    /// tileir it is an error, for Tile IR leaves layouts to its compiler.
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
    /// A layout of another shape, for another number of threads, or of extents that are no powers of two is an error of
    /// the launch, at this line.
    #[track_caller]
    #[must_use]
    pub fn with_layout(self, layout: impl TileLayout) -> Tile<T, R> {
        let (place, tile) = (here(), self.raw());
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
