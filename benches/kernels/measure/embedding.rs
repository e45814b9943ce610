//! Rows of a table by number: `cargo bench --bench kernels -- embedding`.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;
use rayon::prelude::*;

use super::examples::embedding::embedding;
use super::harness::{Expected, Options, Report, Rotation, Work, largest_error};

options! {
    /// Rows of a table (f16) by random numbers.
    {
        /// Rows of the table.
        "rows" rows: Option<usize> = None,
        /// Columns of the table.
        "columns" columns: Option<usize> = None,
        /// Rows that are looked up.
        "ids" ids: Option<usize> = None,
        /// Most columns of a tile.
        "tile" tile: usize = 1024,
    }
}

/// Runs the kernel with these options.
pub fn run(cli: &Cli) -> Result<()> {
    let options = &cli.options;
    let device = options.device()?;
    let rows = options.size(cli.rows, &device, 128 << 10, 300);
    let columns = options.size(cli.columns, &device, 4096, 512);
    let count = options.size(cli.ids, &device, 32 << 10, 100);
    let tile = columns.next_power_of_two().min(cli.tile);
    if options.emits() {
        let (table, ids) = (ct::ArraySpec::new([rows, columns]), ct::ArraySpec::new([count]));
        let out = ct::ArraySpec::new([count, columns]).mutable();
        return options.emit(embedding, (table, ids, out, Constant(tile)));
    }
    let element = |row: usize, column: usize| f16::from_f32(((row * 31 + column * 7) % 2039) as f32 - 1000.0);
    let mut host = vec![f16::ZERO; rows * columns];
    let fill = |(row, line): (usize, &mut [f16])| line.iter_mut().enumerate().for_each(|(j, x)| *x = element(row, j));
    host.par_chunks_mut(columns).enumerate().for_each(fill);
    let numbers: Vec<i32> =
        (0..count as u64).map(|i| ((i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) % rows as u64) as i32).collect();
    let mut rotation = Rotation::new(device, 2 * rows * columns, || {
        Ok((device.array(&host, [rows, columns])?, device.array(&numbers, [count])?, device.zeros([count, columns])?))
    })?;
    let grid = [count, columns.div_ceil(tile)];
    let time = rotation.time(options, |(table, ids, out)| {
        options.launch(grid).launch(embedding, (&*table, &*ids, out, Constant(tile)))
    })?;
    let result: Vec<f16> = rotation.first().2.to_vec()?;
    let error = largest_error(
        count * columns,
        |i| result[i].into(),
        |i| Expected { value: element(numbers[i / columns] as usize, i % columns).into(), scale: 1.0 },
    );
    Report {
        what: format!("embedding f16 {count} of {rows}x{columns}"),
        device: device.name().to_owned(),
        time,
        work: Work::Bytes(4.0 * (count * columns) as f64 + 4.0 * count as f64),
        error,
        tolerance: 0.0,
        relative_to: "1",
    }
    .finish()
}
