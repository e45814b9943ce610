//! Text of a layout: a grid of `thread: register` cells.

use crate::util::collect::CollectVec as _;
use std::fmt;

use super::linear_layout::Layout;
use super::modes::{Modes, SpatialMode, saturating_product};

/// Maximum number of elements, and of pairs of thread and register, of a layout that is printed
/// with cells.
const MAX_CELLS: i64 = 1 << 20;

/// For each element the pairs of thread and register that contain it. Empty if there are more than
/// [`MAX_CELLS`].
pub(super) type Holders = Vec<Vec<(i64, i64)>>;

/// Collects the pairs of each element from all pairs with their coordinates.
pub(super) fn holders(shape: &[i64], cells: impl Iterator<Item = (Vec<i64>, i64, i64)>) -> Holders {
    let mut holders = vec![Vec::new(); shape.iter().product::<i64>() as usize];
    for (coordinates, thread, register) in cells {
        let flat = coordinates.iter().zip(shape).fold(0, |flat, (c, extent)| flat * extent + c);
        holders[flat as usize].push((thread, register));
    }
    holders
}

pub(super) fn holders_of_modes(modes: &Modes) -> Holders {
    let places = saturating_product([modes.num_threads(), modes.num_registers()]);
    if places.max(saturating_product(modes.shape().iter().copied())) > MAX_CELLS {
        return Vec::new();
    }
    let places =
        (0..modes.num_threads()).flat_map(|thread| (0..modes.num_registers()).map(move |register| (thread, register)));
    holders(modes.shape(), places.map(|(thread, register)| (modes.coordinates(thread, register), thread, register)))
}

pub(super) fn holders_of_layout(layout: &Layout) -> Holders {
    let registers = layout.num_registers();
    let places = saturating_product([registers as i64, 32, layout.num_warps() as i64]);
    if places.max(layout.num_elements() as i64) > MAX_CELLS {
        return Vec::new();
    }
    let places = (0..32 * layout.num_warps()).flat_map(|thread| (0..registers).map(move |register| (thread, register)));
    let cells = places.map(|(thread, register)| {
        let flat = layout.element(register, thread % 32, thread / 32);
        (layout.coordinates(flat), thread as i64, register as i64)
    });
    holders(layout.shape(), cells)
}

/// Returns the rows and columns of the matrices of a tile.
pub(super) fn matrix(shape: &[i64]) -> [usize; 2] {
    let extent = |from_last: usize| shape.iter().rev().nth(from_last).map_or(1, |&n| n as usize);
    [extent(1), extent(0)]
}

/// Prints one line of cells per row of the last axis, with an empty line between the matrices of
/// higher ranks.
fn grid(f: &mut fmt::Formatter<'_>, shape: &[i64], text: &[String]) -> fmt::Result {
    if text.is_empty() {
        return writeln!(f, "(more than {MAX_CELLS} cells)");
    }
    let width = text.iter().map(String::len).max().unwrap_or(0);
    let [rows, columns] = matrix(shape);
    for (i, row) in text.chunks(columns).enumerate() {
        if i > 0 && i % rows == 0 {
            writeln!(f)?;
        }
        let row: Vec<String> = row.iter().map(|cell| format!("{cell:>width$}")).collect_vec();
        writeln!(f, "{}", row.join("  "))?;
    }
    Ok(())
}

/// Returns the first pair of an element, and `+` with the number of further threads. `-` if there
/// is no pair.
pub(super) fn brief(places: &[(i64, i64)]) -> String {
    let Some((thread, register)) = places.first() else { return "-".to_string() };
    match places.iter().filter(|(other, _)| other != thread).count() {
        0 => format!("{thread}: {register}"),
        more => format!("{thread}: {register} +{more}"),
    }
}

/// Returns all pairs of an element: `[0, 4, 8]: 0` if all have the same register, otherwise a list.
/// `-` if there is no pair.
pub(super) fn full(places: &[(i64, i64)]) -> String {
    match places {
        [] => "-".to_string(),
        [(thread, register)] => format!("{thread}: {register}"),
        [(_, register), ..] if places.iter().all(|(_, other)| other == register) => {
            let threads: Vec<i64> = places.iter().map(|(thread, _)| *thread).collect_vec();
            format!("{threads:?}: {register}")
        }
        _ => {
            let pairs: Vec<String> =
                places.iter().map(|(thread, register)| format!("{thread}: {register}")).collect_vec();
            format!("[{}]", pairs.join(", "))
        }
    }
}

/// Prints the modes that define the layout, with replicas as negative numbers, and the grid with
/// all threads of each element.
impl fmt::Display for Modes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let least = self.canonical();
        let spatial = least.spatial_modes().iter().map(|mode| match *mode {
            SpatialMode::Mode(number) => number as i64,
            SpatialMode::Replicas(count) => -count,
        });
        let (spatial, local) = (spatial.collect_vec(), least.local_modes());
        write!(f, "shape {:?}, mode shape {:?}, ", self.shape(), least.mode_shape())?;
        writeln!(f, "spatial modes {spatial:?}, local modes {local:?}")?;
        let cells: Vec<String> = holders_of_modes(self).iter().map(|places| full(places)).collect_vec();
        grid(f, self.shape(), &cells)
    }
}

/// Prints the grid. A replicated element shows the first thread and the number of the others, or
/// all of them in the alternate form `{:#}`.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (registers, warps) = (self.num_registers(), self.num_warps());
        writeln!(f, "shape {:?}, {registers} registers, 32 lanes, {warps} warps", self.shape())?;
        let cell = if f.alternate() { full } else { brief };
        let cells: Vec<String> = holders_of_layout(self).iter().map(|places| cell(places)).collect_vec();
        grid(f, self.shape(), &cells)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Layout, column_local, column_spatial, local, spatial};

    #[test]
    fn pictures() {
        let layout = (local([2, 1]) * column_spatial([2, 2])).to_layout(1).unwrap();
        let text = "shape [4, 2], 2 registers, 32 lanes, 1 warps\n\
                    0: 0 +7  2: 0 +7\n1: 0 +7  3: 0 +7\n0: 1 +7  2: 1 +7\n1: 1 +7  3: 1 +7\n";
        assert_eq!(layout.to_string(), text);
        assert!(format!("{layout:#}").contains(" [0, 4, 8, 12, 16, 20, 24, 28]: 0  "));
        let row = "shape [3], mode shape [3], spatial modes [0], local modes []\n0: 0  1: 0  2: 0\n";
        assert_eq!(spatial([3]).to_string(), row);
        // Register bit 1 has basis 0: one thread has an element twice.
        let twice = Layout::new([2], vec![1, 0], vec![0; 5], vec![]);
        assert!(format!("{twice:#}").contains("[0: 0, 0: 2, 1: 0, 1: 2, "));
    }

    #[test]
    fn attributes() {
        let first_line = |layout: super::Modes| layout.to_string().lines().next().unwrap_or("").to_string();
        for (layout, want) in [
            (local([3, 4]), "shape [3, 4], mode shape [3, 4], spatial modes [], local modes [0, 1]"),
            (
                local([3, 4]) * spatial([2, 3]),
                "shape [6, 12], mode shape [3, 2, 4, 3], spatial modes [1, 3], local modes [0, 2]",
            ),
            (
                spatial([2, 3]) * local([3, 4]),
                "shape [6, 12], mode shape [2, 3, 3, 4], spatial modes [0, 2], local modes [1, 3]",
            ),
            (
                local([2, 1]) * spatial([8, 4]) * local([1, 2]),
                "shape [16, 8], mode shape [2, 8, 4, 2], spatial modes [1, 2], local modes [0, 3]",
            ),
            (column_local([2, 3]), "shape [2, 3], mode shape [2, 3], spatial modes [], local modes [1, 0]"),
            (column_spatial([2, 3]), "shape [2, 3], mode shape [2, 3], spatial modes [1, 0], local modes []"),
        ] {
            assert_eq!(first_line(layout), want);
        }
    }
}
