//! Every tile block prints: `cargo run --example hello`.

use cutlet as ct;

/// A block prints its index and the elements of a tile.
pub fn hello() {
    let (x, y) = (ct::bid(0), ct::bid(1));
    let tile = ct::arange(0..4) + x * 10 + y * 100;
    ct::println!("hello from block ({x}, {y}) of ({}, {}): {tile:3}", ct::num_blocks(0), ct::num_blocks(1));
}

fn main() -> ct::Result<()> {
    let (device, grid) = (ct::Device::first()?, [4, 2]);
    // A launch without arrays runs on this stream.
    ct::Launch::new(grid).stream(&device.default_stream()).launch(hello, ())?;
    // The output of a GPU is printed when the host waits.
    device.synchronize()?;
    println!("hello: {} blocks, {}", grid[0] * grid[1], device.name());
    Ok(())
}
