//! Grid of a launch: the numbers of tile blocks along three axes.

use crate::backend::tileir;
use crate::error::{Error, Result};
use crate::ir::MAX_GRID;
use crate::kernel::AnyArgs;
use crate::runtime::Backend;

/// Returns the maximum number of tile blocks along each axis for code of this back end.
fn limits(generator: Backend) -> [u32; 3] {
    match generator {
        Backend::Cpu | Backend::Ptx => MAX_GRID,
        Backend::TileIr => tileir::MAX_GRID,
    }
}

/// Numbers of tile blocks along the axes 0, 1 and 2. Omitted axes have one.
///
/// A grid is made from one to three integers: `8`, `[8, 4]`, `(m.div_ceil(128), 1, batches)`. The
/// limits are 2^31 - 1 along axis 0 and 65535 along the others; for the back end `tileir`, 2^24 - 1
/// along axis 0. A launch with an extent of 0 does nothing. It is an error if the launch has arrays
/// and all of them have elements.
///
/// ```
/// use cutlet::Grid;
/// assert_eq!(Grid::from(5), Grid::from([5usize, 1]));
/// assert_eq!(Grid::from((2u32, 3u32)), Grid::from([2, 3, 1]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid([i64; 3]);

impl Grid {
    /// Returns the numbers of tile blocks along the three axes.
    ///
    /// ```
    /// assert_eq!(cutlet::Grid::from([5, 2]).extents(), [5, 2, 1]);
    /// ```
    #[must_use]
    pub fn extents(self) -> [i64; 3] {
        self.0
    }

    /// Checks that an empty grid is plausible: an array of the launch has no elements, or the
    /// launch has no known arrays.
    ///
    /// # Errors
    /// [`Error::Argument`] at the caller's location. The usual cause is a quotient that was rounded
    /// down.
    #[cold]
    #[track_caller]
    pub(super) fn may_be_empty(self, args: &dyn AnyArgs) -> Result<()> {
        let (mut arrays, mut empty) = (0, false);
        args.memory(&mut |used| {
            arrays += 1;
            empty |= used.empty;
        });
        if empty || arrays == 0 {
            return Ok(());
        }
        Err(Error::argument(format!(
            "grid {:?} has no tile blocks, and no array of this launch is empty: nothing would run; `n.div_ceil(tile)` \
             counts the tiles of n elements, also the last one, which may be in part",
            self.0
        )))
    }

    /// Returns the checked grid for code of this back end; `None` if it has no tile blocks.
    #[inline]
    #[track_caller]
    pub(super) fn checked(self, generator: Backend) -> Result<Option<[u32; 3]>> {
        let fits = self.0.iter().zip(limits(generator)).all(|(&n, limit)| (0..=limit.into()).contains(&n));
        if !fits {
            return Err(self.refused(generator));
        }
        Ok(if self.0.contains(&0) { None } else { Some(self.0.map(|n| n as u32)) })
    }

    #[cold]
    #[track_caller]
    fn refused(self, generator: Backend) -> Error {
        let (limits, grid) = (limits(generator), self.0);
        if generator == Backend::TileIr && self.checked(Backend::Ptx).is_ok() {
            return Error::argument(format!(
                "grid {grid:?} is outside of the limits {limits:?} of the back end `tileir`: \
                 launch through `ptx` (see `Launch::backend`), or let a block do more than one tile"
            ));
        }
        Error::argument(format!(
            "grid {grid:?} is outside of the limits {limits:?}: put the largest number first, \
             or let a block do more than one tile"
        ))
    }
}

/// The grid of a launch: a [`Grid`], or one to three integers: `8`, `[8, 4]`, `(8, 4, 2)`.
///
/// Programs may implement this trait; a type that implements `Into<Grid>` has it.
///
/// ```
/// # use cutlet::doctest::*;
/// fn on_grid(grid: impl ct::IntoGrid) -> ct::Result<()> {
///     ct::launch(|| ct::assert!(ct::num_blocks(1).eq(4)), grid, ())
/// }
/// on_grid([8, 4])?;
/// on_grid(ct::Grid::from((2, 4, 1)))?;
/// # Ok::<(), ct::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a grid: a grid has one to three axes, of integers",
    label = "expected `n`, `[m, n]` or `[m, n, k]`",
    note = "fold further axes into one, `[m, n, batches * heads]`, and take them apart in the kernel: `ct::bid(2) / heads`, \
            `ct::bid(2) % heads`",
    note = "the number of tiles is `n.div_ceil(tile)`; integers are i32, u32, i64, u64 or usize; \
            see docs/common_errors.md"
)]
pub trait IntoGrid {
    /// Returns the grid.
    fn into_grid(self) -> Grid;
}

#[diagnostic::do_not_recommend]
impl<G: Into<Grid>> IntoGrid for G {
    fn into_grid(self) -> Grid {
        self.into()
    }
}

macro_rules! grid_from {
    ($($int:ident)+) => {$(
        impl From<$int> for Grid {
            fn from(x: $int) -> Grid {
                Grid::from([x])
            }
        }

        impl From<[$int; 1]> for Grid {
            fn from([x]: [$int; 1]) -> Grid {
                Grid::from([x, 1, 1])
            }
        }

        impl From<[$int; 2]> for Grid {
            fn from([x, y]: [$int; 2]) -> Grid {
                Grid::from([x, y, 1])
            }
        }

        impl From<[$int; 3]> for Grid {
            fn from(extents: [$int; 3]) -> Grid {
                Grid(extents.map(|n| i64::try_from(n).unwrap_or(i64::MAX)))
            }
        }

        impl From<($int,)> for Grid {
            fn from((x,): ($int,)) -> Grid {
                Grid::from([x])
            }
        }

        impl From<($int, $int)> for Grid {
            fn from((x, y): ($int, $int)) -> Grid {
                Grid::from([x, y])
            }
        }

        impl From<($int, $int, $int)> for Grid {
            fn from((x, y, z): ($int, $int, $int)) -> Grid {
                Grid::from([x, y, z])
            }
        }
    )+};
}
grid_from!(i32 u32 i64 u64 usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_have_limits() {
        for generator in [Backend::Cpu, Backend::Ptx, Backend::TileIr] {
            let checked = |grid: Grid| grid.checked(generator);
            assert_eq!(checked([3, 2].into()).unwrap(), Some([3, 2, 1]));
            assert_eq!(checked((7, 0, 9).into()).unwrap(), None);
            assert_eq!(checked(((1 << 24) - 1, 65_535, 65_535).into()).unwrap(), Some([(1 << 24) - 1, 65_535, 65_535]));
            assert!(checked((-1).into()).is_err());
            assert!(checked([1, 65_536].into()).is_err());
            assert!(checked(usize::MAX.into()).is_err());
        }
    }

    #[test]
    fn tile_ir_runs_smaller_grids() {
        for (grid, fits) in [((1 << 24) - 1, true), (1 << 24, false), (i32::MAX, false)] {
            let grid = Grid::from(grid);
            assert!(grid.checked(Backend::Ptx).is_ok() && grid.checked(Backend::Cpu).is_ok());
            assert_eq!(grid.checked(Backend::TileIr).is_ok(), fits);
        }
        let line = line!() + 1;
        let error = Grid::from(1 << 24).checked(Backend::TileIr).unwrap_err().to_string();
        for part in ["16777216", "16777215", "Launch::backend", &format!("grid.rs:{line}:")] {
            assert!(error.contains(part), "{error}");
        }
    }
}
