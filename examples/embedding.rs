//! Rows of a table by number: `cargo run --release --example embedding`.

mod harness;

use anyhow::Result;
use clap::Parser;
use cutlet as ct;
use cutlet::prelude::*;
use harness::{Expected, Options, Report, Rotation, Work, largest_error};
use rayon::prelude::*;

/// Rows of a table (f16) by random numbers.
#[derive(Parser, Debug)]
pub struct Cli {
    #[command(flatten)]
    options: Options,
    /// Rows of the table.
    #[arg(long)]
    rows: Option<usize>,
    /// Columns of the table.
    #[arg(long)]
    columns: Option<usize>,
    /// Rows that are looked up.
    #[arg(long)]
    ids: Option<usize>,
    /// Most columns of a tile.
    #[arg(long, default_value_t = 4096)]
    tile: usize,
}

/// A block takes a part of one row.
pub fn embedding(table: Array<f16, 2>, ids: Array<i32, 1>, out: ArrayMut<f16, 2>, tile: usize) {
    let (row, part) = (ct::bid(0), ct::bid(1));
    let id = ids.load_scalar(row);
    out.store([row, part], table.gather((id, ct::span(part * tile, tile))));
}

/// Does what the options say.
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

fn main() -> Result<()> {
    run(&Cli::parse())
}
