//! Clusters: tile blocks that run at the same time and exchange tiles.

use crate::dtype::DType;
use crate::element::{Element, Number};
use crate::ir::op_table::Effect;
use crate::ir::{CLUSTER_SIZES, Opcode, Type};
use crate::ops::control::grid::{bid, num_blocks};
use crate::ops::create::construct::scalar;
use crate::ops::debug::require::require;
use crate::ops::support::operand::Operand;
use crate::sealed::Sealed;
use crate::tile::{Handle, Place, Scalar, Tile, Trace, ValueHandle, caller_location, record, with_location};

/// A cluster: adjacent tile blocks along grid axis 0 that run at the same time and exchange tiles
/// through distributed shared memory. [`cluster`] creates it.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// /// The softmax of each row. Each of four tile blocks holds a quarter of the row.
/// fn softmax(x: Array<f32, 2>, y: ArrayMut<f32, 2>, part: usize) {
///     let cluster = ct::cluster(4);
///     let at = (cluster.id(), cluster.rank());
///     let x = x.load(at, [1, part]);
///     let largest = cluster.reduce_max(x.reduce_max(1));
///     let weights = (x - largest).exp();
///     let sum = cluster.sum(weights.sum(1));
///     y.store(at, weights / sum);
/// }
///
/// let device = ct::Device::cpu();
/// let (x, mut y) = (device.full([3, 32], 1.5f32)?, device.zeros([3, 32])?);
/// ct::launch(softmax, 3 * 4, (&x, &mut y, Constant(8)))?;
/// assert_eq!(y.to_vec()?, [1.0 / 32.0; 96]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cluster {
    size: usize,
}

/// Tiles that a [`Cluster`] exchanges: those with 1 to 5 axes.
///
/// This trait is sealed.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn next<X: ct::ops::ClusterTile>(cluster: ct::Cluster, tile: X) -> X {
///     cluster.peer(tile, cluster.rank() + 1)
/// }
/// fn kernel(y: ArrayMut<i32, 1>) {
///     let cluster = ct::cluster(2);
///     y.store(ct::bid(0), next(cluster, ct::full([1], ct::bid(0))));
/// }
///
/// let mut y = ct::Device::cpu().zeros([4])?;
/// ct::launch(kernel, 4, (&mut y,))?;
/// assert_eq!(y.to_vec()?, [1, 0, 3, 2]);
/// # Ok::<(), ct::Error>(())
/// ```
pub trait ClusterTile: Sealed + Sized {
    /// The tile with one more axis, the first one.
    type Gathered;
    #[doc(hidden)]
    #[track_caller]
    fn gathered(self, cluster: Cluster) -> Self::Gathered;
    #[doc(hidden)]
    #[track_caller]
    fn of_peer(self, cluster: Cluster, rank: Scalar<i32>) -> Self;
}

/// Tiles that a [`Cluster`] combines: those of numbers with 1 to 5 axes.
///
/// This trait is sealed.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn total<X: ct::ops::ClusterReduce>(cluster: ct::Cluster, part: X) -> X {
///     cluster.sum(part)
/// }
/// fn kernel(y: ArrayMut<i32, 1>) {
///     let cluster = ct::cluster(2);
///     y.store(ct::bid(0), total(cluster, ct::full([1], ct::bid(0) + 1)));
/// }
///
/// let mut y = ct::Device::cpu().zeros([4])?;
/// ct::launch(kernel, 4, (&mut y,))?;
/// assert_eq!(y.to_vec()?, [3, 3, 7, 7]);
/// # Ok::<(), ct::Error>(())
/// ```
pub trait ClusterReduce: ClusterTile {
    #[doc(hidden)]
    #[track_caller]
    fn summed(self, cluster: Cluster) -> Self;
    #[doc(hidden)]
    #[track_caller]
    fn largest(self, cluster: Cluster) -> Self;
    #[doc(hidden)]
    #[track_caller]
    fn smallest(self, cluster: Cluster) -> Self;
}

/// Returns the cluster of `size` tile blocks that this tile block belongs to. The size is 2, 4, 8
/// or 16.
///
/// The first `size` tile blocks along grid axis 0 are the first cluster, the next `size` tile
/// blocks the second one. The extent of the grid along axis 0 must be a multiple of the size; the
/// launch checks it. All clusters of a kernel have one size.
///
/// Clusters need sm_90 or later on the ptx back end. A size of 16 needs a GPU that permits it, such
/// as an H100. The tileir back end has no clusters. On the cpu back end, a thread for each tile
/// block simulates them.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn ranks(y: ArrayMut<i32, 1>) {
///     let cluster = ct::cluster(2);
///     y.store_scalar(ct::bid(0), cluster.id() * 10 + cluster.rank());
/// }
///
/// let mut y = ct::Device::cpu().zeros([6])?;
/// ct::launch(ranks, 6, (&mut y,))?;
/// assert_eq!(y.to_vec()?, [0, 1, 10, 11, 20, 21]);
/// assert!(ct::launch(ranks, 5, (&mut y,)).unwrap_err().to_string().contains("5 tile blocks"));
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
#[must_use]
pub fn cluster(size: usize) -> Cluster {
    let place = caller_location();
    if !CLUSTER_SIZES.contains(&(size as i64)) {
        record(|t| t.report(place, format!("a cluster of {size} tile blocks"), &["the size is 2, 4, 8 or 16"]));
        return Cluster { size: 2 };
    }
    with_location(place, || {
        let blocks = num_blocks(0);
        require(
            (blocks % size).eq(0),
            format_args!("{} tile blocks along grid axis 0, and clusters of {}", blocks, size),
        );
    });
    Cluster { size }
}

impl Cluster {
    /// Returns the number of tile blocks of the cluster.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn kernel(y: ArrayMut<i32, 1>) {
    ///     let cluster = ct::cluster(4);
    ///     y.store_scalar(ct::bid(0), cluster.size() as i32);
    /// }
    ///
    /// let mut y = ct::Device::cpu().zeros([4])?;
    /// ct::launch(kernel, 4, (&mut y,))?;
    /// assert_eq!(y.to_vec()?, [4; 4]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn size(self) -> usize {
        self.size
    }

    /// Returns the rank of this tile block in the cluster, from 0 to `size - 1`.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn kernel(y: ArrayMut<i32, 1>) {
    ///     let cluster = ct::cluster(2);
    ///     y.store_scalar(ct::bid(0), cluster.rank());
    /// }
    ///
    /// let mut y = ct::Device::cpu().zeros([4])?;
    /// ct::launch(kernel, 4, (&mut y,))?;
    /// assert_eq!(y.to_vec()?, [0, 1, 0, 1]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn rank(self) -> Scalar<i32> {
        with_location(caller_location(), || bid(0) % self.size)
    }

    /// Returns the index of the cluster along grid axis 0.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn kernel(y: ArrayMut<i32, 1>) {
    ///     let cluster = ct::cluster(2);
    ///     y.store_scalar(ct::bid(0), cluster.id());
    /// }
    ///
    /// let mut y = ct::Device::cpu().zeros([4])?;
    /// ct::launch(kernel, 4, (&mut y,))?;
    /// assert_eq!(y.to_vec()?, [0, 0, 1, 1]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn id(self) -> Scalar<i32> {
        with_location(caller_location(), || bid(0) / self.size)
    }

    /// Gathers the tiles of all tile blocks of the cluster along a new first axis, in the order of
    /// their ranks. All tile blocks have the same result.
    ///
    /// All tile blocks of the cluster execute it, equally often: it is an error in a branch or
    /// loop, or after a [`return_if`](crate::return_if), whose condition may differ within the
    /// cluster. It does not order accesses of memory.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// /// Each tile block adds the tile of its neighbour.
    /// fn neighbours(x: Array<i32, 1>, y: ArrayMut<i32, 2>) {
    ///     let cluster = ct::cluster(2);
    ///     let all = cluster.all_gather(x.load(ct::bid(0), [2])); // [2, 2]
    ///     y.store((ct::bid(0), 0), all.reshape([1, 4]));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let (x, mut y) = (device.array(&[1, 2, 3, 4], [4])?, device.zeros([2, 4])?);
    /// ct::launch(neighbours, 2, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [1, 2, 3, 4, 1, 2, 3, 4]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn all_gather<X: ClusterTile>(self, tile: X) -> X::Gathered {
        tile.gathered(self)
    }

    /// Returns the tile of the tile block with this rank. Ranks outside of the cluster are taken
    /// modulo its size, so `cluster.peer(x, cluster.rank() + 1)` is the tile of the next neighbour.
    /// The conditions are those of [`Cluster::all_gather`].
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn rotated(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
    ///     let cluster = ct::cluster(4);
    ///     let x = x.load(ct::bid(0), [2]);
    ///     y.store(ct::bid(0), cluster.peer(x, cluster.rank() + 1));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let (x, mut y) = (device.array(&[0, 1, 2, 3, 4, 5, 6, 7], [8])?, device.zeros([8])?);
    /// ct::launch(rotated, 4, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [2, 3, 4, 5, 6, 7, 0, 1]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn peer<X: ClusterTile>(self, tile: X, rank: impl Operand<Scalar<i32>>) -> X {
        let rank = with_location(caller_location(), || (scalar(0) + rank) & (self.size as i32 - 1));
        tile.of_peer(self, rank)
    }

    /// Returns the sum of the tiles of all tile blocks of the cluster, in the order of a tree over
    /// the ranks. The conditions are those of [`Cluster::all_gather`].
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn kernel(y: ArrayMut<i32, 1>) {
    ///     let cluster = ct::cluster(2);
    ///     y.store(ct::bid(0), cluster.sum(ct::full([1], ct::bid(0))));
    /// }
    ///
    /// let mut y = ct::Device::cpu().zeros([4])?;
    /// ct::launch(kernel, 4, (&mut y,))?;
    /// assert_eq!(y.to_vec()?, [1, 1, 5, 5]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn sum<X: ClusterReduce>(self, tile: X) -> X {
        tile.summed(self)
    }

    /// Returns the largest elements of the tiles of all tile blocks of the cluster. A NaN is
    /// ignored, as in [`Tile::reduce_max`]. The conditions are those of [`Cluster::all_gather`].
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn kernel(y: ArrayMut<i32, 1>) {
    ///     let cluster = ct::cluster(2);
    ///     y.store(ct::bid(0), cluster.reduce_max(ct::full([1], ct::bid(0))));
    /// }
    ///
    /// let mut y = ct::Device::cpu().zeros([4])?;
    /// ct::launch(kernel, 4, (&mut y,))?;
    /// assert_eq!(y.to_vec()?, [1, 1, 3, 3]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn reduce_max<X: ClusterReduce>(self, tile: X) -> X {
        tile.largest(self)
    }

    /// Returns the smallest elements of the tiles of all tile blocks of the cluster. A NaN is
    /// ignored, as in [`Tile::reduce_min`]. The conditions are those of [`Cluster::all_gather`].
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn kernel(y: ArrayMut<i32, 1>) {
    ///     let cluster = ct::cluster(2);
    ///     y.store(ct::bid(0), cluster.reduce_min(ct::full([1], ct::bid(0))));
    /// }
    ///
    /// let mut y = ct::Device::cpu().zeros([4])?;
    /// ct::launch(kernel, 4, (&mut y,))?;
    /// assert_eq!(y.to_vec()?, [0, 0, 2, 2]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn reduce_min<X: ClusterReduce>(self, tile: X) -> X {
        tile.smallest(self)
    }
}

impl Trace {
    fn cluster_all_gather(&mut self, place: Place, source: ValueHandle, dtype: DType, size: usize) -> ValueHandle {
        self.at(place);
        let mut shape = self.shape(source);
        shape.insert(0, size as i64);
        if !self.legal_shape(place, "all_gather", &shape) {
            return self.poison(Type::tile(dtype, vec![1; shape.len()]));
        }
        let ty = Type::tile(dtype, shape.as_slice());
        let Some(value) = self.check_usable(source, place) else { return self.poison(ty) };
        if !self.admits(place, Effect::Other, shape.len()) {
            return self.poison(ty);
        }
        let result = self.put(Opcode::ClusterAllGather, &[value], vec![], dtype, &shape);
        self.raw(result)
    }
}

macro_rules! cluster_tiles {
    ($($rank:literal $more:literal;)+) => {$(
        impl<T: Element> ClusterTile for Tile<T, $rank> {
            type Gathered = Tile<T, $more>;
            fn gathered(self, cluster: Cluster) -> Tile<T, $more> {
                let place = caller_location();
                Tile::from_raw(record(|t| t.cluster_all_gather(place, self.raw(), T::DTYPE, cluster.size)))
            }
            fn of_peer(self, cluster: Cluster, rank: Scalar<i32>) -> Self {
                with_location(caller_location(), || {
                    let all = self.gathered(cluster);
                    let mut shape = all.shape();
                    shape[0] = 1;
                    let mut index = [Scalar::<i32>::from(0); $more];
                    index[0] = rank;
                    all.extract(index, shape).squeeze(0)
                })
            }
        }
        impl<T: Number> ClusterReduce for Tile<T, $rank> {
            fn summed(self, cluster: Cluster) -> Self {
                with_location(caller_location(), || self.gathered(cluster).sum(0).squeeze(0))
            }
            fn largest(self, cluster: Cluster) -> Self {
                with_location(caller_location(), || self.gathered(cluster).reduce_max(0).squeeze(0))
            }
            fn smallest(self, cluster: Cluster) -> Self {
                with_location(caller_location(), || self.gathered(cluster).reduce_min(0).squeeze(0))
            }
        }
    )+};
}
cluster_tiles! {
    1 2;
    2 3;
    3 4;
    4 5;
    5 6;
}
