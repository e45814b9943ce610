//! The picture of a layout: a grid of `thread: slot` cells.

use std::fmt;

use super::distributed::Layout;

/// Prints one row of cells per row of the last axis, a blank line between the matrices of higher ranks;
/// an element held by several threads shows the first one and `+` with the number of the others, an
/// element held by none is `-`.
pub(super) fn grid(
    f: &mut fmt::Formatter<'_>,
    shape: &[i64],
    cells: impl Iterator<Item = (Vec<i64>, i64, i64)>,
) -> fmt::Result {
    let count = shape.iter().product::<i64>() as usize;
    let mut holders: Vec<Vec<(i64, i64)>> = vec![Vec::new(); count];
    for (coordinates, thread, slot) in cells {
        let flat = coordinates.iter().zip(shape).fold(0, |flat, (c, extent)| flat * extent + c);
        holders[flat as usize].push((thread, slot));
    }
    let text: Vec<String> = holders.iter().map(|places| cell(places)).collect();
    let width = text.iter().map(String::len).max().unwrap_or(0);
    let columns = shape.last().map_or(1, |&n| n as usize);
    let rows = shape.iter().rev().nth(1).map_or(1, |&n| n as usize);
    for (i, row) in text.chunks(columns).enumerate() {
        if i > 0 && i % rows == 0 {
            writeln!(f)?;
        }
        let row: Vec<String> = row.iter().map(|cell| format!("{cell:>width$}")).collect();
        writeln!(f, "{}", row.join("  "))?;
    }
    Ok(())
}

fn cell(places: &[(i64, i64)]) -> String {
    let Some((thread, slot)) = places.first() else { return "-".to_string() };
    match places.iter().filter(|(other, _)| other != thread).count() {
        0 => format!("{thread}: {slot}"),
        more => format!("{thread}: {slot} +{more}"),
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (registers, warps) = (self.num_registers(), self.num_warps());
        writeln!(f, "shape {:?}, {registers} registers, 32 lanes, {warps} warps", self.shape())?;
        let places = (0..32 * warps).flat_map(|thread| (0..registers).map(move |register| (thread, register)));
        let cells = places.map(|(thread, register)| {
            let flat = self.element(register, thread % 32, thread / 32);
            (self.coordinates(flat), thread as i64, register as i64)
        });
        grid(f, self.shape(), cells)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{column_spatial, local, spatial};

    #[test]
    fn pictures() {
        let layout = (local([2, 1]) * column_spatial([2, 2])).to_layout(1).unwrap();
        let text = "shape [4, 2], 2 registers, 32 lanes, 1 warps\n\
                    0: 0 +7  2: 0 +7\n1: 0 +7  3: 0 +7\n0: 1 +7  2: 1 +7\n1: 1 +7  3: 1 +7\n";
        assert_eq!(layout.to_string(), text);
        assert_eq!(spatial([3]).to_string(), "shape [3], 3 threads, 1 slots\n0: 0  1: 0  2: 0\n");
    }
}
