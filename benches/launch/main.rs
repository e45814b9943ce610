//! Host time of launches: `cargo bench --bench launch`.
//!
//! Warm ones, next to the driver's own, and the first of a kernel for which nothing is cached. With
//! `-- --json` each figure is a line of JSON, in nanoseconds.

mod first;
mod warm;

use cutlet as ct;

fn vadd(a: ct::Array<f32, 1>, b: ct::Array<f32, 1>, c: ct::ArrayMut<f32, 1>, tile: usize) {
    let i = ct::bid(0);
    c.store([i], a.load([i], [tile]) + b.load([i], [tile]));
}

/// Prints the median and the least of some times in nanoseconds.
fn print(what: &str, times: &[f64]) {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    let (median, least) = (times[times.len() / 2], times[0]);
    if std::env::args().any(|argument| argument == "--json") {
        println!("{{\"what\": \"{what}\", \"median\": {median:.0}, \"least\": {least:.0}}}");
    } else {
        println!("{what:<56} median {median:11.0} ns   least {least:11.0} ns");
    }
}

fn main() -> ct::Result<()> {
    let device = match ct::Device::gpu(0) {
        Ok(device) => device,
        Err(error) => {
            println!("skipped on a GPU: {error}");
            return warm::on_the_cpu();
        }
    };
    if first::is_child() {
        return first::of_this_process(device);
    }
    warm::on_a_gpu(device)?;
    first::in_new_processes()
}
