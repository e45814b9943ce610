//! Every tile block prints: `cargo bench --bench kernels -- hello`.

use anyhow::Result;

use super::examples::hello::hello;
use super::harness::Options;

options! {
    /// Prints a line from every tile block of a grid.
    {
        /// Tile blocks along the first axis.
        "x" x: usize = 4,
        /// Tile blocks along the second axis.
        "y" y: usize = 2,
    }
}

/// Runs the kernel with these options.
pub fn run(cli: &Cli) -> Result<()> {
    let Cli { options, x, y } = cli;
    if options.emits() {
        return options.emit(hello, ());
    }
    let device = options.device()?;
    options.launch([*x, *y]).stream(&device.default_stream()).launch(hello, ())?;
    // The output of a GPU is printed when the host waits.
    device.synchronize()?;
    println!("hello: {} blocks on {}", x * y, device.name());
    Ok(())
}
