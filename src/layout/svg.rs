//! SVG picture of a layout: one rectangle per element, colored by its first thread.

use crate::util::collect::CollectVec as _;
use std::fmt::Write;

use super::linear_layout::Layout;
use super::modes::Modes;
use super::print::{Holders, brief, full, holders_of_layout, holders_of_modes, matrix};

/// Height of a cell and of the gap between matrices, and width of a letter, in pixels.
const HEIGHT: usize = 24;
const LETTER: usize = 8;

impl Modes {
    /// Returns the grid of [`Display`](std::fmt::Display) as the text of an SVG file. Each element
    /// has a cell with its thread and register, colored by thread. The tooltip shows all pairs. A
    /// layout of more than 2^20 elements or pairs has no cells.
    ///
    /// ```
    /// use cutlet::layout::{local, spatial};
    ///
    /// let picture = (spatial([8, 4]) * local([1, 2])).to_svg();
    /// assert!(picture.starts_with("<svg") && picture.contains(">31: 1<"));
    /// ```
    pub fn to_svg(&self) -> String {
        svg(self.shape(), &holders_of_modes(self))
    }
}

impl Layout {
    /// Returns the grid of [`Display`](std::fmt::Display) as the text of an SVG file, like
    /// [`Modes::to_svg`].
    ///
    /// ```
    /// use cutlet::layout::Layout;
    ///
    /// let picture = Layout::blocked(&[4, 16], &[1, 0], 2, 1).to_svg();
    /// assert!(picture.starts_with("<svg") && picture.contains(">31: 1<"));
    /// ```
    pub fn to_svg(&self) -> String {
        svg(self.shape(), &holders_of_layout(self))
    }
}

fn svg(shape: &[i64], holders: &Holders) -> String {
    let [rows, columns] = matrix(shape);
    let text: Vec<String> = holders.iter().map(|places| brief(places)).collect_vec();
    let width = LETTER * (2 + text.iter().map(String::len).max().unwrap_or(0));
    let matrices = if holders.is_empty() { 0 } else { holders.len() / (rows * columns) };
    let (all_wide, all_high) = (columns.min(holders.len()) * width, (matrices * (rows + 1)).saturating_sub(1) * HEIGHT);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{all_wide}\" height=\"{all_high}\" \
         font-family=\"monospace\" font-size=\"12\" text-anchor=\"middle\" stroke-width=\"1\">\n"
    );
    for (flat, (places, text)) in holders.iter().zip(&text).enumerate() {
        let (row, column) = (flat / columns, flat % columns);
        // A gap of one row between matrices.
        let (x, y) = (column * width, (row + row / rows) * HEIGHT);
        let colour = places.first().map_or("white".to_string(), |(thread, _)| colour(*thread));
        let (middle, base) = (x + width / 2, y + HEIGHT - 8);
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "<g><title>{}</title><rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{HEIGHT}\" fill=\"{colour}\" \
             stroke=\"gray\"/><text x=\"{middle}\" y=\"{base}\">{text}</text></g>",
            full(places)
        );
    }
    out.push_str("</svg>\n");
    out
}

/// The hues of adjacent threads differ by the golden angle.
fn colour(thread: i64) -> String {
    format!("hsl({}, 60%, 82%)", thread * 137 % 360)
}

#[cfg(test)]
mod tests {
    use super::super::{local, spatial};

    #[test]
    fn every_element_is_a_cell_within_the_picture() {
        let layout = (spatial([2, 2, 4]) * local([1, 2, 1])).reduce(&[2]).unwrap().concat(&local([3]));
        let picture = layout.to_svg();
        assert_eq!(picture.matches("<rect").count(), 24);
        assert_eq!(picture.matches("<title>[0, 1, 2, 3]: 0</title>").count(), 1);
        let number = |text: &str, name: &str| -> usize {
            let from = text.find(name).unwrap() + name.len();
            text[from..].split('"').next().unwrap().parse().unwrap()
        };
        let (width, height) = (number(&picture, " width=\""), number(&picture, " height=\""));
        let ends = picture.lines().filter(|line| line.contains("<rect")).map(|line| {
            let rect = &line[line.find("<rect").unwrap()..];
            let at = |name: &str| number(rect, name);
            (at(" x=\"") + at(" width=\""), at(" y=\"") + at(" height=\""))
        });
        let ends: Vec<_> = ends.collect();
        assert_eq!(ends.iter().map(|(x, _)| *x).max(), Some(width));
        assert_eq!(ends.iter().map(|(_, y)| *y).max(), Some(height));
        let mut distinct = ends.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), ends.len());
    }
}
