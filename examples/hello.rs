//! Every tile block prints: `cargo run --release --example hello`.

mod harness;

use anyhow::Result;
use clap::Parser;
use cutlet as ct;
use harness::Options;

/// Prints a line from every tile block of a grid.
#[derive(Parser, Debug)]
pub struct Cli {
    #[command(flatten)]
    options: Options,
    /// Tile blocks along the first axis.
    #[arg(long, default_value_t = 4)]
    x: usize,
    /// Tile blocks along the second axis.
    #[arg(long, default_value_t = 2)]
    y: usize,
}

/// A block says which one it is, and what a tile of its own holds.
pub fn hello() {
    let (x, y) = (ct::bid(0), ct::bid(1));
    let tile = ct::arange(4, 0, 1) + x * 10 + y * 100;
    ct::println!("hello from block ({x}, {y}) of ({}, {}): {tile:3}", ct::num_blocks(0), ct::num_blocks(1));
}

/// Does what the options say.
pub fn run(cli: &Cli) -> Result<()> {
    let Cli { options, x, y } = cli;
    if options.emits() {
        return options.emit(hello, ());
    }
    let device = options.device()?;
    options.launch([*x, *y]).stream(&device.default_stream()).launch(hello, ())?;
    // What a GPU prints comes when the host has waited.
    device.synchronize()?;
    println!("hello: {} blocks on {}", x * y, device.name());
    Ok(())
}

fn main() -> Result<()> {
    run(&Cli::parse())
}
