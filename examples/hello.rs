//! Every tile block prints: `cargo run --example hello`.

use cutlet as ct;

/// A block says which one it is, and what a tile of its own holds.
pub fn hello() {
    let (x, y) = (ct::bid(0), ct::bid(1));
    let tile = ct::arange(0..4) + x * 10 + y * 100;
    ct::println!("hello from block ({x}, {y}) of ({}, {}): {tile:3}", ct::num_blocks(0), ct::num_blocks(1));
}

fn main() -> ct::Result<()> {
    let (device, grid) = (ct::Device::first()?, [4, 2]);
    // A launch without arrays runs on the stream that it is given.
    ct::Launch::new(grid).stream(&device.default_stream()).launch(hello, ())?;
    // What a GPU prints comes when the host has waited.
    device.synchronize()?;
    println!("hello: {} blocks, {}", grid[0] * grid[1], device.name());
    Ok(())
}
