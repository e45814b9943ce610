//! Configurations of matrix products: tiles, and the assignment of tiles and terms to tile blocks.

use cutlet as ct;
use cutlet::{Hints, Target};

use super::precision::Precision;

/// Assignment of tiles of the result, or of their terms, to tile blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Share {
    /// A tile for each tile block.
    Tiles,
    /// Every n-th tile, where n is the number of tile blocks.
    Persistent,
    /// Equal parts of the terms of each tile (split-K). The parts are added in their order.
    Split(usize),
    /// A tile for each tile block, which adds the same parts in the same order as [`Share::Split`].
    Parts(usize),
    /// Whole tiles as long as each tile block has one, then equal shares of terms (Stream-K).
    /// Shares are added in their order.
    Terms,
}

/// A configuration of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Configuration {
    /// Extents of a tile: rows, columns, terms of a step.
    pub tile: [usize; 3],
    /// Assignment of the work to tile blocks.
    pub share: Share,
    /// The product of the transposes: the right operand is the left one of tensor cores.
    pub turned: bool,
    /// Warps of a tile block; 0: the compiler selects them.
    pub warps: u32,
    /// Tile blocks of a cluster; 0 or 1: no clusters.
    pub cluster: u32,
    /// Tile blocks that should fit on a multiprocessor; 0: the compiler selects their number.
    pub occupancy: u32,
}

impl Configuration {
    /// Returns a configuration of tiles, one for each tile block.
    #[must_use]
    pub const fn new(tile: [usize; 3]) -> Configuration {
        Configuration { tile, share: Share::Tiles, turned: false, warps: 0, cluster: 0, occupancy: 0 }
    }

    /// Returns this configuration with another assignment.
    #[must_use]
    pub const fn share(self, share: Share) -> Configuration {
        Configuration { share, ..self }
    }

    pub(crate) const fn turned(self) -> Configuration {
        Configuration { turned: true, ..self }
    }

    pub(crate) const fn warps(self, warps: u32) -> Configuration {
        Configuration { warps, ..self }
    }

    pub(crate) const fn cluster(self, cluster: u32) -> Configuration {
        Configuration { cluster, ..self }
    }

    pub(crate) const fn occupancy(self, occupancy: u32) -> Configuration {
        Configuration { occupancy, ..self }
    }

    /// Returns the hints of the launch.
    pub(crate) fn hints(self) -> Hints {
        let mut hints = Hints::new();
        if self.warps > 0 {
            hints = hints.num_warps(self.warps);
        }
        if self.cluster > 1 {
            hints = hints.num_ctas(self.cluster);
        }
        if self.occupancy > 0 {
            hints = hints.occupancy(self.occupancy);
        }
        hints
    }

    /// Returns the number of tiles of the result.
    pub(crate) fn tiles(self, [m, n]: [usize; 2]) -> usize {
        m.div_ceil(self.tile[0]) * n.div_ceil(self.tile[1])
    }
}

/// The properties of a product that its configuration depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Rows, columns, terms.
    pub extents: [usize; 3],
    /// Matrices of a batch.
    pub batches: usize,
    /// Bytes of an operand in tensor cores.
    pub size: usize,
    /// Tensor cores multiply.
    pub on_tensor_cores: bool,
    /// The left and the right operand are those of tensor cores, without a conversion in registers.
    pub is_direct: [bool; 2],
    /// Bits of a packed weight in memory.
    pub bits: u32,
    /// Groups of rows: `batches` of them, and rows of a group on average.
    pub is_grouped: bool,
    /// There is no epilogue.
    pub is_plain: bool,
    /// Columns of which a tile has a multiple.
    pub width: usize,
}

impl Shape {
    /// Returns true if the copy of the operands takes longer than the multiplication, which the
    /// cost model does not know.
    pub(crate) fn is_bound_by_memory(&self) -> bool {
        let [m, n, _] = self.extents;
        m.min(n) <= 64
    }
}

/// Returns the type of operands in tensor cores: its bytes, and false if none multiplies it.
pub(crate) fn in_tensor_cores(name: &str, size: usize, precision: Precision) -> (usize, bool) {
    (size, name != "f32" || precision == Precision::Fast)
}

/// Returns the configurations to choose from, the default one first.
pub(crate) fn space(shape: Shape, target: Option<Target>, multiprocessors: usize) -> Vec<Configuration> {
    let Some(target) = target else {
        // The interpreter: small tiles for small arrays.
        let share = if shape.is_grouped { Share::Persistent } else { Share::Tiles };
        return vec![Configuration::new([32, 32usize.max(shape.width), 32]).share(share)];
    };
    if !shape.is_direct[1] && shape.extents[0] <= 64 && !shape.is_grouped {
        return of_packed(shape, multiprocessors);
    }
    let mut all = match (shape.on_tensor_cores, shape.size) {
        (false, _) => of_threads(shape),
        (true, 8) => of_doubles(shape),
        (true, _) => of_tensor_cores(shape, target),
    };
    all.retain(|configuration| configuration.tile[1].is_multiple_of(shape.width));
    if all.is_empty() {
        all.push(Configuration::new([64, shape.width.max(128), 128 / shape.size]));
    }
    if shape.is_grouped {
        let all = all.into_iter().filter(|one| one.cluster <= 1).map(|one| one.share(Share::Persistent));
        return all.take(4).collect();
    }
    let shared: Vec<Configuration> = all.iter().flat_map(|&one| shared(one, shape, multiprocessors)).collect();
    // Few tiles leave most multiprocessors without work: parts are the default then.
    match shared.first() {
        Some(split) if matches!(split.share, Share::Split(_)) && (shape.is_bound_by_memory() || shared.len() > 1) => {
            shared.into_iter().chain(all).take(8).collect()
        }
        _ => all.into_iter().chain(shared).take(8).collect(),
    }
}

/// Rows of the product whose default configuration all products in a call of `batch_invariant`
/// have.
const INVARIANT_ROWS: usize = 128;

/// Returns the configuration whose tiles and parts of sums are independent of the rows: that of
/// [`INVARIANT_ROWS`] rows. Many tiles have a tile block each, which computes all parts.
pub(crate) fn invariant(
    shape: Shape,
    target: Option<Target>,
    rows: usize,
    is_batched: bool,
    multiprocessors: usize,
) -> Option<Configuration> {
    let [_, n, k] = shape.extents;
    // Several matrices have no parts of sums.
    let batches = if is_batched { 2 } else { shape.batches };
    let canonical = Shape { extents: [INVARIANT_ROWS, n, k], batches, ..shape };
    let one = space(canonical, target, multiprocessors).first().copied()?;
    match one.share {
        Share::Split(parts) if 2 * one.tiles([rows, n]) * shape.batches > multiprocessors => {
            Some(one.share(Share::Parts(parts)))
        }
        _ => Some(one),
    }
}

/// f32 by multiply-add of threads.
fn of_threads(shape: Shape) -> Vec<Configuration> {
    let [m, n, _] = shape.extents;
    match m {
        0..=32 => vec![Configuration::new([32, 64, 32]), Configuration::new([32, 128, 32])],
        // 2983 us for 4096 x 4096 x 4096 on an H100, 3251 us by tiles of 64 x 64. The cost model
        // does not see the difference.
        _ if m >= 1024 && n >= 1024 => vec![Configuration::new([128, 64, 32]).warps(4)],
        _ => {
            vec![Configuration::new([64, 64, 32]), Configuration::new([128, 64, 16]), Configuration::new([64, 128, 16])]
        }
    }
}

/// f64.
fn of_doubles(shape: Shape) -> Vec<Configuration> {
    match shape.extents[0] {
        0..=32 => vec![Configuration::new([32, 64, 16])],
        _ => {
            vec![Configuration::new([64, 64, 16]), Configuration::new([128, 64, 16]), Configuration::new([64, 128, 16])]
        }
    }
}

/// Operands of up to 4 bytes.
fn of_tensor_cores(shape: Shape, target: Target) -> Vec<Configuration> {
    let [m, n, _] = shape.extents;
    // 128 bytes of a row: the widest pattern of shared memory.
    let depth = 128 / shape.size;
    let tile = |rows: usize, columns: usize| Configuration::new([rows, columns, depth]);
    let persistent = |rows: usize, columns: usize| tile(rows, columns).share(Share::Persistent);
    if !target.accelerated || target.arch < 90 {
        let half = |rows: usize, columns: usize| Configuration::new([rows, columns, depth / 2]);
        return match m {
            0..=16 => vec![tile(16, 128), tile(16, 64)],
            17..=32 => vec![tile(32, 128), tile(32, 64)],
            33..=64 => vec![tile(64, 128), tile(64, 64)],
            _ => vec![half(128, 128), half(128, 256), half(64, 128)],
        };
    }
    match m {
        // The columns of the result are the 64 rows of an instruction.
        0..=64 if shape.size <= 2 => {
            let rows = m.next_power_of_two().max(16);
            let deep = Configuration::new([rows, 64, 2 * depth]);
            vec![deep.turned(), tile(rows, 128).turned(), tile(64, 128)]
        }
        0..=64 => vec![tile(64, 128), tile(64, 64), tile(64, 256)],
        _ if !shape.is_direct[1] && m <= 128 => vec![tile(128, 128).turned(), tile(128, 64).turned()],
        65..=128 => vec![tile(128, 128), tile(128, 64), tile(64, 128)],
        _ if n <= 64 => vec![tile(128, 64), tile(256, 64)],
        _ if n <= 128 => vec![persistent(128, 128), persistent(256, 128)],
        _ => {
            // A converted operand is the left one of tensor cores, and each weight is converted
            // once for all rows of a tile.
            if !shape.is_direct[1] {
                return vec![tile(256, 128).turned(), tile(128, 128).turned()];
            }
            let mut all = vec![persistent(128, 256)];
            if shape.is_direct == [true, true] {
                all.push(persistent(256, 128).cluster(2));
            }
            // Two warp groups with tiles of their own: one runs its epilogue and stores while the
            // other multiplies.
            if shape.is_direct == [true, true] && m * n >= 2048 * 2048 {
                all.push(persistent(128, 192).warps(4));
                if shape.is_plain && shape.extents[2] <= 2048 {
                    all.push(persistent(128, 128).warps(4));
                }
            }
            all.push(persistent(128, 128));
            if shape.is_plain {
                all.push(persistent(128, 192));
            }
            all
        }
    }
}

/// Few rows and packed weights, which memory bounds: some tile blocks of a multiprocessor copy and
/// convert at the same time.
fn of_packed(shape: Shape, multiprocessors: usize) -> Vec<Configuration> {
    let [m, n, k] = shape.extents;
    let rows = m.next_power_of_two().max(16);
    let mut all: Vec<Configuration> = Vec::new();
    // With more tile blocks, the activations have one stage: each step would wait for them.
    let most = 4 - u32::from(rows > 32) - u32::from(shape.bits > 4);
    for ([columns, depth], occupancy, of_each) in [
        ([64, 128], most, 4),
        ([64, 128], most, 8),
        ([64, 128], 2, 2),
        ([64, 128], 0, 4),
        ([128, 64], 4, 4),
        ([128, 64], 4, 8),
        ([128, 128], 2, 2),
        ([128, 128], 2, 4),
        ([64, 64], 4, 4),
        ([64, 64], 6, 6),
    ] {
        let columns = columns.max(shape.width);
        let tiles = n.div_ceil(columns);
        let parts = (of_each * multiprocessors / tiles).min(k.div_ceil(depth) / 2).clamp(1, 32);
        let one = Configuration::new([rows, columns, depth]).turned().occupancy(occupancy);
        let one = if parts > 1 { one.share(Share::Split(parts)) } else { one };
        if !all.contains(&one) {
            all.push(one);
        }
    }
    all
}

/// Returns forms of a configuration in which tile blocks share the terms of tiles.
fn shared(one: Configuration, shape: Shape, multiprocessors: usize) -> Vec<Configuration> {
    let [m, n, k] = shape.extents;
    let (tiles, steps) = (one.tiles([m, n]) * shape.batches, k.div_ceil(one.tile[2]));
    if shape.batches > 1 || tiles == 0 || one.cluster > 1 {
        return Vec::new();
    }
    // A part of four steps has some copies in flight.
    let parts = (multiprocessors / tiles).min(steps / 4).min(16);
    let mut all = Vec::new();
    if parts >= 2 {
        all.push(one.share(Share::Split(parts)));
    }
    let rest = tiles % multiprocessors;
    if tiles > multiprocessors
        && tiles < 4 * multiprocessors
        && rest > 0
        && rest < multiprocessors * 3 / 4
        && steps >= 16
    {
        all.push(one.share(Share::Terms));
    }
    all
}

/// Returns the grid of a configuration. `rows`: those of a matrix, or of all groups.
pub(crate) fn blocks(one: Configuration, shape: Shape, rows: usize, multiprocessors: usize) -> usize {
    let [_, n, k] = shape.extents;
    let tiles = match shape.is_grouped {
        // Each group may have a tile that is not full.
        true => (rows / one.tile[0] + shape.batches) * n.div_ceil(one.tile[1]),
        false => one.tiles([rows, n]) * shape.batches,
    };
    match one.share {
        Share::Tiles | Share::Parts(_) => tiles,
        // Pairs of tile blocks need an even grid.
        Share::Persistent if one.cluster > 1 => tiles.next_multiple_of(2).min(multiprocessors / 2 * 2),
        Share::Persistent => tiles.min(multiprocessors),
        Share::Split(parts) => tiles * parts,
        Share::Terms => multiprocessors.min(tiles * k.div_ceil(one.tile[2]).max(1)),
    }
}

/// Returns a launch of a configuration.
pub(crate) fn launch(one: Configuration, grid: impl Into<ct::Grid>, stream: &ct::Stream) -> ct::Launch<'_> {
    ct::Launch::new(grid).hints(one.hints()).stream(stream)
}
